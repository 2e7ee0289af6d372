"""The prompt: its text field, completion menu, history, chips and vim keys."""
