"""The files of the program as syntax trees, parsed once in a process: several tests read all of them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    """Return the text of a file, and its tree.

    No garbage collection visits the trees, neither while they grow nor later: that took longer than to parse.
    """
    text = path.read_text(encoding="utf-8")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        tree = ast.parse(text)
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    return text, tree
