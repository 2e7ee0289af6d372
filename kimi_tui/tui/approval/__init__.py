"""The question before the agent changes something; it takes the place of the prompt."""
