"""What the model reads about a tool: the Markdown file beside its module."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def description_beside(module_file: str) -> str:
    """The text of the `.md` file of the same name as the module file (`__file__`)."""
    return Path(module_file).with_suffix(".md").read_text(encoding="utf-8").strip()
