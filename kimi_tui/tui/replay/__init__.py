"""Watching a stored session again: the course of its events, the moment that is shown, and the screen around it."""
