"""A stored session played back: the screen, the scrubber, and what brings the views to a moment."""
