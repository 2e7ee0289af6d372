"""The questions of the agent in the form that an editor shows: the exact text of the app, with the answers that one choice can give."""

from __future__ import annotations

from typing import NamedTuple

from acp import helpers, schema

from kimi_tui.acp.updates import Content, diff_contents
from kimi_tui.agent_parts import LET_DECIDE
from kimi_tui.foreign_text import visible
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest

_OPTION = "option-"
_DECIDES = "decide"


class ChosenAnswer(NamedTuple):
    """An answer for the engine."""

    answer: ApprovalAnswer
    feedback: str = ""


def options(request: ApprovalRequest) -> list[schema.PermissionOption]:
    """Return the answers to offer, in the words of the app."""
    offered = [
        _option(f"{_OPTION}{number}", visible(words), "allow_once")
        for number, words in enumerate(request.options)
    ]
    match request.kind:
        case "question":
            return [
                *offered,
                _option(_DECIDES, visible(request.no_offer) or LET_DECIDE, "allow_once"),
            ]
        case "pause":
            return [*offered, _option("no", visible(request.no_offer), "reject_once")]
        case "plan":
            return [*offered, _option("no", "No, and stop the turn", "reject_once")]
        case "dmail":
            return [
                _option("once", "Yes, send it", "allow_once"),
                _option("no", "No", "reject_once"),
            ]
        case _:
            pass
    found = [_option("once", "Yes, once", "allow_once")]
    # Some editors offer one answer of each kind, the last one: that must be the one that allows less.
    if request.project_offer:
        found.append(_option("project", visible(request.project_offer), "allow_always"))
    if request.session_offer:
        found.append(_option("session", visible(request.session_offer), "allow_always"))
    no = "No, and stop the turn" if request.stops else "No"
    return [*found, _option("no", no, "reject_once")]


def _option(name: str, words: str, kind: schema.PermissionOptionKind) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=name, name=words, kind=kind)


def answer_of(request: ApprovalRequest, option_id: str) -> ChosenAnswer:
    """Return the answer that an editor's choice stands for; an unknown one is a no."""
    if option_id.startswith(_OPTION):
        number = option_id.removeprefix(_OPTION)
        if number.isdecimal() and int(number) < len(request.options):
            return ChosenAnswer("once", request.options[int(number)])
        return ChosenAnswer("no")
    known: dict[str, ApprovalAnswer] = {"once": "once", "no": "no"}
    if request.session_offer:
        known["session"] = "session"
    if request.project_offer:
        known["project"] = "project"
    if request.kind == "question" and option_id == _DECIDES:
        return ChosenAnswer("once")
    return ChosenAnswer(known.get(option_id, "no"))


def contents(request: ApprovalRequest, work_dir: str) -> list[Content]:
    """Return what will run, be written or be sent, in full."""
    found: list[Content] = [
        piece
        for block in request.display
        if isinstance(block, DiffBlock)
        for piece in diff_contents(block, work_dir)
    ]
    words = explained(request, has_detail=not found)
    return [helpers.tool_content(helpers.text_block(words)), *found]


def explained(request: ApprovalRequest, *, has_detail: bool = True) -> str:
    """Return a question with its exact text and what else the app says about it."""
    who = f"{visible(request.agent)}: " if request.agent else ""
    words = [f"{who}{visible(request.question)}"]
    if request.detail and has_detail:
        detail = visible(request.detail)
        is_prose = request.kind in ("plan", "dmail", "question")
        words.append(detail if is_prose else _indented(detail))
    if request.where:
        words.append(visible(request.where))
    return "\n\n".join(words)


def _indented(text: str) -> str:
    """Return a command as a code block of Markdown, which no content can end."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
