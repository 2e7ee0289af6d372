"""Two courses of a conversation side by side."""
