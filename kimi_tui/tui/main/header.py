"""The first row: the session's title, the folder and its branch; at the right the model and what needs asking."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from kimi_tui.config.choosing import Choice
from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.state import MODE_WORDS, Mode
from kimi_tui.tui.numbers import cut, path

GAP = 3
NEW_SESSION = "New session"
LEAST_TITLE = 12
READ_ONLY = "read only"
"""In place of the mode where another line is looked at."""


class Heading(NamedTuple):
    """What the header says."""

    title: str = ""
    folder: str = ""
    branch: str = ""
    model: str = ""
    mode: Mode = "ask"
    words: str = ""
    """Stand in place of the mode where nothing is asked at all."""


class Fitted(NamedTuple):
    """The parts that found room; the others are empty."""

    title: str
    folder: str
    branch: str
    model: str
    mode: str


def fit(heading: Heading, width: int, ellipsis: str = "…") -> Fitted:
    """The heading in `width` cells.

    It loses the branch, then the model, then the title's end down to a few cells, then the folder, then more of the title;
    before it loses anything but the branch, the folder loses its upper parts.
    """
    title = _plain(heading.title) or NEW_SESSION
    mode = heading.words or MODE_WORDS[heading.mode]
    folder, branch, model = (_plain(p) for p in (heading.folder, heading.branch, heading.model))
    if _width(title, folder, branch, model, mode) > width:
        branch = ""
    whole = folder
    folder = _shortened(whole, width - _width(title, "", branch, model, mode) - GAP, ellipsis)
    if _width(title, folder, branch, model, mode) > width:
        model = ""
        folder = _shortened(whole, width - _width(title, "", branch, model, mode) - GAP, ellipsis)
    if _width(title, folder, branch, model, mode) > width:
        others = _width("", folder, branch, model, mode)
        if width - others - 1 < min(LEAST_TITLE, cell_len(title)):
            folder = ""
    room = width - _width("", folder, branch, model, mode)
    return Fitted(cut(title, max(1, room), ellipsis), folder, branch, model, mode)


def _shortened(folder: str, room: int, ellipsis: str) -> str:
    """The folder in this room; its own name is kept where there is less."""
    above, _, name = folder.rpartition("/")
    least = cell_len(f"{ellipsis}/{name}") if above else cell_len(folder)
    return path(folder, max(room, least), ellipsis)


def _plain(text: str) -> str:
    """The text without anything that a terminal would obey: folders, branches and models have names of others."""
    if text.isprintable():
        return text
    from kimi_tui.foreign_text import one_line

    return one_line(text)


def _width(title: str, folder: str, branch: str, model: str, mode: str) -> int:
    """The least width in which these stand with their gaps."""
    return (
        cell_len(title)
        + (GAP + cell_len(folder) if folder else 0)
        + (2 + cell_len(branch) if branch else 0)
        + (GAP + cell_len(model) if model else 0)
        + (GAP + cell_len(mode) if mode else 0)
    )


def heading_of(launch: Launch) -> Heading:
    """What is known before the session is open."""
    choice = launch.choice
    model = choice.model if isinstance(choice, Choice) else ""
    return Heading(folder=short(launch.work_dir), model=model, mode=launch.mode)


class Header(Widget):
    """The first row of the main screen."""

    heading: reactive[Heading] = reactive(Heading())

    def __init__(self, heading: Heading) -> None:
        super().__init__()
        self.set_reactive(Header.heading, heading)

    def render(self) -> Content:
        """The row, fitted to its width."""
        width = self.content_size.width
        shown = fit(self.heading, width, glyphs_of(app_of(self)).cut)
        left = Content.assemble(
            (shown.title, "bold $ink-strong"),
            (f"   {shown.folder}" if shown.folder else "", "$ink-quiet"),
            (f"  {shown.branch}" if shown.branch else "", "$ink-quiet"),
        )
        style = {"ask": "$ink-quiet", "edits": "$ink", "all": "bold $kind-error"}
        right = Content.assemble(
            (shown.model, "$ink-quiet"),
            "   " if shown.model else "",
            (shown.mode, "$ink" if self.heading.words else style[self.heading.mode]),
        )
        room = width - left.cell_length - right.cell_length
        return Content.assemble(left, " " * max(0, room), right)
