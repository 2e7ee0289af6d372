"""The first row: the session's title, the folder and its branch; at the right the model and what needs asking.

The branch is read from `.git/HEAD` alone. No git runs on our own account: in a hostile repository even `git status`
starts a program that its config names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import Choice
from kimi_tui.filesystem import open_regular
from kimi_tui.launch import Launch
from kimi_tui.tui.formatting import cut, path
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.state import MODE_WORDS

if TYPE_CHECKING:
    from kimi_tui.soul.approval import Mode

GAP = 3
NEW_SESSION = "New session"
LEAST_TITLE = 12
NOT_SAVED = "not saved"
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
    unsaved: bool = False
    """The disk does not take what is said."""


class Fitted(NamedTuple):
    """The parts that found room; the others are empty."""

    title: str
    folder: str
    branch: str
    model: str
    mode: str
    trouble: str = ""


def fit(heading: Heading, width: int, ellipsis: str = "…", caution: str = "!") -> Fitted:
    """The heading in `width` cells.

    What is said of a disk that takes nothing always has its place.

    It loses the branch, then the model, then the title's end down to a few cells, then the folder, then more of the title;
    before it loses anything but the branch, the folder loses its upper parts.
    """
    trouble = f"{caution} {NOT_SAVED}" if heading.unsaved else ""
    width -= cell_len(trouble) + GAP if trouble else 0
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
    return Fitted(cut(title, max(1, room), ellipsis), folder, branch, model, mode, trouble)


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


def model_name(model: str) -> str:
    """A model's id as the header shows it: of one that is a path of files or folders only the last part."""
    parts = [part for part in model.split("/") if part]
    is_path = model.startswith(("/", "./", "../", "~")) or len(parts) > 2 or "\\" in model
    return parts[-1].rsplit("\\", 1)[-1] if is_path and parts else model


def heading_of(launch: Launch) -> Heading:
    """What is known before the session is open."""
    choice = launch.choice
    model = model_name(choice.model) if isinstance(choice, Choice) else ""
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
        glyphs = glyphs_of(self)
        shown = fit(self.heading, width, glyphs.cut, glyphs.caution)
        left = Content.assemble(
            (shown.title, "bold $ink-strong"),
            (f"   {shown.folder}" if shown.folder else "", "$ink-quiet"),
            (f"  {shown.branch}" if shown.branch else "", "$ink-quiet"),
        )
        style = {
            "plan": "bold $accent",
            "ask": "$ink-quiet",
            "edits": "$ink",
            "sandboxed": "$ink",
            "all": "bold $kind-error",
        }
        right = Content.assemble(
            (shown.trouble, "bold $kind-error"),
            "   " if shown.trouble else "",
            (shown.model, "$ink-quiet"),
            "   " if shown.model else "",
            (shown.mode, "$ink" if self.heading.words else style[self.heading.mode]),
        )
        room = width - left.cell_length - right.cell_length
        return Content.assemble(left, " " * max(0, room), right)


LIMIT_BYTES = 4096


def branch_of(folder: Path) -> str:
    """The branch's name, the first 7 digits of a detached commit, or nothing."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_dir():
                return _head(git)
            if git.is_file():
                # A worktree or submodule: the file names the folder that holds HEAD.
                line = _read(git)
                if line.startswith("gitdir:"):
                    return _head(place / line.removeprefix("gitdir:").strip())
                return ""
        except OSError:
            return ""
    return ""


def _head(git: Path) -> str:
    line = _read(git / "HEAD")
    if line.startswith("ref:"):
        return line.removeprefix("ref:").strip().removeprefix("refs/heads/")
    is_commit = len(line) in (40, 64) and all(c in "0123456789abcdef" for c in line)
    return line[:7] if is_commit else ""


def _read(path: Path) -> str:
    try:
        descriptor = open_regular(path, links=True)
    except OSError:
        return ""
    with open(descriptor, "rb", buffering=0) as file:
        return file.read(LIMIT_BYTES).decode("utf-8", "replace").strip()
