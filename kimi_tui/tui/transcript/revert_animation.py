"""The animation of a revert in the transcript: the dropped rows fade from the bottom up, then close.

The transcript is already in its final state; these rows are drawn over it for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.projection.blocks import Block, DMailBlock, ToolBlock, UserBlock
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.painter import FADED
from kimi_tui.tui.rows import BLANK, COLOUR, Line, Span, style_parts
from kimi_tui.tui.transcript.layout import rows_of
from kimi_tui.tui.transcript.viewport import Flow

DMAIL_S = 0.9
SHORT_S = 0.3


@dataclass(frozen=True, slots=True)
class RevertAnimation:
    """The rows that go, from row `start` on. `kept` of them (the D-Mail) stay bright to the end.

    The rows `staying` are not undone: what the user said or pinned.
    `after` are the rows that stand in their place when all is over, where that is known.
    """

    start: int
    rows: tuple[Line, ...]
    kept: int
    is_dmail: bool
    after: tuple[Line, ...] = ()
    staying: frozenset[int] = frozenset()

    @property
    def duration_s(self) -> float:
        """How long all of it takes."""
        return DMAIL_S if self.is_dmail else SHORT_S

    def row(self, row: int, progress: float, glyphs: Glyphs) -> Line:
        """What stands in a row at or below `start` when this share of the time is over."""
        index = row - self.start
        count = len(self.rows)
        quiet, dimming = (1 / 6, 5 / 9) if self.is_dmail else (0.0, 0.7)
        going = count - self.kept
        closing = (progress - quiet - dimming) / (1 - quiet - dimming)
        if closing > 0:
            return self._closing(index, closing, glyphs)
        if not 0 <= index < count:
            return BLANK
        if index in self.staying:
            return self.rows[index]
        if index >= going:
            return self._marked(self.rows[index], glyphs) if progress > quiet else self.rows[index]
        dimmed = going * min(1.0, max(0.0, progress - quiet) / dimming)
        return (
            self._faded(self.rows[index], glyphs) if index >= going - dimmed else self.rows[index]
        )

    def _closing(self, index: int, share: float, glyphs: Glyphs) -> Line:
        """The card stands, and what it folds away runs in under it."""
        if 0 <= index < len(self.after):
            return self.after[index]
        left = max(0, len(self.rows) - self.kept - len(self.after)) * (1 - share)
        if 0 <= index < len(self.rows) and index < len(self.after) + left:
            return self._faded(self.rows[index], glyphs)
        return BLANK

    def _edge(self, glyphs: Glyphs) -> Span:
        return Span(glyphs.edge, "dmail" if self.is_dmail else "lost")

    def _marked(self, line: Line, glyphs: Glyphs) -> Line:
        return line._replace(spans=(self._edge(glyphs), *_without_first(line.spans)), hit="")

    def _faded(self, line: Line, glyphs: Glyphs) -> Line:
        spans = tuple(faded_span(span) for span in _without_first(line.spans))
        return line._replace(spans=(self._edge(glyphs), *spans), hit="")


def faded_span(span: Span) -> Span:
    """The run in its faded colours, its ground gone; one of a picture as it is."""
    ink, flags, _ = style_parts(span.style)
    if ink.startswith(COLOUR):
        return span
    return Span(span.text, f"{ink}/{flags}{FADED}")


def _without_first(spans: Sequence[Span]) -> tuple[Span, ...]:
    if not spans:
        return ()
    first, *rest = spans
    shorter = Span(first.text[1:], first.style)
    return (shorter, *rest) if shorter.text else tuple(rest)


def revert_animation_of(
    flow: Flow, first: int, top: int, height: int, remains: Sequence[Block]
) -> RevertAnimation | None:
    """The motion of what still stands in `flow` from block `first` on; None where nothing of it is visible.

    Args:
        flow: the rows as they were before.
        first: the first block that goes.
        top, height: the visible rows.
        remains: what stands there now; a D-Mail among it decides the kind of motion.
    """
    start = max(top, flow.start(min(first, len(flow.views))))
    rows: list[Line] = []
    kept = 0
    is_dmail = any(isinstance(block, DMailBlock) for block in remains)
    staying: set[int] = set()
    for view, _, line in flow.lines(start, min(flow.height, top + height)):
        rows.append(line)
        block = view.block if view is not None else None
        kept += isinstance(block, ToolBlock) and block.tool == "SendDMail"
        if is_dmail and block is not None and (block.pinned or isinstance(block, UserBlock)):
            staying.add(len(rows) - 1)
    if not rows:
        return None
    after: list[Line] = []
    if start == flow.start(min(first, len(flow.views))):
        for block in remains:
            if first or after:
                after.append(BLANK)
            after.extend(rows_of(block, flow.room))
    return RevertAnimation(
        start,
        tuple(rows),
        kept if is_dmail else 0,
        is_dmail,
        tuple(after[:height]),
        frozenset(staying),
    )
