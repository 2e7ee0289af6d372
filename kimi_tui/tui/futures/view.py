"""The widget that shows a running future in place of the chat: a banner, and its messages as they are streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from kimi_tui.projection.futures import future_name, model_words, state_words
from kimi_tui.tui.beside_view import (
    BesideBanner,
    BesidePlace,
    BesideTranscript,
    BesideView,
    banner_rows,
)
from kimi_tui.tui.frame_rows import Hint
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline.layout import future_sign

if TYPE_CHECKING:
    from kimi_tui.tui.pictures import LoadImage
    from kimi_tui.wire.events import FutureChanged

KEYS: tuple[Hint, ...] = (
    ("m", "send it a message"),
    ("x", "stop it"),
    ("c", "all futures side by side"),
    ("Esc", "back to current"),
)
_SHORT_KEYS: tuple[Hint, ...] = (("m", "message"), ("x", "stop"), ("c", "side by side"), KEYS[3])
_ENDED_KEYS: tuple[Hint, ...] = KEYS[2:]


class FutureTranscript(BesideTranscript):
    """The messages of a future, with keys that act on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "act('message')", "Send it a message", id="future.message", show=False),
        Binding("x", "act('stop')", "Stop it", id="future.stop", show=False),
        Binding("c", "act('page')", "Side by side", id="future.page", show=False),
        Binding("r", "act('answer')", "Go to the question", id="future.answer", show=False),
        Binding("tab", "choose(1)", "Next message", id="future.next", show=False),
        Binding("shift+tab", "choose(-1)", "Previous message", id="future.before", show=False),
        Binding("escape", "act('leave')", "Back to current", id="future.leave", show=False),
    ]


class FutureBanner(BesideBanner["FutureChanged"]):
    """The banner over a future: its name, what it does, and the keys that act on it."""

    def __init__(self, state: FutureChanged, currency: str) -> None:
        super().__init__(state, currency, widget_id="future-banner")

    def head(self, width: int, glyphs: Glyphs) -> tuple[list[Span], list[Span]]:
        """Return the name and state of the future with its figures, and the keys."""
        one = self.state
        facts = [state_words(one), model_words(one), *self.figures()]
        return banner_rows(
            [future_sign(one, glyphs), Span(f" Future {one.number}", "strong")],
            future_name(one),
            facts,
            (_ENDED_KEYS,) if one.is_over else (KEYS, _SHORT_KEYS),
            width,
            glyphs,
        )


class FutureView(BesideView):
    """A future in the place of the chat.

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
        self.banner = FutureBanner(state, currency)
        transcript = FutureTranscript(work_dir=work_dir, keys=keys, load_image=load_image)
        super().__init__(state.key, self.banner, transcript, work_dir)

    @property
    def place(self) -> BesidePlace:
        """The part of the screen for footer and help."""
        return "ended future" if self.banner.state.is_over else "future"
