"""What an update asks for and who decides, in kernels."""
