"""`DMailRules`: decides after each step whether a rule of `[[dmail.rules]]` fires, and with which checkpoint as its target.

It only decides; the loop reminds, drafts and sends. A turn begins with nothing counted, except how long the context has been
over a share of the window. After a rule has fired, none fires for `QUIET_STEPS` steps, so that the agent has time to act on it;
only a rule of `result_tokens` does, about a result that the turn has not had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kimi_tui.config.settings import USUAL_PRICES, DMailRule, ModelPrices
from kimi_tui.soul.circles import call_digest
from kimi_tui.soul.conversation import DMAIL_TOOL
from kimi_tui.soul.tool_calls import CallResult
from kimi_tui.wire.events import RuleApplied

QUIET_STEPS = 3
"""The least number of steps from one firing to the next."""
DMAIL_TOKENS = 400
"""The tokens that a D-Mail takes: 200 words as the prompt of a draft allows, and what the program adds."""
_ATTRIBUTED_STEPS = 2
"""A D-Mail that the agent sends within so many steps of a reminder is counted as that rule's."""


class StepFacts(NamedTuple):
    """The facts about a step that rules are about.

    Attributes:
        checkpoint_id: the checkpoint of the step; `uid` is its uid.
        sizes: the tokens of each result, in the order of the calls.
        used: the tokens of the context with these results.
        window: the model's window in tokens.
        prices: the model's prices, if they are configured.
        checks: whether the checks after edits passed, for each result; None for a result without a check.
    """

    checkpoint_id: int
    uid: str
    sizes: Sequence[int]
    used: int
    window: int
    prices: ModelPrices | None = None
    checks: Sequence[bool | None] = ()


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that fires: the uid of the checkpoint to which its D-Mail is to go, and the reason as a sentence."""

    rule: DMailRule
    uid: str
    why: str


def pays_back_after(taken: int, before: int, prices: ModelPrices | None) -> float:
    """Return the number of further model calls after which a D-Mail has cost less than it saves; infinite if it never has.

    Args:
        taken: the tokens that it takes out of the context.
        before: the tokens that stay before them, which the extra call reads from the server's cache.
        prices: the model's prices; None for the usual ones.
    """
    price = prices or USUAL_PRICES
    saved = (taken - DMAIL_TOKENS) * price.cached_input
    cost = before * price.cached_input + DMAIL_TOKENS * (price.output + price.input)
    return cost / saved if saved > 0 else float("inf")


class DMailRules:
    """The rules of one session.

    Args:
        rules: the rules, of which the first that holds fires.
        same_call_limit: the number of equal calls in a row at which the user is asked about a circle; 0 for never.
    """

    def __init__(self, rules: Sequence[DMailRule], same_call_limit: int) -> None:
        self._rules = rules
        self._same_call_limit = same_call_limit
        self._is_over: set[str] = set()
        """The rules of a share of the window that fired since the context was last below it."""
        self.begin()

    def begin(self) -> None:
        """Start a turn."""
        self._step = self._unchecked = 0
        self._quiet_until = 0
        self._row: list[str] = []
        """The uids of the steps of the present row of equal calls with equal results."""
        self._failed: list[str] = []
        """The uids of the steps of the present row of failures of the same call."""
        self._last = self._last_failed = b""
        self._largest = (0, "")
        self._known: set[bytes] = set()
        """The digests of the turn's calls with their results."""
        self._reminded: tuple[str, int] = ("", 0)

    @property
    def reminded_by(self) -> str:
        """The rule to which a D-Mail of the agent in the present step belongs; empty if none reminded it lately."""
        name, step = self._reminded
        return name if name and self._step - step < _ATTRIBUTED_STEPS else ""

    def sent(self) -> None:
        """Note that a D-Mail was sent or refused: a later one belongs to no reminder before it."""
        self._reminded = ("", 0)
        self._row.clear()
        self._failed.clear()
        self._largest = (0, "")

    def after_step(
        self, done: Sequence[CallResult], facts: StepFacts, is_there: Callable[[str], bool]
    ) -> Firing | None:
        """Note a step; return the rule that fires, if any. At most one does.

        Args:
            done: the results, in the order of the calls.
            facts: about them and the context.
            is_there: returns whether a checkpoint, by its uid, is still on the current world line.
        """
        self._step += 1
        self._note(done, facts)
        digests = [call_digest(each.call, each.outcome) for each in done]
        # A result that comes again is not new, so that `send` and an agent that repeats its call do not go on for ever.
        new = max(
            (n for n, key in zip(facts.sizes, digests, strict=False) if key not in self._known),
            default=0,
        )
        self._known.update(digests)
        # The agent decides by itself about its own D-Mail.
        if any(each.call.name == DMAIL_TOOL for each in done):
            return None
        held = [found for rule in self._rules if (found := self._held(rule, done, facts))]
        for rule in self._rules:
            if rule.window_share and facts.used < rule.window_share * facts.window:
                self._is_over.discard(rule.name)
        if self._step < self._quiet_until:
            held = [one for one in held if 0 < one.rule.result_tokens <= new]
        if not held:
            return None
        first = held[0]
        self._quiet_until = self._step + QUIET_STEPS
        if first.rule.window_share:
            self._is_over.add(first.rule.name)
        if first.rule.steps_without_check:
            self._unchecked = 0
        if first.rule.then == "remind":
            self._reminded = (first.rule.name, self._step)
        return first if is_there(first.uid) else Firing(first.rule, facts.uid, first.why)

    def _note(self, done: Sequence[CallResult], facts: StepFacts) -> None:
        for each in done:
            if each.call.name == DMAIL_TOOL:
                continue
            digest = call_digest(each.call, each.outcome)
            if digest != self._last:
                self._last = digest
                self._row.clear()
            self._row.append(facts.uid)
            failed = call_digest(each.call) if each.outcome.is_error and not each.rejected else b""
            if failed != self._last_failed or not failed:
                self._last_failed = failed
                self._failed.clear()
            if failed:
                self._failed.append(facts.uid)
        passed = any(facts.checks) and False not in facts.checks
        self._unchecked = 0 if passed else self._unchecked + 1
        size = sum(facts.sizes)
        if size > self._largest[0]:
            self._largest = (size, facts.uid)

    def _held(self, rule: DMailRule, done: Sequence[CallResult], facts: StepFacts) -> Firing | None:
        """Return the firing of a rule all of whose conditions hold."""
        uid, reasons = facts.uid, list[str]()
        for why, target in self._conditions(rule, done, facts):
            if not why:
                return None
            reasons.append(why)
            uid = target or uid
        text = "; ".join(reasons)
        return Firing(rule, uid, f"{text[:1].upper()}{text[1:]}.") if reasons else None

    def _conditions(
        self, rule: DMailRule, done: Sequence[CallResult], facts: StepFacts
    ) -> Iterator[tuple[str, str]]:
        """Yield, for each condition that is given, the words about it (empty: it does not hold), and its target if it is
        not the step itself.
        """
        largest, total = max(facts.sizes, default=0), sum(facts.sizes)
        window = max(1, facts.window)
        if rule.result_tokens:
            holds = largest >= rule.result_tokens
            yield (f"a result takes {largest:,} tokens" if holds else ""), ""
        if rule.result_share:
            holds = largest >= rule.result_share * window
            words = f"a result takes {largest / window:.0%} of the context window"
            yield (words if holds else ""), ""
        if rule.payback:
            calls = pays_back_after(total, max(0, facts.used - total), facts.prices)
            words = (
                f"a D-Mail would remove {total:,} tokens and pay for itself after {calls:.1f} steps"
            )
            yield (words if calls <= rule.payback else ""), ""
        if rule.same_call_failed:
            least = rule.same_call_failed
            if self._same_call_limit > 1:
                # The rule has its turn before the user is asked about the circle.
                least = min(least, self._same_call_limit - 1)
            holds = len(self._failed) == least
            words = f"the same call failed {len(self._failed)} times in a row"
            yield (words if holds else ""), self._failed[0] if holds else ""
        if rule.circle:
            holds = 1 < self._same_call_limit == len(self._row) + 1
            words = f"the same call had the same result {len(self._row)} times in a row"
            yield (words if holds and done else ""), self._row[0] if holds else ""
        if rule.steps_without_check:
            holds = self._unchecked >= rule.steps_without_check
            yield (f"no check has passed for {self._unchecked} steps" if holds else ""), ""
        if rule.window_share:
            holds = facts.used >= rule.window_share * window and rule.name not in self._is_over
            words = f"the context takes {facts.used / window:.0%} of the window"
            yield (words if holds else ""), self._largest[1]
        if rule.check_failed:
            yield ("a check after an edit failed" if False in facts.checks else ""), ""


def fired(firing: Firing, checkpoint_id: int) -> RuleApplied:
    """Return the event of a rule that fires."""
    rule = firing.rule
    return RuleApplied(rule.name, "fired", rule.then, checkpoint_id, firing.why)
