"""The first and the last row of a screen as spans, and how wide its panes are. Without Textual: the first frame needs them before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from kimi_tui.agent_parts import MODE_TITLES, NO_SANDBOX
from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.foreign_text import one_line
from kimi_tui.tui.formatting import cut, path
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import Span, sides

if TYPE_CHECKING:
    from kimi_tui.agent_parts import Mode
    from kimi_tui.launch import Launch

NARROW_BELOW = 80
SHORT_BELOW = 30
"""Height of the screen in rows below which margins are left out."""
TINY_BELOW = 8
"""Height of the screen in rows below which the header and the gauge are left out."""
OVERLAY_BELOW = 100
SLIM_BELOW = 112
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38
BROAD_FROM = 160
"""Width of the screen in cells from which on the timeline is wide enough for longer names."""
BROAD_TIMELINE = 52


def timeline_width(screen_width: int) -> int:
    """Return the width in cells of the timeline beside the chat; 0 if the screen is so narrow that it floats over the chat."""
    if screen_width < OVERLAY_BELOW:
        return 0
    if screen_width >= BROAD_FROM:
        return BROAD_TIMELINE
    return SLIM_TIMELINE if screen_width < SLIM_BELOW else WIDE_TIMELINE


# --- header, the first row


NEW_SESSION = "New session"
LEAST_TITLE = 12
GAP = 3
NOT_SAVED = "not saved"
READ_ONLY = "read-only"
"""Shown in the header instead of the mode while a world line is read."""


class HeaderText(NamedTuple):
    """The content of the header: title, folder, branch, model and mode of the session."""

    title: str = ""
    folder: str = ""
    branch: str = ""
    model: str = ""
    mode: Mode = "ask"
    words: str = ""
    """Shown instead of the mode while something is only read, or for an agent without modes; empty to show the mode."""
    unsaved: bool = False
    """Whether the conversation cannot be written to the disk at present."""
    sandbox: bool = True
    """Whether commands run in a sandbox, as far as is known."""


class HeaderParts(NamedTuple):
    """The parts of a heading that fit into the header; the others are empty."""

    title: str
    folder: str
    branch: str
    model: str
    mode: str
    trouble: str = ""


def fit_heading(heading: HeaderText, width: int, ellipsis: str, caution: str = "!") -> HeaderParts:
    """Fit a heading into `width` cells.

    A header that is too narrow loses the branch, then the upper folders of the path, the model, the title's end down to a
    few cells, the folder, and more of the title. The warning about unsaved work is never left out.
    """
    trouble = f"{caution} {NOT_SAVED}" if heading.unsaved else ""
    width -= cell_len(trouble) + GAP if trouble else 0
    title = _plain(heading.title) or NEW_SESSION
    mode = heading.words or MODE_TITLES[heading.mode]
    if heading.mode == "all" and not (heading.words or heading.sandbox):
        mode = f"{mode}, {NO_SANDBOX}"
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
    return HeaderParts(cut(title, max(1, room), ellipsis), folder, branch, model, mode, trouble)


def _shortened(folder: str, room: int, ellipsis: str) -> str:
    """Return the path of a folder in at most `room` cells; at least its last part is kept."""
    above, _, name = folder.rpartition("/")
    least = cell_len(f"{ellipsis}/{name}") if above else cell_len(folder)
    return path(folder, max(room, least), ellipsis)


def _plain(text: str) -> str:
    """Return the text without control characters: the names of folders, branches and models are foreign text."""
    return text if text.isprintable() else one_line(text)


def _width(title: str, folder: str, branch: str, model: str, mode: str) -> int:
    """Return the least width in cells in which these parts fit with the gaps between them."""
    return (
        cell_len(title)
        + (GAP + cell_len(folder) if folder else 0)
        + (2 + cell_len(branch) if branch else 0)
        + (GAP + cell_len(model) if model else 0)
        + (GAP + cell_len(mode) if mode else 0)
    )


def model_name(model: str) -> str:
    """Return a model's id as the header shows it: only the last part of a path of files or folders."""
    parts = [part for part in model.split("/") if part]
    is_path = model.startswith(("/", "./", "../", "~")) or len(parts) > 2 or "\\" in model
    return parts[-1].rsplit("\\", 1)[-1] if is_path and parts else model


def heading_of(launch: Launch) -> HeaderText:
    """Return the heading before the session is open: folder, model and mode of the launch."""
    choice = launch.choice
    model = model_name(choice.model) if isinstance(choice, ModelChoice) else ""
    agent = launch.external_agent[0] if launch.external_agent else ""
    return HeaderText(
        folder=short(launch.work_dir),
        model="" if agent else model,
        mode=launch.mode,
        words=agent,
    )


_MODE_STYLES: dict[Mode, str] = {
    "plan": "accent/b",
    "ask": "quiet",
    "edits": "ink",
    "sandboxed": "ink",
    "all": "error/b",
}


def heading_spans(heading: HeaderText, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the header's row, fitted to so many cells."""
    shown = fit_heading(heading, width, glyphs.cut, glyphs.caution)
    left = [
        Span(shown.title, "strong"),
        Span(f"   {shown.folder}" if shown.folder else "", "quiet"),
        Span(f"  {shown.branch}" if shown.branch else "", "quiet"),
    ]
    right = [
        Span(f"{shown.trouble}   " if shown.trouble else "", "error/b"),
        Span(f"{shown.model}   " if shown.model else "", "quiet"),
        Span(shown.mode, "ink" if heading.words else _MODE_STYLES[heading.mode]),
    ]
    return sides(left, right, width)


# --- footer, the last row


Hint = tuple[str, str]
WAY_OUT = "Esc"


def fit_hints(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    """Return the hints that fit into `width` cells, in order. The one that leaves the screen takes precedence over the others."""
    shown = _from_first(hints, width)
    out = next((hint for hint in hints if hint[0] == WAY_OUT), None)
    if out is None or out in shown or not _from_first([out], width):
        return shown
    others = [hint for hint in hints if hint is not out]
    return (*_from_first(others, width - hint_cells(out) - GAP), out)


def roomiest(wordings: Sequence[Sequence[Hint]], width: int) -> Sequence[Hint]:
    """Return the first of several wordings, longest first, whose hints all fit into `width` cells; else the last."""
    return next((one for one in wordings if fit_hints(one, width) == tuple(one)), wordings[-1])


def _from_first(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    used, shown = 0, list[Hint]()
    for hint in hints:
        used += hint_cells(hint) + (GAP if shown else 0)
        if used > width:
            break
        shown.append(hint)
    return tuple(shown)


def hint_cells(hint: Hint) -> int:
    """Return the width of a hint in cells."""
    return cell_len(hint[0]) + 1 + cell_len(hint[1])


def hint_spans(hints: Sequence[Hint], width: int) -> list[Span]:
    """Return a row of at most `width` cells with as many hints as fit."""
    spans: list[Span] = []
    for key, meaning in fit_hints(hints, width):
        gap = " " * GAP if spans else ""
        spans += [Span(f"{gap}{key}", "ink"), Span(f" {meaning}", "quiet")]
    return spans
