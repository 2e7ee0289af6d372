"""The frame of every screen that shows a session: header, chat beside timeline, gauge and footer.

The first frame on the screen has header and chat only; timeline and gauge are imported when first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from kimi_tui.agent_parts import MODE_TITLES, NO_SANDBOX
from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import Launch
from kimi_tui.tui.formatting import cut, path
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.notices import NoticingPane
from kimi_tui.tui.screens import add_sheets, app_of
from kimi_tui.tui.textual_patches.compositor import draw_changed_rows
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.soul.approval import Mode
    from kimi_tui.tui.faults import Report
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.views import Views

NARROW_BELOW = 80
SHORT_BELOW = 30
"""Height of the screen in rows below which margins are left out."""
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
    """Shown instead of the mode while something is only read; empty to show the mode."""
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


def fit_heading(
    heading: HeaderText, width: int, ellipsis: str = "…", caution: str = "!"
) -> HeaderParts:
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
    if text.isprintable():
        return text

    return one_line(text)


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
    return HeaderText(folder=short(launch.work_dir), model=model, mode=launch.mode)


class Header(Widget):
    """The first row of the main screen."""

    heading: reactive[HeaderText] = reactive(HeaderText())

    class PartClicked(Message):
        """The model or the mode was clicked."""

        def __init__(self, part: Literal["model", "mode"]) -> None:
            super().__init__()
            self.part: Literal["model", "mode"] = part

    def __init__(self, heading: HeaderText) -> None:
        super().__init__()
        self.set_reactive(Header.heading, heading)

    def render(self) -> Content:
        """Return the row, fitted to its width."""
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

    def on_click(self, event: events.Click) -> None:
        """Post which part was clicked."""
        width = self.content_size.width
        shown = fit_heading(self.heading, width, glyphs_of(self).cut, glyphs_of(self).caution)
        at = event.x - self.content_region.x + self.region.x
        mode_at = width - cell_len(shown.mode)
        model_at = mode_at - GAP - cell_len(shown.model)
        if at >= mode_at:
            self.post_message(self.PartClicked("mode"))
        elif shown.model and model_at <= at < mode_at - GAP:
            self.post_message(self.PartClicked("model"))


# --- footer, the last row


Hint = tuple[str, str]
GAP = 3
WAY_OUT = "Esc"


def fit_hints(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    """Return the hints that fit into `width` cells, in order. The one that leaves the screen takes precedence over the others."""
    shown = _from_first(hints, width)
    out = next((hint for hint in hints if hint[0] == WAY_OUT), None)
    if out is None or out in shown or not _from_first([out], width):
        return shown
    others = [hint for hint in hints if hint is not out]
    return (*_from_first(others, width - _cells(out) - GAP), out)


def roomiest(wordings: Sequence[Sequence[Hint]], width: int) -> Sequence[Hint]:
    """Return the first of several wordings, longest first, whose hints all fit into `width` cells; else the last."""
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
    """Return a row of at most `width` cells with as many hints as fit."""
    parts: list[tuple[str, str] | str] = []
    for key, meaning in fit_hints(hints, width):
        parts += [" " * GAP if parts else "", (key, "$ink"), " ", (meaning, "$ink-quiet")]
    return Content.assemble(*parts)


class Footer(Widget):
    """The last row of a screen, with its keys. It is empty while a modal screen, which shows its own keys, covers this one."""

    hints: reactive[tuple[Hint, ...]] = reactive(())
    urgent: reactive[str] = reactive("")
    """A short message shown instead of the hints; empty for none."""

    class HintClicked(Message):
        """A hint was clicked; `key` is the displayed key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def on_click(self, event: events.Click) -> None:
        """Post which hint was clicked."""
        at = event.x - self.content_region.x + self.region.x
        for hint in () if self.urgent else fit_hints(self.hints, self.content_size.width):
            if 0 <= at < _cells(hint):
                self.post_message(self.HintClicked(hint[0]))
            at -= _cells(hint) + GAP

    def on_mount(self) -> None:
        """Watch the screen stack, to know when another screen covers this one."""
        self.watch(self.screen, "stack_updates", self._covered, init=False)

    def _covered(self) -> None:
        self.refresh()

    def render(self) -> Content:
        """Return as many hints as fit."""
        if self.urgent:
            return Content.styled(self.urgent, "bold $ink-strong")
        if app_of(self).screen is not self.screen:
            return Content("")
        return hint_row(self.hints, self.content_size.width)


# --- panes and frame


Place = Literal["timeline", "begun", "filter", "missed", "found"]
"""The part of the timeline on which keys act: its rows (`timeline`), an empty filter being typed (`begun`), a filter with
matches (`filter`) or without (`missed`), or the rows of a kept filter (`found`).
"""
_FRAME_KEYS: Mapping[Place, str] = {
    "timeline": "Enter preview  ? keys",
    "begun": "Esc show all steps",
    "missed": "Esc show all steps",
    "filter": "Enter go to the step  Esc show all steps",
    "found": "Enter preview  Esc show all steps",
}


class ChatPane(NoticingPane):
    """The pane of the chat, with notices over its last rows.

    Args:
        transcript: the chat.
    """

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, id="chat-pane")
        self._menu: Widget | None = None

    async def read(self, world_line: Widget) -> None:
        """Show a world line instead of the chat."""
        self.add_class("-reading")
        await self.mount(world_line)

    def end_reading(self, world_line: Widget) -> None:
        """Remove a world line and show the chat again."""
        self.remove_class("-reading")
        world_line.remove()

    def put_menu(self, menu: Widget) -> None:
        """Mount the completion menu of the prompt over the last rows of the pane."""
        self._menu = menu
        self.on_notices_height_changed()
        self.mount(menu)

    def on_notices_height_changed(self) -> None:
        """Move the completion menu above the notices."""
        if self._menu is not None:
            rows = self.notices.n_rows if self.notices is not None else 0
            self._menu.styles.margin = (0, 0, rows, 0)


class TimelinePane(NoticingPane):
    """The pane of the timeline: beside the chat, or floating over it on a narrow screen."""

    def __init__(self) -> None:
        super().__init__(id="timeline-pane")
        self._timeline: Timeline | None = None

    def mount_timeline(self, timeline: Timeline) -> None:
        """Mount the timeline in the pane."""
        self._timeline = timeline
        self.border_title = "Timeline"
        self.name_keys()
        self.mount(timeline)

    def on_unmount(self) -> None:
        """Drop the timeline: Textual may keep the pane alive longer than it shows it."""
        self._timeline = None

    @property
    def has_keys(self) -> bool:
        """Whether the timeline has the focus."""
        return self._timeline is not None and self._timeline.has_focus

    @property
    def acts(self) -> bool:
        """Whether letters are keys of the timeline; they are not while a filter is typed, or the list of keys is shown."""
        timeline = self._timeline
        return timeline is not None and timeline.has_focus and not timeline.takes_any_letter

    @property
    def needle(self) -> str:
        """The text of the filter that is typed; empty for none."""
        return self._timeline.needle if self._timeline is not None else ""

    def end_filter(self) -> None:
        """Show all rows of the timeline again."""
        if self._timeline is not None:
            self._timeline.end_filter()

    @property
    def floats(self) -> bool:
        """Whether the pane is shown floating over the chat now."""
        return self.has_class("-open") and self.screen.has_class("-overlay")

    @property
    def place(self) -> Place:
        """The part of the pane on which keys act now."""
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
        """Show the present keys in the border of the floating pane."""
        self.border_subtitle = Content(_FRAME_KEYS[self.place])

    def open(self) -> None:
        """Show the pane and focus the timeline."""
        self.add_class("-open")
        self.settle()
        if self._timeline is not None:
            self._timeline.focus()

    def close(self) -> None:
        """Hide the pane if it floats."""
        self.remove_class("-open")
        self.settle()

    def settle(self) -> None:
        """Dim the colours of the chat while the pane floats over it."""
        floats = self.floats
        for transcript in self.screen.query(Transcript):
            transcript.behind = floats


class SessionFrame:
    """The widgets of a screen that shows a session, and their places.

    Args:
        screen: the screen.
        launch: how the app was started.
        size: the size of the terminal in cells.
        heading: the initial content of the header.
        transcript: the chat.

    Attributes:
        header: the first row.
        chat_pane: the pane with the transcript.
        timeline_pane: the pane of the timeline, which is empty until `mount_views`.
        views: chat, timeline and gauge; None until `mount_views`.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        heading: HeaderText,
        transcript: Transcript,
    ) -> None:
        self._screen = screen
        self._transcript = transcript
        self.header = Header(heading)
        self.chat_pane = ChatPane(transcript)
        self.timeline_pane = TimelinePane()
        self._gauge_row = Container(id="gauge-row")
        self.views: Views | None = None
        draw_changed_rows(screen)
        screen.set_class(launch.config.glyphs == "ascii", "-ascii")
        # The size is set before anything is styled or laid out, so that this happens only once.
        self.fit(size)

    def compose(self) -> Iterator[Widget]:
        """Yield the parts, from the top."""
        yield self.header
        yield Container(self.chat_pane, self.timeline_pane, id="body")
        yield self._gauge_row

    def mount_views(
        self,
        *style_sheets: str,
        broken: Report | None = None,
        cost_words: Callable[[], str] = str,
    ) -> Views:
        """Import and mount timeline and gauge.

        Args:
            style_sheets: names of further style sheets that the screen needs from now on.
            broken: called with an exception that chat, timeline or gauge raises for an event.
            cost_words: returns what the session has cost so far, in words; empty if no prices are set.
        """
        from kimi_tui.tui.views import Views

        add_sheets(self._screen, "timeline", "gauge", *style_sheets)
        views = self.views = Views(self._transcript, broken, cost_words)
        self.timeline_pane.mount_timeline(views.timeline)
        self._gauge_row.mount(views.gauge)
        self.fit(app_of(self._screen).size)
        return views

    def fit(self, size: Size) -> None:
        """Place the timeline beside or over the chat, and set the margins, for a size of the screen in cells."""
        floats = size.width < OVERLAY_BELOW
        # All classes are set at once, as each change styles the whole screen anew.
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
