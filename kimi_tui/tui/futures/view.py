"""The widget that shows a running future in place of the chat: a banner, and its messages as they are streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from kimi_tui.projection.blocks import Change
from kimi_tui.projection.futures import future_name, model_words, state_words
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.tui import formatting
from kimi_tui.tui.faults import report_of
from kimi_tui.tui.frame_rows import GAP, Hint, fit_hints, roomiest
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import Line, Span, sides, spans_width
from kimi_tui.tui.timeline.layout import future_sign
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.tui.world_line_view import within_margin

if TYPE_CHECKING:
    from kimi_tui.tui.pictures import LoadImage
    from kimi_tui.wire.events import EventRecord, FutureChanged

FutureAction = Literal["message", "stop", "page", "leave"]
"""The action of a key on the visible future."""
KEYS: tuple[Hint, ...] = (
    ("m", "send it a message"),
    ("x", "stop it"),
    ("c", "all futures side by side"),
    ("Esc", "back to current"),
)
_SHORT_KEYS: tuple[Hint, ...] = (("m", "message"), ("x", "stop"), ("c", "side by side"), KEYS[3])
_ENDED_KEYS: tuple[Hint, ...] = KEYS[2:]


class FutureTranscript(Transcript):
    """The messages of a future, with keys that act on it."""

    FOCUS_ON_CLICK = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "act('message')", "Send it a message", id="future.message", show=False),
        Binding("x", "act('stop')", "Stop it", id="future.stop", show=False),
        Binding("c", "act('page')", "Side by side", id="future.page", show=False),
        Binding("tab", "choose(1)", "Next message", id="future.next", show=False),
        Binding("shift+tab", "choose(-1)", "Previous message", id="future.before", show=False),
        Binding("escape", "act('leave')", "Back to current", id="future.leave", show=False),
    ]

    class FutureActed(Message):
        """A key that acts on this future was pressed."""

        def __init__(self, action: FutureAction) -> None:
            super().__init__()
            self.action: FutureAction = action

    def __init__(
        self, *, work_dir: str, keys: Mapping[str, str], load_image: LoadImage | None
    ) -> None:
        super().__init__(work_dir=work_dir, keys=keys, load_image=load_image, is_left=True)

    def action_act(self, action: FutureAction) -> None:
        """Post the chosen action; the action of leaving ends a search first."""
        if action == "leave" and self.is_searched:
            self.end_search()
        else:
            self.post_message(self.FutureActed(action))


class FutureBanner(PaintedRows):
    """The banner over a future: its name, what it does, and the keys that act on it.

    Args:
        state: the state of the future.
        currency: the sign of amounts.
    """

    def __init__(self, state: FutureChanged, currency: str) -> None:
        super().__init__(widget_id="future-banner")
        self._state = state
        self._currency = currency
        self._news: list[Span] = []

    def tell(self, state: FutureChanged, news: list[Span]) -> None:
        """Show a state, and news of the current line."""
        if (state, news) != (self._state, self._news):
            self._state, self._news = state, news
            self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the name and state of the future, the keys, and news of the current line."""
        glyphs = glyphs_of(self)
        head = banner_rows(self._state, width, glyphs, self._currency)
        news = [Span(f"{glyphs.edge} ", "accent"), Span("  "), *self._news]
        return [
            *(Line(tuple(row), fill="lost-bg") for row in head),
            Line(tuple(within_margin(news, width))),
        ]


def banner_rows(
    one: FutureChanged, width: int, glyphs: Glyphs, currency: str
) -> tuple[list[Span], list[Span]]:
    """Return the two rows over a future: its number, name, state and figures, and the keys."""
    edge = Span(f"{glyphs.edge} ", "accent")
    left = [edge, future_sign(one, glyphs), Span(f" Future {one.number}", "strong")]
    facts = [state_words(one), model_words(one)]
    facts += [f"{formatting.tokens(one.tokens)} tokens"] if one.tokens else []
    facts += [formatting.money(one.cost, currency)] if one.cost >= 0 else []
    while len(facts) > 1 and spans_width(left) + len("   ".join(facts)) + 14 > width:
        facts.pop()
    said = "   ".join(facts)
    room = width - spans_width(left) - len(said) - 6
    name = formatting.cut(future_name(one), room, glyphs.cut) if room > 4 else ""
    first = sides([*left, Span(f"  {name}", "ink")], [Span(f"{said}  ", "quiet")], width)
    keys: list[Span] = [edge, Span("  ")]
    wordings = (_ENDED_KEYS,) if one.is_over else (KEYS, _SHORT_KEYS)
    for place, (key, meaning) in enumerate(fit_hints(roomiest(wordings, width - 6), width - 6)):
        keys += [
            Span(" " * GAP if place else "", "quiet"),
            Span(key, "ink"),
            Span(f" {meaning}", "quiet"),
        ]
    return first, keys


class FutureView(Vertical):
    """A future in the place of the chat: its banner and its messages.

    Args:
        state: its state.
        currency: the sign of amounts.
        work_dir: the work folder; paths below it are shown relative to it.
        keys: the configured keys, by action.
        load_image: reads an image; None if images are only named.
    """

    def __init__(
        self,
        state: FutureChanged,
        currency: str,
        work_dir: str,
        keys: Mapping[str, str],
        load_image: LoadImage | None = None,
    ) -> None:
        super().__init__()
        self.key = state.key
        self.banner = FutureBanner(state, currency)
        self.transcript = FutureTranscript(work_dir=work_dir, keys=keys, load_image=load_image)
        self._session = SessionModel(work_dir)

    def compose(self) -> ComposeResult:
        """Yield banner and messages."""
        yield self.banner
        yield self.transcript

    def on_mount(self) -> None:
        """Show the messages of the session that the events are reduced to."""
        self.transcript.show_model(self._session.chat)

    def play(self, records: Sequence[EventRecord], *, live: bool | None = None) -> None:
        """Show events.

        Args:
            records: the events.
            live: whether they may move something; None: by their age.
        """
        report, left = report_of(self), iter(records)

        def take(record: EventRecord) -> Change:
            del record
            return self._session.apply(next(left), report).chat

        try:
            self.transcript.apply(records, live=live, take=take)
        except Exception as error:
            report(error)
            for record in left:
                self._session.apply(record, report)

    def on_transcript_rebuild_needed(self, event: Transcript.RebuildNeeded) -> None:
        """Stop the message: the events of a future are read once."""
        event.stop()
