"""What a buffer on a GPU needs besides its kernels: nothing in a training step waits for it."""
