"""Turns without a screen: `kimi-tui -p`, for scripts, pipes and CI. docs/headless.md describes it for users."""
