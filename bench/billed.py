"""The bill of a task under several ways to keep the context small: `python -m bench.billed`. Deterministic, without a model.

Generated sessions of 60 steps are played under five policies and five rules of prefix caches. A script says how large each
result is, and how much of it matters afterwards; that the task succeeds in all of them is part of the script, not a finding.

- plain: everything is sent again.
- compaction: a summary replaces the conversation at 85 % of the window.
- clearing: beyond 100,000 tokens all results but the last three become placeholders.
- masking: in each step all results but the last ten are placeholders.
- D-Mails: the built-in rules (`DMailConfig().active_rules`), each of whose reminders the agent follows.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from kimi_tui.config.settings import DMailConfig, ModelPrices
from kimi_tui.soul.dmail_rules import DMAIL_TOKENS, QUIET_STEPS, pays_back_after

STEPS, SEEDS, WINDOW = 60, 8, 400_000
SYSTEM, TASK, LETTER, SUMMARY, PLACEHOLDER = 4_200, 400, 150, 2_500, 30
HEAVY = (0.0, 0.05, 0.15, 0.30)
POLICIES = ("plain", "compaction", "clearing", "masking", "D-Mails")


class CacheRule(NamedTuple):
    """Prices in shares of fresh input; `block` is the unit in which a prefix is cached, `least` the shortest such prefix."""

    name: str
    read: float
    write: float
    output: float
    block: int
    least: int


RULES = (
    CacheRule("read 0.1, write 1.25, output 5", 0.10, 1.25, 5.0, 1, 1_024),
    CacheRule("read 0.1, write 1, output 8", 0.10, 1.0, 8.0, 128, 1_024),
    CacheRule("read 0.02, write 1, output 2", 0.02, 1.0, 2.0, 64, 64),
    CacheRule("read 0.25, write 1, output 4", 0.25, 1.0, 4.0, 256, 1_024),
    CacheRule("no cache, output 5", 1.0, 1.0, 5.0, 1, 1 << 60),
)
Part = tuple[str, int]
"""A message: a name that stands for its text, and its tokens."""


class Step(NamedTuple):
    """The tokens of a step's result, of what matters of it afterwards, and of what the model writes."""

    result: int
    matters: int
    said: int


class Bill:
    """Counts calls with the prefixes that the server has cached from the last seven requests."""

    def __init__(self, rule: CacheRule) -> None:
        self._rule = rule
        self._known: list[list[Part]] = []
        self.cost = 0.0
        self.peak = 0

    def call(self, context: list[Part], output: int) -> None:
        """Bill a request with this context, and an answer of so many tokens."""
        rule, total = self._rule, sum(tokens for _, tokens in context)
        longest = max((_common(old, context) for old in self._known), default=0)
        hit = longest // rule.block * rule.block
        hit = hit if hit >= rule.least else 0
        self.cost += hit * rule.read + (total - hit) * rule.write + output * rule.output
        self.peak = max(self.peak, total)
        self._known = [*self._known[-6:], list(context)]


def _common(old: list[Part], new: list[Part]) -> int:
    tokens = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        tokens += after[1]
    return tokens


def session(seed: int, heavy: float) -> list[Step]:
    """Return a session in which a share of the results is large (about 18,000 tokens; the others have about 730)."""
    rnd = random.Random(seed)
    steps: list[Step] = []
    for _ in range(STEPS):
        if rnd.random() < heavy:
            size = int(min(60_000, max(8_000, rnd.lognormvariate(9.8, 0.6))))
        else:
            size = int(min(6_000, max(60, rnd.lognormvariate(6.6, 1.0))))
        steps.append(Step(size, min(size, rnd.randint(80, 500)), rnd.randint(120, 500)))
    return steps


def play(policy: str, steps: list[Step], rule: CacheRule) -> Bill:
    """Play a session under a policy; return its bill."""
    bill = Bill(rule)
    context: list[Part] = [("system", SYSTEM), ("task", TASK)]
    shown: list[str] = []
    quiet_until = 0
    prices = ModelPrices(rule.write, rule.read, rule.output, "")
    for n, step in enumerate(steps):
        used = sum(tokens for _, tokens in context)
        if policy == "compaction" and used > 0.85 * WINDOW:
            bill.call([*context, ("ask", 300)], SUMMARY)
            context = [*context[:2], (f"summary {n}", SUMMARY), *context[-4:]]
        bill.call(context, step.said)
        context = [*context, (f"answer {n}", step.said), (f"result {n}", step.result)]
        shown.append(f"result {n}")
        if policy == "D-Mails" and _fires(step.result, used, prices, n < quiet_until):
            quiet_until = n + QUIET_STEPS
            # The agent has seen the result once, and answers with the D-Mail.
            bill.call(context, LETTER + step.matters)
            context = [*context[:-2], (f"letter {n}", DMAIL_TOKENS - 250 + step.matters)]
            shown.pop()
        old: set[str] = set()
        if policy == "clearing" and sum(tokens for _, tokens in context) > 100_000:
            old, shown = set(shown[:-3]), shown[-3:]
        elif policy == "masking":
            old, shown = set(shown[:-10]), shown[-10:]
        context = [
            (f"{name} cleared", PLACEHOLDER) if name in old else (name, tokens)
            for name, tokens in context
        ]
    bill.call(context, TASK)
    return bill


def _fires(result: int, before: int, prices: ModelPrices, is_quiet: bool) -> bool:
    return any(
        (rule.result_tokens and result >= rule.result_tokens)
        or (
            not is_quiet
            and rule.payback
            and pays_back_after(result, before, prices) <= rule.payback
        )
        for rule in DMailConfig().active_rules
    )


def table() -> list[str]:
    """Return the table: the cost in percent of plain, and the largest request in thousands of tokens."""
    rows = ["| cache rule | large results | " + " | ".join(POLICIES) + " |"]
    rows.append("|---" * (2 + len(POLICIES)) + "|")
    for rule in RULES:
        for heavy in HEAVY:
            bills = {
                policy: [play(policy, session(seed, heavy), rule) for seed in range(SEEDS)]
                for policy in POLICIES
            }
            whole = sum(bill.cost for bill in bills["plain"])
            cells = (
                f"{100 * sum(bill.cost for bill in of) / whole:.0f} % · {max(bill.peak for bill in of) / 1e3:.0f}k"
                for of in bills.values()
            )
            rows.append(f"| {rule.name} | {heavy:.0%} | " + " | ".join(cells) + " |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
