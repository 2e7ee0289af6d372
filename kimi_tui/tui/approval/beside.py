"""The parts of an approval beside its detail, each in a few rows; what is longer stands whole in the detail, to be read."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from kimi_tui.tui.approval.drawing import place_rows, question_rows
from kimi_tui.tui.approval.model import Choice, counts, visible
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.wire.events import ApprovalRequest

MOST_ROWS = 3
MOST_ROWS_LOW = 2
"""Of each part on a low screen."""
BLANK_ROWS = 2
"""Under the question, and over the answers."""


class Beside:
    """What stands there.

    Args:
        request: what is asked.
        answers: each with its rows.
        width: of the panel.
        glyphs: the signs to draw with.
        waiting: how many requests wait, this one among them.
        tall: the screen has rows to spare.

    Attributes:
        moved: the texts that were too long, as people may see them.
    """

    def __init__(
        self,
        request: ApprovalRequest,
        answers: Iterable[tuple[Choice, list[Content]]],
        width: int,
        glyphs: Glyphs,
        *,
        waiting: int,
        tall: bool,
    ) -> None:
        self._most = MOST_ROWS if tall else MOST_ROWS_LOW
        self.moved: list[str] = []
        target = [request.detail] if counts(request) is not None else []
        question = question_rows(request, waiting, width, glyphs)
        self.question = self._fitted(question, request.question, *target)
        self.place = self._fitted(place_rows(request, width), request.where)
        self.answers = [(choice, self._fitted(rows, choice.words)) for choice, rows in answers]

    @property
    def n_rows(self) -> int:
        """How many rows all of it has."""
        answers = sum(len(rows) for _, rows in self.answers)
        return len(self.question) + len(self.place) + answers + BLANK_ROWS

    def _fitted(self, rows: list[Content], *texts: str) -> list[Content]:
        if len(rows) <= self._most:
            return rows
        self.moved += [visible(text).replace("\n", " ") for text in texts]
        note = Content.styled("   all of it is among the rows to read", "$ink-quiet")
        return [*rows[: self._most - 1], note]
