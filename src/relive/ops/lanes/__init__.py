"""What the steps of each lane become."""
