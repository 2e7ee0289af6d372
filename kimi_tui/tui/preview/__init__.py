"""The preview of a rewind: what it would drop, and the actions to choose from."""
