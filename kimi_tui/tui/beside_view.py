"""The widget that shows an agent beside the current conversation in place of the chat: a banner, and its messages as they are streamed.

A future (`tui.futures.view`) and a sub-agent (`tui.subagent_view`) are shown by it; each has a banner and keys of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from kimi_tui.foreign_text import one_line
from kimi_tui.projection.blocks import Change
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.tui import formatting
from kimi_tui.tui.faults import report_of
from kimi_tui.tui.frame_rows import GAP, Hint, fit_hints, roomiest
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import MARGIN, Line, Span, in_rows, sides, spans_width
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.tui.world_line_view import within_margin

if TYPE_CHECKING:
    from kimi_tui.tui.pictures import LoadImage
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.wire.events import AgentChanged, EventRecord, FutureChanged

BesideAction = Literal["message", "stop", "page", "answer", "leave"]
"""The action of a key on the agent on view."""
BesidePlace = Literal["future", "ended future", "subagent", "ended subagent", "future subagent"]
"""The name of an agent on view for footer and help."""
_State = TypeVar("_State", bound="FutureChanged | AgentChanged")
_REMARK_ROWS = 4
_LEAST_NAME = 14
"""The cells of the first row that facts leave to the name of an agent."""


class BesideTranscript(Transcript):
    """The messages of an agent beside the current conversation. Subclasses bind keys that act on it to `act`."""

    FOCUS_ON_CLICK = True
    ANSWER_KEY: ClassVar[str] = "future.answer"
    """The name in `[keys]` of the action that goes to the waiting question. Its letter answers nothing, so it may be pressed twice."""

    class BesideActed(Message):
        """A key that acts on the agent on view was pressed."""

        def __init__(self, action: BesideAction) -> None:
            super().__init__()
            self.action: BesideAction = action

    def __init__(
        self, *, work_dir: str, keys: Mapping[str, str], load_image: LoadImage | None
    ) -> None:
        super().__init__(work_dir=work_dir, keys=keys, load_image=load_image, is_left=True)

    def action_act(self, action: BesideAction) -> None:
        """Post the chosen action; the action of leaving ends a search first."""
        if action == "leave" and self.is_searched:
            self.end_search()
        else:
            self.post_message(self.BesideActed(action))


def banner_rows(
    head: Sequence[Span],
    name: str,
    facts: Sequence[str],
    wordings: Sequence[Sequence[Hint]],
    width: int,
    glyphs: Glyphs,
) -> tuple[list[Span], list[Span]]:
    """Return the two rows over an agent: its sign, name, and facts, and the keys.

    Args:
        head: the sign and the kind of the agent.
        name: its name, cut where room is short.
        facts: what is known of it, the most important first; the last ones are left out where room is short.
        wordings: the keys, in wordings of which the longest one that fits is taken.
        width: the cells of a row.
        glyphs: the signs in use.
    """
    edge = Span(f"{glyphs.edge} ", "accent")
    left, told = [edge, *head], [*facts]
    while len(told) > 1 and spans_width(left) + len("   ".join(told)) + _LEAST_NAME > width:
        told.pop()
    said = "   ".join(told)
    room = width - spans_width(left) - len(said) - 6
    shown = formatting.cut(name, room, glyphs.cut) if room > 4 else ""
    first = sides([*left, Span(f"  {shown}", "ink")], [Span(f"{said}  ", "quiet")], width)
    keys: list[Span] = [edge, Span("  ")]
    for place, (key, meaning) in enumerate(fit_hints(roomiest(wordings, width - 6), width - 6)):
        keys += [
            Span(" " * GAP if place else "", "quiet"),
            Span(key, "ink"),
            Span(f" {meaning}", "quiet"),
        ]
    return first, keys


class BesideBanner(PaintedRows, Generic[_State]):
    """The banner over an agent: what a subclass says of it in `head`, and news of the current conversation.

    Args:
        state: the state of the agent.
        currency: the sign of amounts.
        widget_id: the id of the widget.

    Attributes:
        state: the state that is shown.
        news: what the current conversation does.
    """

    def __init__(self, state: _State, currency: str, *, widget_id: str) -> None:
        super().__init__(widget_id=widget_id)
        self.state = state
        self.news: list[Span] = []
        self._currency = currency

    def tell(self, state: _State, news: list[Span]) -> None:
        """Show a state, and news of the current conversation."""
        if (state, news) != (self.state, self.news):
            before = self.remark()
            self.state, self.news = state, news
            self.refresh(layout=self.remark() != before)

    def figures(self) -> list[str]:
        """Return what the agent has used, as far as it is known."""
        one = self.state
        used = [f"{formatting.tokens(one.tokens)} tokens"] if one.tokens else []
        return used + ([formatting.money(one.cost, self._currency)] if one.cost >= 0 else [])

    def head(self, width: int, glyphs: Glyphs) -> tuple[list[Span], list[Span]]:
        """Return the two rows about the agent (`banner_rows`)."""
        raise NotImplementedError

    def remark(self) -> str:
        """Return what else is to be known of the agent, as sentences; empty for nothing."""
        return ""

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows about the agent, what else is to be known of it, and news of the current line."""
        glyphs = glyphs_of(self)
        edge = Span(f"{glyphs.edge} ", "accent"), Span("  ")
        said = in_rows(one_line(self.remark()), width - MARGIN - 2, _REMARK_ROWS, glyphs.cut)
        return [
            *(Line(tuple(row), fill="lost-bg") for row in self.head(width, glyphs)),
            *(Line((*edge, Span(row, "ink"))) for row in said),
            Line(tuple(within_margin([*edge, *self.news], width))),
        ]


class BesideView(Vertical):
    """An agent in the place of the chat: its banner and its messages.

    Args:
        key: names the agent.
        banner: its banner.
        transcript: the widget of its messages.
        work_dir: the work folder; paths below it are shown relative to it.
        timeline: the widget of its checkpoints, which the pane of the timeline shows meanwhile; None for none.

    Attributes:
        session: its messages and checkpoints, reduced from its events.
    """

    def __init__(
        self,
        key: str,
        banner: BesideBanner[Any],
        transcript: BesideTranscript,
        work_dir: str,
        timeline: Timeline | None = None,
    ) -> None:
        super().__init__()
        self.key = key
        self.transcript = transcript
        self.timeline = timeline
        self.session = SessionModel(work_dir)
        self._banner = banner

    WAY_BACK: ClassVar[str] = ""
    """The sentence about where Esc leads; empty if that is the current conversation."""

    @property
    def place(self) -> BesidePlace:
        """The part of the screen for footer and help."""
        return "future"

    def compose(self) -> ComposeResult:
        """Yield banner and messages."""
        yield self._banner
        yield self.transcript

    def on_mount(self) -> None:
        """Show the messages of the session that the events are reduced to."""
        self.transcript.show_model(self.session.chat)

    def play(self, records: Sequence[EventRecord], *, live: bool | None = None) -> None:
        """Show events.

        Args:
            records: the events.
            live: whether they may move something; None: by their age.
        """
        report, left = report_of(self), iter(records)
        is_moved = False

        def take(record: EventRecord) -> Change:
            nonlocal is_moved
            del record
            applied = self.session.apply(next(left), report)
            is_moved |= applied.timeline
            return applied.chat

        try:
            self.transcript.apply(records, live=live, take=take)
        except Exception as error:
            report(error)
            for record in left:
                is_moved |= self.session.apply(record, report).timeline
        if is_moved and self.timeline is not None:
            self.timeline.changed(motion=live is not False)

    def on_transcript_rebuild_needed(self, event: Transcript.RebuildNeeded) -> None:
        """Stop the message: the events of an agent beside the conversation are read once."""
        event.stop()
