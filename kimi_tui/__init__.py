"""kimi-tui: a coding agent in the terminal whose time travel can be seen and steered."""

__version__ = "0.1.0"
