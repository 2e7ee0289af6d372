"""The approval panel, which asks before the agent changes something, in place of the prompt."""
