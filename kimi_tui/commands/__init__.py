"""What `kimi-tui` does without a screen, one module a family of commands."""
