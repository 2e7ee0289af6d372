"""The prompt: where the person writes, with history, drafts and commands."""
