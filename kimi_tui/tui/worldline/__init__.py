"""Reading a world line in the place of the chat."""
