"""What the agents learn: runs, their results, and what was asked of them."""
