"""The screens for choosing a model: in the first run, and by /model."""
