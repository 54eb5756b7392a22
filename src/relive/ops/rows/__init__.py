"""Steps are folded and copied to where they belong."""
