"""Who took how many tokens: the calls of a session by checkpoint and by model, counted from what is told of it.

The record of a stored session and what happens now go through the same counting, so that a resumed session knows the
same as one that was never left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kimi_tui.session.line import LineIndex
from kimi_tui.session.records import Checkpoint
from kimi_tui.soul.money import Cost, Price, Spent, cost_of
from kimi_tui.wire.events import CheckpointCreated, Event, StatusUpdate

_Totals = tuple[int, int, int]


class Ledger:
    """What every checkpoint's calls took.

    Args:
        prices: by model; empty where none are set, then nothing costs anything.
    """

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        self.prices = prices or {}
        self._model = ""
        self._newest = ""
        self._known: set[str] = set()
        self._totals: _Totals = (0, 0, 0)
        self._spent: dict[str, dict[str, Spent]] = {}

    def follow(self, event: Event) -> None:
        """Take in what is told: what the totals grow by was spent at the newest checkpoint."""
        match event:
            # What only moves behind a summary spends nothing there.
            case CheckpointCreated(uid=uid, was=""):
                self._newest = uid
                self._known.add(uid)
            case StatusUpdate():
                self._count(event, self._newest)
            case _:
                pass

    def begin(self, status: StatusUpdate) -> None:
        """A session is opened: what its totals hold beyond its record was spent at no checkpoint that is known."""
        self._count(status, "")

    def _count(self, status: StatusUpdate, uid: str) -> None:
        self._model = status.model or self._model
        before = self._totals
        now = (status.total_input, status.total_cached, status.total_output)
        self._totals = now
        grown = [new - old for new, old in zip(now, before, strict=True)]
        # Totals that fall are those of another count; where it began is not known.
        if min(grown) < 0 or not any(grown):
            return
        # Figures of tokens in use are estimates after tools ran; those of the call are when it has just returned.
        is_exact = status.step_input is None or not status.estimated
        spent = Spent(grown[0], grown[1], grown[2], is_exact)
        models = self._spent.setdefault(uid, {})
        models[status.model] = models.get(status.model, Spent()) + spent

    def total_cost(self) -> Cost | None:
        """What the whole session cost; None where no prices are set."""
        spent: dict[str, Spent] = {}
        for models in self._spent.values():
            _add(spent, models)
        return cost_of(spent, self.prices, self._model)

    def cost_of(self, points: Sequence[Checkpoint], index: LineIndex) -> Cost | None:
        """What the calls of these checkpoints cost; None where no prices are set.

        Args:
            points: neighbours on the live line, oldest first, up to its end.
            index: of the live line; its usage records tell what the record does not.
        """
        if not self.prices:
            return None
        spent: dict[str, Spent] = {}
        for place, point in enumerate(points):
            last = place + 1 == len(points)
            end = index.size if last else points[place + 1].offset
            _add(spent, self._spent_at(point, index, end))
        return cost_of(spent, self.prices, self._model)

    def _spent_at(self, point: Checkpoint, index: LineIndex, end: int) -> Mapping[str, Spent]:
        for uid in (point.uid, point.was or ""):
            if uid in self._spent and uid:
                return self._spent[uid]
            if uid in self._known and any(self._totals):
                return {}
        figures = index.usages_between(point.offset, end)
        if not figures:
            return {}
        # Two a step: what was sent, and that with what came back.
        output = max(0, figures[1] - figures[0]) if len(figures) > 1 else 0
        return {"": Spent(figures[0], 0, output, is_exact=False)}


def _add(spent: dict[str, Spent], more: Mapping[str, Spent]) -> None:
    for model, tokens in more.items():
        spent[model] = spent.get(model, Spent()) + tokens
