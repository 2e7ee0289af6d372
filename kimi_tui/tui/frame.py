"""What the screens of a session have in common: header, chat beside timeline, notices, gauge and footer in their places.

Only header and chat stand on the first picture; what else is in the panes is imported when it is first needed. The branch
in the header is read from `.git/HEAD` alone. No git runs on our own account: in a hostile repository even `git status`
starts a program that its config names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from rich.cells import cell_len
from textual import events
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.selection import Selection
from textual.widget import Widget

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import Choice
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.launch import Launch
from kimi_tui.tui.compositor import draw_changed_rows
from kimi_tui.tui.formatting import cut, path, wrap_words
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.screens import add_sheets, app_of
from kimi_tui.tui.state import MODE_WORDS, STAYS_S
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.soul.approval import Mode
    from kimi_tui.tui.faults import Report
    from kimi_tui.tui.prompt.command import Command
    from kimi_tui.tui.prompt.menu import CommandMenu, Offer
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.views import Views

NARROW_BELOW = 80
SHORT_BELOW = 30
"""Rows, below which there is less air."""
OVERLAY_BELOW = 100
SLIM_BELOW = 112
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38
BROAD_FROM = 160
"""Cells of the screen from which there is room for longer names on the timeline."""
BROAD_TIMELINE = 52


def timeline_width(screen_width: int) -> int:
    """How wide the timeline beside the chat is; 0 where it floats over it."""
    if screen_width < OVERLAY_BELOW:
        return 0
    if screen_width >= BROAD_FROM:
        return BROAD_TIMELINE
    return SLIM_TIMELINE if screen_width < SLIM_BELOW else WIDE_TIMELINE


# --- header, the first row


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


def fit_heading(heading: Heading, width: int, ellipsis: str = "…", caution: str = "!") -> Fitted:
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
        shown = fit_heading(self.heading, width, glyphs.cut, glyphs.caution)
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


# --- footer, the last row


Hint = tuple[str, str]
GAP = 3
WAY_OUT = "Esc"


def fit_hints(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    """The hints that fit into `width` cells whole, from the first on; the way out is among them before any other."""
    shown = _from_first(hints, width)
    out = next((hint for hint in hints if hint[0] == WAY_OUT), None)
    if out is None or out in shown or not _from_first([out], width):
        return shown
    others = [hint for hint in hints if hint is not out]
    return (*_from_first(others, width - _cells(out) - GAP), out)


def roomiest(wordings: Sequence[Sequence[Hint]], width: int) -> Sequence[Hint]:
    """The first of the wordings of which every hint fits, else the last, which is the shortest."""
    return next((one for one in wordings if fit_hints(one, width) == tuple(one)), wordings[-1])


def _from_first(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    used, shown = 0, list[Hint]()
    for hint in hints:
        used += _cells(hint) + (GAP if shown else 0)
        if used > width:
            break
        shown.append(hint)
    return tuple(shown)


def _cells(hint: Hint) -> int:
    return cell_len(hint[0]) + 1 + cell_len(hint[1])


def hint_row(hints: Sequence[Hint], width: int) -> Content:
    """A row of at most `width` cells with as many hints as fit."""
    parts: list[tuple[str, str] | str] = []
    for key, meaning in fit_hints(hints, width):
        parts += [" " * GAP if parts else "", (key, "$ink"), " ", (meaning, "$ink-quiet")]
    return Content.assemble(*parts)


class Footer(Widget):
    """The last row of a screen."""

    hints: reactive[tuple[Hint, ...]] = reactive(())
    urgent: reactive[str] = reactive("")
    """What is said in the place of the hints for a moment."""

    def render(self) -> Content:
        """As many hints as fit."""
        if self.urgent:
            return Content.styled(self.urgent, "bold $ink-strong")
        return hint_row(self.hints, self.content_size.width)


# --- notices under the last rows of a pane


Level = Literal["info", "warning", "error"]
MAX_ROWS = 3
LIST_ROWS = 6
"""Rows for several notices that came at once."""


class Shown(NamedTuple):
    """A notice on the screen; `until` is a monotonic time, or None where it stays until solved.

    `more` are others that came at once, and are shown with it.
    """

    level: Level
    text: str
    advice: str = ""
    topic: str = ""
    until: float | None = None
    more: tuple[str, ...] = ()


def with_notice(board: tuple[Shown, ...], new: Shown, now: float) -> tuple[Shown, ...]:
    """The board with one more: it replaces what passes by itself, and what was said on the same topic."""
    kept = tuple(
        old
        for old in board
        if (old.until is None and old.topic != new.topic) or ((old.until or 0) > now and new.topic)
    )
    return (*kept, new)


def without(board: tuple[Shown, ...], topic: str, now: float) -> tuple[Shown, ...]:
    """The board without a topic and without what has passed."""
    return tuple(
        old
        for old in board
        if (not topic or old.topic != topic) and (old.until is None or old.until > now)
    )


class Notices(Widget):
    """The notices; not there while there are none."""

    class Grown(Message):
        """They may take another number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self._board: tuple[Shown, ...] = ()

    @property
    def board(self) -> tuple[Shown, ...]:
        """What is shown now."""
        return self._board

    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice; with a topic it stays until `solve`."""
        now = time.monotonic()
        until = None if topic else now + STAYS_S
        new = Shown(level, one_line(text), " ".join(clean(advice).split()), topic, until)
        self._show(with_notice(self._board, new, now))
        if until is not None:
            self.set_timer(STAYS_S + 0.05, self._expire)

    def tell_all(self, texts: Sequence[str], *, level: Level) -> None:
        """Show several notices that came at once as one list, for as long as each of them would stay."""
        first, *more = map(one_line, texts)
        stays_s = STAYS_S * len(texts)
        new = Shown(level, first, until=time.monotonic() + stays_s, more=tuple(more))
        self._show(with_notice(self._board, new, time.monotonic()))
        self.set_timer(stays_s + 0.05, self._expire)

    def on_resize(self) -> None:
        """What stands above them may have to give way."""
        self.post_message(self.Grown())

    def solve(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self._show(without(self._board, topic, time.monotonic()))

    def clear(self) -> None:
        """Take away what would go by itself."""
        self._show(tuple(shown for shown in self._board if shown.until is None))

    def _expire(self) -> None:
        self._show(without(self._board, "", time.monotonic()))

    def _show(self, board: tuple[Shown, ...]) -> None:
        if board == self._board:
            return
        self._board = board
        self.display = bool(board)
        # Where they take as many rows as before they were gone no resize tells of it.
        self.call_after_refresh(self.post_message, self.Grown())
        self.set_class(any(shown.level == "error" for shown in board), "-grave")
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        """A third click selects what the second one did: Textual would select all that stands in the same pane."""
        if event.chain > 1:
            event.prevent_default()
            self.text_select_all()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is selected, without the edge and the signs before it."""
        found = super().get_selection(selection)
        if found is None:
            return None
        glyphs = glyphs_of(self)
        signs = f" {glyphs.edge}{glyphs.caution}"
        return "\n".join(row.lstrip(signs) for row in found[0].split("\n")), found[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are at that width, which is not the widget's own before it has a place."""
        return len(self._rows(width))

    def render(self) -> Content:
        """The newest notices that fit, each with its advice under it."""
        return Content("\n").join(self._rows(self.size.width))

    def _rows(self, width: int) -> list[Content]:
        glyphs = glyphs_of(self)
        width = max(8, width - 6)
        rows: list[Content] = []
        for shown in reversed(self._board):
            if shown.more:
                rows += self._listed(shown, width)
                break
            style = {"info": "$accent", "warning": "$warn", "error": "$kind-error"}[shown.level]
            advice = _wrapped(shown.advice, width, MAX_ROWS - 1, glyphs.cut)
            text = _wrapped(shown.text, width, MAX_ROWS - len(advice), glyphs.cut)
            block = [Content.styled(row, "bold $ink-strong") for row in text]
            block += [Content.styled(row, "$ink") for row in advice]
            if len(rows) + len(block) > MAX_ROWS:
                break
            for index, row in enumerate(block):
                sign = "  " if index or shown.level == "info" else f"{glyphs.caution} "
                rows.append(
                    Content.assemble((glyphs.edge, style), " ", (sign, f"bold {style}"), row)
                )
        return rows

    def _listed(self, shown: Shown, width: int) -> list[Content]:
        """Several notices, each with a sign of its own; where there are too many, where the rest is to be read."""
        glyphs = glyphs_of(self)
        texts = (shown.text, *shown.more)
        each = max(1, LIST_ROWS // len(texts))
        n_shown = len(texts) if len(texts) <= LIST_ROWS else LIST_ROWS - 1
        rows: list[Content] = []
        for text in texts[:n_shown]:
            for index, line in enumerate(_wrapped(text, width, each, glyphs.cut)):
                sign = f"{glyphs.caution} " if not index and shown.level != "info" else "  "
                rows.append(
                    Content.assemble(
                        (glyphs.edge, "$warn"), " ", (sign, "bold $warn"), (line, "$ink-strong")
                    )
                )
        if n_shown < len(texts):
            left = f"    {len(texts) - n_shown} more; /notices lists all of them"
            rows.append(Content.assemble((glyphs.edge, "$warn"), (left[1:], "$ink")))
        return rows


def _wrapped(text: str, width: int, rows: int, ellipsis: str) -> list[str]:
    """The text in at most `rows` lines of `width` cells."""
    lines = wrap_words(text, width)
    if len(lines) > rows:
        lines = [*lines[: rows - 1], " ".join(lines[rows - 1 :])]
    return [cut(line, width, ellipsis) for line in lines]


# --- panes, and all of it


Place = Literal["timeline", "begun", "filter", "missed", "found"]
"""What the keys of the timeline do: act on its rows, write a filter (which is empty, finds something, or finds nothing), or
act on the rows that were found."""
_FRAME_KEYS: Mapping[Place, str] = {
    "timeline": "Enter preview  ? keys",
    "begun": "Esc all steps",
    "missed": "Esc all steps",
    "filter": "Enter go there  Esc all steps",
    "found": "Enter preview  Esc all steps",
}


@runtime_checkable
class ShowsNotices(Protocol):
    """A screen on which a notice can be seen."""

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice for a few seconds."""
        ...


class NoticingPane(Container):
    """A pane over whose last rows notices are shown."""

    _notices: Notices | None = None

    @property
    def notices(self) -> Notices:
        """The notices, put in their place with the first one."""
        if self._notices is None:
            self._notices = Notices()
            self.mount(self._notices)
        return self._notices

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        if self._notices is not None:
            self._notices.solve(topic)

    def clear_notices(self) -> None:
        """Take away what would go by itself."""
        if self._notices is not None:
            self._notices.clear()


class ChatPane(NoticingPane):
    """The chat.

    Args:
        transcript: all of it.
        new_menu: makes the menu of commands when a slash is typed first; None for none.
    """

    def __init__(
        self, transcript: Transcript, new_menu: Callable[[], CommandMenu] | None = None
    ) -> None:
        super().__init__(transcript, id="chat-pane")
        self._new_menu = new_menu
        self._menu: CommandMenu | None = None
        self._closed_for = ""
        """The text for which no menu is made: it was closed before there was one."""

    async def read(self, world_line: Widget) -> None:
        """Put a world line in front of the chat."""
        self.add_class("-reading")
        await self.mount(world_line)

    def end_reading(self, world_line: Widget) -> None:
        """Show the chat again."""
        self.remove_class("-reading")
        world_line.remove()

    @property
    def command(self) -> Command | None:
        """The command that is chosen in the menu; None while there is none."""
        return self._menu.chosen if self._menu is not None else None

    @property
    def menu(self) -> CommandMenu | None:
        """The menu while it has something to choose from."""
        return self._menu if self._menu is not None and self._menu.active else None

    def follow(self, text: str, offers: Sequence[Offer] | None = None) -> CommandMenu | None:
        """Show which commands the text in the prompt may become, or what is offered; returns the menu once there is one."""
        is_wanted = bool(offers) or (text.startswith("/") and text != self._closed_for)
        if self._menu is None and self._new_menu is not None and is_wanted:
            self._menu = self._new_menu()
            self.on_notices_grown()
            self.mount(self._menu)
        if self._menu is not None:
            self._menu.follow(text, offers)
        return self._menu

    def on_notices_grown(self) -> None:
        """The menu stands above the notices."""
        if self._menu is not None:
            notices = self._notices
            rows = notices.size.height if notices is not None and notices.display else 0
            self._menu.styles.margin = (0, 0, rows, 0)

    def close_menu(self, text: str) -> None:
        """Offer no command until the prompt holds another text than this."""
        self._closed_for = text
        if self._menu is not None:
            self._menu.close(text)


class TimelinePane(NoticingPane):
    """The place of the timeline: beside the chat, or floating over it."""

    def __init__(self) -> None:
        super().__init__(id="timeline-pane")
        self._timeline: Timeline | None = None

    def furnish(self, timeline: Timeline) -> None:
        """Put the timeline in its place."""
        self._timeline = timeline
        self.border_title = "Timeline"
        self.name_keys()
        self.mount(timeline)

    def on_unmount(self) -> None:
        """Let go of it."""
        self._timeline = None

    @property
    def has_keys(self) -> bool:
        """Whether the timeline has the focus."""
        return self._timeline is not None and self._timeline.has_focus

    @property
    def acts(self) -> bool:
        """Whether letters act on the rows of the timeline; else they are written, or any of them ends something."""
        timeline = self._timeline
        return timeline is not None and timeline.has_focus and not timeline.takes_any_letter

    @property
    def floats(self) -> bool:
        """Whether it stands over the chat now."""
        return self.has_class("-open") and self.screen.has_class("-overlay")

    @property
    def place(self) -> Place:
        """What the keys do there."""
        match self._timeline.filter_state if self._timeline is not None else "":
            case "typed":
                return "filter"
            case "kept":
                return "found"
            case "":
                return "timeline"
            case state:
                return state

    def name_keys(self) -> None:
        """Say in the frame what the keys do now."""
        self.border_subtitle = Content(_FRAME_KEYS[self.place])

    def open(self) -> None:
        """Show it, and give it the keys."""
        self.add_class("-open")
        self.settle()
        if self._timeline is not None:
            self._timeline.focus()

    def close(self) -> None:
        """Hide it where it floats."""
        self.remove_class("-open")
        self.settle()

    def settle(self) -> None:
        """Let the chat recede while this floats over it."""
        floats = self.floats
        for transcript in self.screen.query(Transcript):
            transcript.behind = floats


class SessionFrame:
    """The parts of a screen that shows a session.

    Args:
        screen: that has them.
        launch: how the app was started.
        size: of the terminal.
        heading: what the header says at first.
        transcript: the chat.
        new_menu: makes the menu of commands when a slash is typed first; None for none.

    Attributes:
        header: the first row.
        chat_pane: with the transcript.
        timeline_pane: empty until `furnish`.
        views: None until `furnish`.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        heading: Heading,
        transcript: Transcript,
        new_menu: Callable[[], CommandMenu] | None = None,
    ) -> None:
        self._screen = screen
        self._transcript = transcript
        self.header = Header(heading)
        self.chat_pane = ChatPane(transcript, new_menu)
        self.timeline_pane = TimelinePane()
        self._gauge_row = Container(id="gauge-row")
        self.views: Views | None = None
        draw_changed_rows(screen)
        screen.set_class(launch.config.glyphs == "ascii", "-ascii")
        # Before anything is styled or laid out, so that it need not be done twice.
        self.fit(size)

    def compose(self) -> Iterator[Widget]:
        """The parts, from the top."""
        yield self.header
        yield Container(self.chat_pane, self.timeline_pane, id="body")
        yield self._gauge_row

    def furnish(self, *style_sheets: str, broken: Report | None = None) -> Views:
        """Put timeline and gauge in their places.

        Args:
            style_sheets: those that the screen needs from now on beside those of the two, by name.
            broken: told what chat, timeline or gauge cannot take.
        """
        from kimi_tui.tui.views import Views

        add_sheets(self._screen, "timeline", "gauge", *style_sheets)
        views = self.views = Views(self._transcript, broken)
        self.timeline_pane.furnish(views.timeline)
        self._gauge_row.mount(views.gauge)
        self.fit(app_of(self._screen).size)
        return views

    def fit(self, size: Size) -> None:
        """Other sizes have other places for the timeline and less air."""
        floats = size.width < OVERLAY_BELOW
        # All at once: each change styles the whole screen anew.
        self._screen.update_classes(
            {
                "-overlay": floats,
                "-narrow": size.width < NARROW_BELOW,
                "-slim": size.width < SLIM_BELOW and not floats,
                "-broad": size.width >= BROAD_FROM,
                "-short": size.height < SHORT_BELOW,
            }
        )
        if self.views is not None:
            self.views.fit(timeline_width(size.width))
            self.timeline_pane.settle()
