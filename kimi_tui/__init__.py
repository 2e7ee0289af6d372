"""kimi-tui: a coding agent in the terminal whose time travel can be seen and steered.

For programs: `from kimi_tui import open_session` (docs/library.md). Importing the package alone loads nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers it is true; `typing` would have to be imported for it
if TYPE_CHECKING:
    from kimi_tui.library import open_session as open_session
    from kimi_tui.program import VERSION as __version__

__all__ = ["__version__", "open_session"]
_PLACES = {
    "open_session": ("kimi_tui.library", "open_session"),
    "__version__": ("kimi_tui.program", "VERSION"),
}


def __getattr__(name: str) -> object:
    """Return a name of `__all__`, whose module is imported with its first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
