"""Modules of libraries that others import and nothing here uses, left out of the start."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType


class _LeftOut(ModuleType):
    """Has a class of every name, with nothing in it."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def left_out(*names: str) -> Generator[None]:
    """What is imported in this context gets nothing but names of these modules; behind it, and where they were loaded
    before, they are what they are."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update((name, _LeftOut(name)) for name in absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
