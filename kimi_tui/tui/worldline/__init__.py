"""A world line, read in the place of the chat."""
