"""Fields of rows, copied into a batch."""
