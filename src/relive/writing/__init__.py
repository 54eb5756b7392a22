"""From what an environment returns to packed rows."""
