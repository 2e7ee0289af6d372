"""The timeline of checkpoints: the widget, its visible part, and the text of its rows (its model is in `projection`)."""
