"""Drawing rows of the parts of a batch."""
