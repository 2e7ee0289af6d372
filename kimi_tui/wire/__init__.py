"""The events between soul and screen, and the queue that carries them. They are plain values only."""
