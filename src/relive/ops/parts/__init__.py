"""Which parts a batch is drawn from."""
