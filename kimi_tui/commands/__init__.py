"""The commands of `kimi-tui` that need no screen."""
