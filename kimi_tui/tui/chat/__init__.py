"""The chat: the conversation as one widget that draws only what is visible, over blocks that a reducer makes."""
