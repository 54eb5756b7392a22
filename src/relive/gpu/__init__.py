"""What a buffer on a GPU, or one that feeds a GPU, needs besides its kernels."""
