"""Powers with the same bits everywhere."""
