"""Drawing a batch."""
