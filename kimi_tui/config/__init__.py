"""The configuration: its values, its file, the choice of a model, and the keys."""
