"""The prompt: where the user writes, with history, drafts and commands."""
