"""The events between soul and screen, and the queue that carries them. Plain values only."""
