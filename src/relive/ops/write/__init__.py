"""Steps become rows."""
