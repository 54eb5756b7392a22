"""Which rows may be drawn, and where they lie."""
