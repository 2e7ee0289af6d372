"""kimi-tui: a coding agent in the terminal whose time travel can be seen and steered."""

__version__ = "0.1.0"

DONE = 0
FAILED = 1
USAGE = 2
CONFLICTS = 3
LOCKED = 4
INTERRUPTED = 130
"""Exit codes: done, failed, wrong usage, done except for conflicts, session open in another process, stopped by Ctrl+C."""
