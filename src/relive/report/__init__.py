"""Reads a run directory and writes a page about it; knows files, neither torch nor agents.

`read.read_run` needs numpy only; `page.write_report` draws with matplotlib (the extra `report`).
"""
