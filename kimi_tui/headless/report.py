"""`TurnReport` makes the result of a turn from the events of the wire; `TurnStop` is why the program stopped one."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple, cast

from kimi_tui.display_names import sentences
from kimi_tui.foreign_text import clean_source
from kimi_tui.program import BUDGET, CIRCLES, CONFLICTS, DONE, FAILED, INTERRUPTED, TERMINATED
from kimi_tui.soul.kimisoul import WAIT_QUESTION
from kimi_tui.soul.loop import GO_ON_QUESTION
from kimi_tui.soul.model_slot import Spent
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event

Json = dict[str, Any]


class TurnStop(NamedTuple):
    """Why the program itself stopped a turn: the exit code, the `subtype` of the result, and a sentence."""

    code: int
    subtype: str
    words: str


BY_SIGINT = TurnStop(INTERRUPTED, "error_interrupted", "The turn was stopped by Ctrl+C.")
BY_SIGTERM = TurnStop(TERMINATED, "error_interrupted", "The turn was stopped by SIGTERM.")
BY_SIGHUP = TurnStop(TERMINATED, "error_interrupted", "The turn was stopped by SIGHUP.")
BY_CALLER = TurnStop(INTERRUPTED, "error_interrupted", "The turn was stopped.")
READER_GONE = TurnStop(
    FAILED,
    "error_during_execution",
    "Standard output was closed, so the turn was stopped.",
)


def out_of_time(seconds: float) -> TurnStop:
    """Return the ending of a turn that took longer than allowed."""
    return TurnStop(
        BUDGET, "error_max_time", f"The turn was stopped at its time limit of {seconds:g} s."
    )


def in_circles(question: str) -> TurnStop:
    """Return the ending of a turn that went in circles, with the question that the program asked about it."""
    words = question.removesuffix(f" {GO_ON_QUESTION}")
    return TurnStop(CIRCLES, "error_circles", f"The turn was stopped. {words}")


def overdue(question: str) -> TurnStop:
    """Return the ending of a turn whose answer was overdue."""
    words = question.removesuffix(f" {WAIT_QUESTION}")
    return TurnStop(FAILED, "error_during_execution", f"The turn was stopped. {words}")


class Denial(NamedTuple):
    """A call that was refused. `input` is the JSON object of its arguments."""

    tool: str
    call_id: str
    input: Json


class Result(NamedTuple):
    """The end of a turn.

    Attributes:
        code: the exit code.
        subtype: the kind of end, in Claude's words where it has some.
        answer: the text of the last step.
        errors: sentences on what went wrong.
        denials: the calls that were refused.
        steps: the number of steps.
        duration_s: the seconds that the turn took.
        spent: the tokens and the money that it used.
        structured: the answer as JSON, in a list of one, if a schema was given and the answer fits; else an empty list.
    """

    code: int
    subtype: str
    answer: str
    errors: tuple[str, ...]
    denials: tuple[Denial, ...]
    steps: int
    duration_s: float
    spent: Spent
    structured: tuple[Any, ...] = ()

    def after(self, first: Result) -> Result:
        """Return the result of this turn and the one before it as one."""
        return self._replace(
            denials=(*first.denials, *self.denials),
            code=self.code or first.code,
            steps=first.steps + self.steps,
            duration_s=first.duration_s + self.duration_s,
            spent=self.spent.since(Spent().since(first.spent)),
        )

    def as_json(self, session_id: str, *, has_prices: bool) -> Json:
        """Return the result as the object that scripts read."""
        spent = self.spent
        found: Json = {
            "type": "result",
            "subtype": self.subtype,
            "is_error": self.code not in (DONE, CONFLICTS),
            "exit_code": self.code,
            "duration_ms": round(self.duration_s * 1000),
            "num_turns": self.steps,
            "result": self.answer,
            "session_id": session_id,
            "total_cost_usd": round(spent.cost, 6) if has_prices else None,
            "usage": {
                "input_tokens": spent.input - spent.cached,
                "cache_read_input_tokens": spent.cached,
                "output_tokens": spent.output,
            },
            "permission_denials": [
                {"tool_name": one.tool, "tool_use_id": one.call_id, "tool_input": one.input}
                for one in self.denials
            ],
            "errors": list(self.errors),
        }
        if self.structured:
            found["structured_output"] = self.structured[0]
        return found


class TurnReport:
    """Follows the events of a run and has the result of each turn.

    Args:
        strict: whether a refusal makes the exit code 3.

    Attributes:
        ending: why the program stopped the turn under way; None if it did not.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.ending: TurnStop | None = None
        self._calls: dict[str, tuple[str, str, str]] = {}
        self.begin(Spent())

    def begin(self, spent: Spent) -> None:
        """Begin a turn; `spent` is what the run has used so far."""
        self._before = spent
        self._began = time.monotonic()
        self._text: list[str] = []
        self._steps = 0
        self._denials: list[Denial] = []
        self._calls.clear()
        self.ending = None

    def follow(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case ev.StepBegin():
                self._steps += 1
                self._text.clear()
            case ev.StepRetry():
                self._text.clear()
            case ev.TextPart(text):
                self._text.append(text)
            case ev.ToolCall(key=key, name=name, arguments=arguments, id=call_id):
                self._calls[key] = (name, call_id, arguments)
            case ev.ToolCallPart(key=key, arguments=more) if key in self._calls:
                name, call_id, arguments = self._calls[key]
                self._calls[key] = (name, call_id, arguments + more)
            case ev.ToolResult(key=key, rejected=True):
                name, call_id, arguments = self._calls.get(key, ("", "", ""))
                self._denials.append(Denial(name, call_id or key, _object(arguments)))
            case _:
                pass

    @property
    def answer(self) -> str:
        """The text of the newest step, without terminal sequences."""
        return clean_source("".join(self._text)).strip()

    def failed(self, words: str) -> Result:
        """Return the result of a turn that did not begin."""
        subtype = "error_during_execution"
        return Result(FAILED, subtype, "", (words,), (), 0, time.monotonic() - self._began, Spent())

    def result(self, end: ev.TurnEnd, spent: Spent) -> Result:
        """Return the result of a turn.

        Args:
            end: its end.
            spent: what the run has used so far.
        """
        code, subtype, errors = self._end_of(end)
        return Result(
            code=code,
            subtype=subtype,
            answer=self.answer,
            errors=errors,
            denials=tuple(self._denials),
            steps=self._steps,
            duration_s=time.monotonic() - self._began,
            spent=spent.since(self._before),
        )

    def _end_of(self, end: ev.TurnEnd) -> tuple[int, str, tuple[str, ...]]:
        if end.reason in ("done", "rejected"):
            is_refused = self._strict and (bool(self._denials) or end.reason == "rejected")
            return (CONFLICTS if is_refused else DONE), "success", ()
        if self.ending is not None:
            return self.ending.code, self.ending.subtype, (self.ending.words,)
        if end.reason == "interrupted":
            return BY_CALLER.code, BY_CALLER.subtype, (BY_CALLER.words,)
        if end.kind == "steps":
            return BUDGET, "error_max_turns", (end.error,)
        if end.kind == "budget":
            subtype = "error_max_budget_usd" if " cost " in end.error else "error_max_tokens"
            return BUDGET, subtype, (end.error,)
        return FAILED, "error_during_execution", (sentences(end.error, end.advice),)


def _object(arguments: str) -> Json:
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {"arguments": arguments}
    return cast("Json", found) if isinstance(found, dict) else {"arguments": arguments}
