"""Where the rows are: memory, and which row is in which slot."""
