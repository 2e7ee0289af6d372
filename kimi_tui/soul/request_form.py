"""`RequestForm`, the form of system prompt and tools in every request, chosen for the model's window and abilities.

A window of a few thousand tokens has no room for the whole system prompt and twelve tools. The lean form has a short prompt
and five tools in few words, no D-Mail tool and no checkpoint markers; a model whose chat template supports no tools gets
none. The stored messages are the same in each form: they are adapted when they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kimi_tui.llm.provider import ModelInfo

LEAN_BELOW = 16_000
"""Tokens. A model with a smaller window gets the lean form by default. The whole prompt and all tools take about 4,000."""
SLOW_PROMPT_S = 60.0
"""Seconds for reading the first prompt, after which the lean form is offered."""
_RESULT_SHARE = 6
_LEAST_RESULT_TOKENS = 150
CHARS_A_TOKEN = 3
"""Characters per token of code and command output, as a small model counts them: fewer than in prose."""

ToolsWish = Literal["", "on", "lean", "off"]
"""The user's choice with `/tools`: the whole form, the lean one, no tools; empty for the form that suits the model."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The form of system prompt and tools.

    Attributes:
        lean: whether to use a short prompt, and few tools in few words.
        tools: whether the model gets tools.
        added: names of tools that the user added to the few.
    """

    lean: bool = False
    tools: bool = True
    added: tuple[str, ...] = ()

    @property
    def name(self) -> Literal["on", "lean", "off"]:
        """The form as `/tools` names it."""
        if not self.tools:
            return "off"
        return "lean" if self.lean else "on"


def form_for(
    info: ModelInfo | None, wish: ToolsWish = "", added: tuple[str, ...] = ()
) -> RequestForm:
    """Return the form for a model: the user's choice, else the configured one, else the one that suits its window."""
    if info is None:
        return RequestForm(lean=wish == "lean", tools=wish != "off")
    small = info.lean if info.lean is not None else 0 < info.window < LEAN_BELOW
    lean = wish == "lean" or (wish != "on" and small)
    tools = wish != "off" and (bool(wish) or "tools" in info.capabilities)
    return RequestForm(lean, tools, added if lean and tools else ())


def result_chars(form: RequestForm, window: int, n_calls: int) -> int | None:
    """Return the largest number of characters of each result in a step with `n_calls` calls; None for no limit but the tools' own."""
    if not form.lean or window <= 0:
        return None
    tokens = max(_LEAST_RESULT_TOKENS, window // _RESULT_SHARE // max(1, n_calls))
    return tokens * CHARS_A_TOKEN


def form_words(info: ModelInfo, form: RequestForm) -> tuple[str, str]:
    """Return the notice about a form that was chosen for the model: the form with the reason, and the user's options.

    Args:
        info: the model.
        form: the form, which is not the whole one.
    """
    if not form.tools:
        advice = "The model sees no files and runs nothing. /tools on sends the tools anyway."
        return (
            f"{info.model} does not support tools, according to its server, so the agent works without them.",
            advice,
        )
    why = f"{info.model} has a context window of {info.window:,} tokens"
    larger = larger_words(info)
    if info.lean:
        why, larger = f"the configuration sets it for {info.model}", ""
    advice = "The agent cannot send D-Mails (you can). /tools on sends all tools."
    return f"The model gets a short prompt and few tools: {why}.", f"{larger} {advice}".strip()


def larger_words(info: ModelInfo) -> str:
    """Say in one sentence how the model gets a larger window; empty if that is unknown."""
    if info.enlarged:
        return f"F4 or /window creates and uses a copy with a context window of {info.enlarged:,} tokens."
    return info.larger
