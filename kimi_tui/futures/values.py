"""The values of futures: the plan of a set, its limits, and the estimate of what it costs.

They are plain values, so that a dialog can show them before the engine of futures is loaded. The state of a running or ended
future is `wire.events.FutureChanged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.soul.rewind_values import END, Target

if TYPE_CHECKING:
    from kimi_tui.tool_cards import ImageBlock
    from kimi_tui.tools.sandbox.view import Tier
    from kimi_tui.wire.events import FutureChanged

FEWEST, MOST = 1, 4
"""The number of futures in a set."""
LONGEST_CHECK_S = 600.0
"""Seconds after which a check is stopped."""


class Caps(NamedTuple):
    """The limits of one future; 0 for none.

    Attributes:
        tokens: input (cached too) and output tokens.
        cost: money, by the configured prices.
        seconds: the time since its session was open.
        steps: the steps of its turn; 0 for the configured number.
    """

    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    steps: int = 0


NO_CAPS = Caps()
_END = Target(END)


class Variant(NamedTuple):
    """One future of a plan.

    Attributes:
        message: its first message; empty for the message with which the checkpoint began.
        model: the name of a configured model, or a model's name at the server in use; empty for the one in use.
        name: the name that is shown; empty for one that is made of model or message.
        thinking: the thinking setting; empty for the one in use.
        images: the images of the message, which the session has stored; those of the checkpoint go with its own message.
    """

    message: str = ""
    model: str = ""
    name: str = ""
    thinking: str = ""
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class FuturesPlan:
    """A set of futures that begin at one checkpoint.

    Attributes:
        target: the checkpoint before which they begin, on any world line; `Target(END)` is the end of the current one.
        variants: the futures.
        check: a command whose exit code judges each of them at its end; empty for none.
        caps: the limits of each.
        network: whether the check may use the network.
    """

    target: Target = _END
    variants: Sequence[Variant] = (Variant(), Variant())
    check: str = ""
    caps: Caps = NO_CAPS
    network: bool = False


class NoFutures(Exception):
    """A plan cannot be carried out. The text is a sentence for the user; `field` names the part of the plan that is wrong, if one is."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class FutureCost(NamedTuple):
    """The cost of the first request of one future.

    Attributes:
        name: the name of the future.
        model: its model.
        past: the tokens that are sent before its message.
        cached: how many of them the provider is expected to have cached.
        cost: the money for them by the configured prices; -1 if there are none.
        most_cost: the most that it may cost with its limits; -1 if there are no prices or no limit.
    """

    name: str
    model: str
    past: int
    cached: int
    cost: float = -1.0
    most_cost: float = -1.0


class Estimate(NamedTuple):
    """The costs of a plan, the figures that are shared, and those that are unknown, for the user to see before the start.

    Attributes:
        futures: the costs of each future; the first one is sent ahead of the others with the same model.
        tokens: the tokens of the first requests of all futures; `cached` of them are expected to be cached.
        cost: the money for these; -1 if there are no prices for one of the models.
        most_tokens: the most tokens that all of them may use; 0 without a limit.
        most_cost: the most money; -1 without a limit or prices.
        warm_s: the seconds since the last request of the session, after which the provider's cache may be cold; -1 if unknown.
        at_once: how many requests of futures are sent to one server at the same time.
        tier: how each future gets files of its own; empty if it shares those of the user.
        tier_words: the sentence about that.
        n_files: the number of files of the checkpoint; `n_bytes` is their size.
        shared: what the futures read of the folder as it is now, copied on writing: ignored folders, by path.
        copied: what is copied for each of them, by path.
        not_isolated: sentences about what is not isolated.
        remarks: further sentences: files that no snapshot has, or a check that was not tried.
    """

    futures: tuple[FutureCost, ...]
    tokens: int
    cached: int
    cost: float = -1.0
    most_tokens: int = 0
    most_cost: float = -1.0
    warm_s: float = -1.0
    at_once: int = 2
    tier: Tier | None = None
    tier_words: str = ""
    n_files: int = 0
    n_bytes: int = 0
    shared: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    not_isolated: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def ranked(futures: Sequence[FutureChanged]) -> list[FutureChanged]:
    """Return futures with the best first: those that passed their check, then without a changed check, then by the size of the
    difference, then by cost or tokens. The order says nothing about the quality of the work.
    """

    def rank(one: FutureChanged) -> tuple[object, ...]:
        ended = {"done": 0, "stopped": 1, "failed": 2}.get(one.state, 3)
        checked = {"passed": 0, "": 1, "not run": 2, "failed": 3}[one.check]
        spent = one.cost if one.cost >= 0 else float(one.tokens)
        return checked, bool(one.own_check), ended, one.added + one.removed, spent, one.number

    return sorted(futures, key=rank)
