"""Rows dropped before their time, since frames of theirs are gone."""
