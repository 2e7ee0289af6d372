"""The replay of a stored session: its screen, the scrubber, the player, and the source that it is read from."""
