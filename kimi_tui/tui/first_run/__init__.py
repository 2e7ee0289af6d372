"""The choice of a model: in the first run, and by /model."""
