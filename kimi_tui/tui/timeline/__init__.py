"""The line of checkpoints: a pure model from events to rows, and the widget that draws the visible ones."""
