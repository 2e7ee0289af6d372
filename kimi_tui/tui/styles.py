"""Where the style sheets are. Each screen names its own, so that what is not shown is not parsed."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

FOLDER = Path(__file__).parent.parent / "css"


def add_sheets(app: App[object], *names: str) -> None:
    """Parse style sheets that were not needed until now; those that are known already cost nothing."""
    missing = [path for path in sheets(*names) if not app.stylesheet.has_source(str(path), "")]
    if missing:
        app.stylesheet.read_all([PurePath(path) for path in missing])
        app.stylesheet.parse()


def sheets(*names: str) -> list[str | PurePath]:
    """The paths of style sheets by name, without `.tcss`."""
    return [FOLDER / f"{name}.tcss" for name in names]
