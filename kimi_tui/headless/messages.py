"""The lines of `--input-format stream-json`: what another program says to a running session."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple, cast, get_args

from kimi_tui.agent_parts import Mode
from kimi_tui.wire.events import ApprovalAnswer

Kind = Literal["user", "steer", "interrupt", "answer", "set_mode", "close"]
_ANSWERS: dict[str, ApprovalAnswer] = {
    "yes": "once",
    "once": "once",
    "session": "session",
    "project": "project",
    "no": "no",
}
_SHOWN = 80
Json = dict[str, Any]


class InputLine(NamedTuple):
    """A message.

    Attributes:
        kind: `user` begins a turn, or waits for the end of the running one; `steer` goes into the running turn; `interrupt`
            stops it; `answer` answers an `ApprovalRequest`; `set_mode` sets the approval mode; `close` ends the run when
            nothing is left to do.
        text: the words of a `user`, a `steer`, or an `answer`.
        request_id: the id of the answered request.
        answer: the answer.
        mode: the approval mode.
    """

    kind: Kind
    text: str = ""
    request_id: str = ""
    answer: ApprovalAnswer = "no"
    mode: Mode = "ask"


class BadMessage(Exception):
    """A line that is no message. The text says what is wrong and what is right."""


def message_of(line: bytes) -> InputLine:
    """Read a line.

    Raises:
        BadMessage: it is no message.
    """
    try:
        # Left to itself, the parser takes a line with a zero byte for another encoding.
        found: object = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadMessage("The line is not JSON: it is not UTF-8.") from error
    except RecursionError as error:
        raise BadMessage("The line is not JSON: it is nested too deeply.") from error
    except ValueError as error:
        raise BadMessage(f"The line is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise BadMessage('The line is not a JSON object such as {"type": "user", "text": "hello"}.')
    facts = cast("dict[str, Any]", found)
    kind = facts.get("type")
    match kind:
        case "user" | "steer":
            return InputLine(kind, _words(facts))
        case "interrupt" | "close":
            return InputLine(kind)
        case "answer":
            return _answer(facts)
        case "set_mode":
            mode = facts.get("mode")
            if mode not in get_args(Mode):
                raise BadMessage(f"{_quoted(mode)} is not a mode: use {', '.join(get_args(Mode))}.")
            return InputLine(kind, mode=cast("Mode", mode))
        case _:
            raise BadMessage(
                f"{_quoted(kind)} is not a type of message: use {', '.join(get_args(Kind))}."
            )


def _words(facts: dict[str, Any]) -> str:
    """Return the text of a message: `text`, or the content of a `message` in the form of other programs."""
    said: object = facts.get("text")
    if said is None and isinstance(facts.get("message"), dict):
        said = cast("dict[str, Any]", facts["message"]).get("content")
    if isinstance(said, list):
        parts = [cast("Json", one) for one in cast("list[Any]", said) if isinstance(one, dict)]
        if others := [one.get("type") for one in parts if one.get("type", "text") != "text"]:
            raise BadMessage(
                f"A message can have text only, and this one has a part of the type {_quoted(others[0])}: "
                "write an image or a document to a file, and name it in the text as @FILE."
            )
        said = "\n".join(str(one.get("text", "")) for one in parts)
    if not isinstance(said, str) or not said.strip():
        raise BadMessage(f'A message of type {facts["type"]} needs a "text".')
    return said.strip()


def _answer(facts: dict[str, Any]) -> InputLine:
    request_id, answer = facts.get("id"), facts.get("answer")
    if not isinstance(request_id, str) or not isinstance(answer, str) or answer not in _ANSWERS:
        raise BadMessage(
            'An answer needs the "id" of an ApprovalRequest and an "answer": once, session, project or no.'
        )
    feedback = facts.get("feedback", "")
    if not isinstance(feedback, str):
        raise BadMessage('"feedback" must be a string.')
    return InputLine("answer", feedback, request_id, _ANSWERS[answer])


def _quoted(value: object) -> str:
    return json.dumps(value)[:_SHOWN]
