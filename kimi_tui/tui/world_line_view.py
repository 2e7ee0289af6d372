"""The widget that shows a world line in place of the chat: a banner, and its messages, read-only and with a grey edge."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from kimi_tui.tui import formatting
from kimi_tui.tui.faults import each, report_of
from kimi_tui.tui.frame_rows import GAP, fit_hints, roomiest
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import Line, Span, cells, spans_width
from kimi_tui.tui.slices import in_slices
from kimi_tui.tui.timeline.layout import left_by
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import LiveLineActivity
    from kimi_tui.session.world_lines import WorldLine
    from kimi_tui.tui.pictures import LoadImage
    from kimi_tui.wire.events import EventRecord


LineAction = Literal["jump", "compare", "send", "leave"]
"""The action of a key on the visible world line."""
CHUNK = 16
"""The number of events that are read in one go."""
SLICE_S = 0.003
"""Seconds of a time slice in which events are read; keys are handled in between."""
_READ_ONLY = "   read-only"
_LEAST_NAME = 16
_ENDS = {"done": "is done", "interrupted": "was stopped", "rejected": "stopped when you refused"}
KEYS = (
    ("j", "switch here"),
    ("c", "compare"),
    ("s", "copy message to current"),
    ("Esc", "back to current"),
)
_SHORT_KEYS = (*KEYS[:2], ("s", "copy message"), KEYS[3])
GLANCE_KEYS = (("w", "read world line"), ("Esc", "back to current"))
"""The keys of the timeline while one of the line's rows is selected there."""


class WorldLineTranscript(Transcript):
    """The transcript of a world line, read-only, with keys that act on the line."""

    FOCUS_ON_CLICK = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "act('jump')", "Switch to here", id="line.jump", show=False),
        Binding("c", "act('compare')", "Compare", id="line.compare", show=False),
        Binding("s", "act('send')", "Copy to current", id="line.send", show=False),
        Binding("tab", "choose(1)", "Next message", id="line.next", show=False),
        Binding("shift+tab", "choose(-1)", "Previous message", id="line.before", show=False),
        Binding("escape", "act('leave')", "Back to current", id="line.leave", show=False),
    ]

    class ActionChosen(Message):
        """A key that acts on this world line was pressed."""

        def __init__(self, action: LineAction) -> None:
            super().__init__()
            self.action: LineAction = action

    def __init__(
        self, *, work_dir: str, keys: Mapping[str, str], load_image: LoadImage | None
    ) -> None:
        super().__init__(work_dir=work_dir, keys=keys, load_image=load_image, is_left=True)

    def action_act(self, action: LineAction) -> None:
        """Post the chosen action; the action of leaving ends a search first."""
        if action == "leave" and self.is_searched:
            self.end_search()
        else:
            self.post_message(self.ActionChosen(action))


class Banner(PaintedRows):
    """The banner over a world line: its name, and the keys that act on it."""

    def __init__(self, info: WorldLine) -> None:
        super().__init__()
        self._info = info
        self._line_name = ""
        self._news: list[Span] = []
        self._is_read = True

    def offer(self, *, read: bool) -> None:
        """Show the keys of a line that is read, or those of the timeline while the line is only previewed there."""
        self._is_read = read
        self.refresh()

    def tell(self, name: str, news: list[Span]) -> None:
        """Show the name of the line, and news of the live line."""
        if (name, news) != (self._line_name, self._news):
            self._line_name, self._news = name, news
            self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the name and reason of the line, the keys, and news of the live line."""
        glyphs = glyphs_of(self)
        keys = KEYS if self._is_read else GLANCE_KEYS
        rows = banner_spans(self._info, self._line_name, width, glyphs, datetime.now(UTC), keys)
        news = [Span(f"{glyphs.edge} ", "lost"), Span("  ", "quiet"), *self._news]
        head = [Line(tuple(row), fill="lost-bg") for row in rows]
        return [*head, Line(tuple(within_margin(news, width)))]


TOLD_AFTER_S = 0.2
"""Seconds after which an empty pane says that the line is being read; before, the words would only flicker."""


class WorldLineView(Vertical):
    """A world line in the place of the chat: its banner and its messages.

    Args:
        info: the facts about the line.
        work_dir: the work folder; paths below it are shown relative to it.
        keys: the configured keys, by action.
        load_image: reads an image; None if images are only named.
    """

    def __init__(
        self,
        info: WorldLine,
        work_dir: str,
        keys: Mapping[str, str],
        load_image: LoadImage | None = None,
    ) -> None:
        super().__init__()
        self.info = info
        self.banner = Banner(info)
        self.transcript = WorldLineTranscript(work_dir=work_dir, keys=keys, load_image=load_image)

    def compose(self) -> ComposeResult:
        """Yield banner and messages."""
        yield self.banner
        yield self.transcript

    async def show(self, records: Sequence[EventRecord], checkpoint_id: int) -> None:
        """Show the line when all of it is read, at a checkpoint if one is given (-1: at its end)."""
        from kimi_tui.projection.transcript import TranscriptModel
        from kimi_tui.tui.views import UnshownChat

        transcript, report = self.transcript, report_of(self)
        await transcript.placed()
        model, chat = TranscriptModel(work_dir=transcript.work_dir), UnshownChat(transcript)

        def take(record: EventRecord) -> None:
            if (first := model.apply(record).first) is not None:
                chat.changed(model.blocks, first)

        def steps() -> Generator[None]:
            for start in range(0, len(records), CHUNK):
                each(records[start : start + CHUNK], take, report)
                yield
            yield from chat.settle(model.blocks)

        def tell() -> None:
            transcript.reading = f"Reading {formatting.line_words(self.info.n, '')}"

        telling = self.set_timer(TOLD_AFTER_S, tell)
        try:
            await in_slices(steps(), SLICE_S)
        finally:
            telling.stop()
        transcript.reading = ""
        transcript.show_model(model, chat.flow)
        if checkpoint_id >= 0:
            transcript.show_checkpoint(checkpoint_id)


def left_words(info: WorldLine, now: datetime) -> str:
    """Return how and when a line was left: `created by your rewind to #4, 2 h ago`."""
    why = left_by(info.reason)
    where = ""
    if info.reason in ("rewind", "dmail") and info.left_by.checkpoint_id >= 0:
        where = f" to #{info.left_by.checkpoint_id}"
    ago = _ago(info.left_by.at, now)
    return f"created by {why}{where}{', ' if ago else ''}{ago}"


def left_when(info: WorldLine, now: datetime) -> str:
    """Return when a line was left: `created 2 h ago`; empty if that is not known."""
    ago = _ago(info.left_by.at, now)
    return f"created {ago}" if ago else ""


def _ago(at: str, now: datetime) -> str:
    then = formatting.time_of(at)
    return formatting.ago(formatting.age(then.astimezone(), now.astimezone())) if then else ""


def banner_spans(
    info: WorldLine,
    name: str,
    width: int,
    glyphs: Glyphs,
    now: datetime,
    said: Sequence[tuple[str, str]] = KEYS,
) -> tuple[list[Span], list[Span]]:
    """Return the two rows over a world line: its name and the reason why it was left, and the keys."""
    edge = Span(f"{glyphs.edge} ", "lost")
    left: list[Span] = [
        edge,
        Span(f"{glyphs.lost} ", "lost"),
        Span(f"World line {info.n}", "strong"),
    ]
    why = f"   {left_words(info, now)}"
    room = width - spans_width(left) - 4
    least = min(cell_len(name), _LEAST_NAME)
    forms = ((_READ_ONLY, why), ("", why), (_READ_ONLY, ""))
    rest = (form for form in forms if cell_len("".join(form)) + least <= room)
    read_only, why = next(rest, ("", ""))
    name = formatting.cut(name, room - cell_len(read_only + why), glyphs.cut)
    left += [Span(f"  {name}" if name else "", "ink"), Span(read_only, "quiet")]
    left.append(Span(why.rjust(width - 2 - spans_width(left)) if why else "", "quiet"))
    keys: list[Span] = [edge, Span("  ", "quiet")]
    wordings = (KEYS, _SHORT_KEYS) if said is KEYS else (said,)
    for place, (key, meaning) in enumerate(fit_hints(roomiest(wordings, width - 6), width - 6)):
        keys += [
            Span(" " * GAP if place else "", "quiet"),
            Span(key, "ink"),
            Span(f" {meaning}", "quiet"),
        ]
    return left, keys


def within_margin(spans: Sequence[Span], width: int) -> list[Span]:
    """Return a row's spans without the last ones, as far as they do not fit before the margin."""
    shown: list[Span] = []
    used = 0
    for span in spans:
        used += cells(span.text)
        if used > width - 2:
            break
        shown.append(span)
    return shown


def news_spans(news: LiveLineActivity, glyphs: Glyphs, *, running: bool, asks: bool) -> list[Span]:
    """Return the banner's words on the live line; empty if nothing happens there.

    Args:
        news: the activity.
        glyphs: the signs in use.
        running: whether the agent works.
        asks: whether the agent waits for an answer of the user.
    """
    parts: list[list[Span]] = []
    if asks:
        parts.append([Span("!", "accent"), Span(" the agent is waiting for your answer", "ink")])
    if news.dmail >= 0:
        saved = f", {glyphs.minus}{formatting.tokens(news.saved)} tokens" if news.saved else ""
        parts.append([Span(glyphs.dmail, "dmail"), Span(f" D-Mail to #{news.dmail}{saved}", "ink")])
    if news.compacted:
        parts.append([Span(glyphs.compaction, "compaction"), Span(" compacted", "ink")])
    steps = f", {formatting.counted(news.steps, 'step')}" if news.steps else ""
    if running and not asks:
        parts.append([Span(glyphs.running, "accent"), Span(f" the agent works{steps}", "quiet")])
    elif news.ended and not running:
        how = _ENDS.get(news.ended, "stopped at an error")
        parts.append([Span(glyphs.turn, "accent"), Span(f" the agent {how}{steps}", "quiet")])
    if not parts:
        return []
    spans: list[Span] = [Span("Current", "quiet")]
    for part in parts:
        spans += [Span(" " * GAP, "quiet"), *part]
    return spans
