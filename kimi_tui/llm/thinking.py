"""Thinking before the answer: what the user may set for a model, what is sent for it, and how that is described.

How a model is asked is data of its dialect (`dialects.Thinking`); nothing here talks to a server.
"""

from __future__ import annotations

from typing import Any

from kimi_tui import lenient_json
from kimi_tui.llm.dialects import Thinking
from kimi_tui.llm.errors import LLMError

OFF = "off"
ON = "on"
UNSET = ""
"""Nobody said anything: nothing is sent, and the model does what it does by itself."""
DEFAULT = "default"
"""What the user says to go back to that."""


def choices(thinking: Thinking) -> tuple[str, ...]:
    """What can be set, as the user types it; empty where nothing can."""
    if thinking.always:
        return thinking.efforts
    return (ON, OFF, *thinking.efforts) if thinking.form != "unknown" else ()


def checked(word: str, thinking: Thinking, model: str) -> str:
    """The setting that a word of the user means.

    Args:
        word: `on`, `off`, `default` or an effort, in any case.
        thinking: how the model is asked.
        model: its name, for the error.

    Raises:
        LLMError: the model does not take that; the text names what it takes.
    """
    word = word.strip().lower()
    taken = choices(thinking)
    if word == DEFAULT:
        return UNSET
    if word in taken or (word == ON and thinking.always):
        return word
    if word == OFF and thinking.always:
        more = f" It takes {_listed(taken)}." if taken else ""
        raise LLMError(f"{model} always thinks.{more}")
    if not taken:
        what = "always thinks; nothing can be set" if thinking.always else _NOT_KNOWN
        raise LLMError(f"{model} {what}.")
    raise LLMError(f"{model} does not take {word[:40]!r}; it takes {_listed(taken)}.")


_NOT_KNOWN = "is not known to take a setting for thinking, so nothing is sent"


def fields(thinking: Thinking, setting: str, *, has_tools: bool) -> dict[str, Any]:
    """The fields of a request for this setting; a setting that the model does not take is passed over."""
    if thinking.not_with_tools and has_tools:
        return {"reasoning_effort": "none"}
    if setting == UNSET or (thinking.always and setting in (ON, OFF)):
        return {}
    is_on = setting != OFF
    effort = setting if setting in thinking.efforts else thinking.on if is_on else ""
    match thinking.form:
        case "type" | "type_kept":
            kind: dict[str, Any] = {"type": "enabled" if is_on else "disabled"}
            if is_on and thinking.form == "type_kept":
                kind["clear_thinking"] = False
            return {"thinking": kind, **({"reasoning_effort": effort} if effort else {})}
        case "enable_thinking":
            return {"enable_thinking": is_on}
        case "effort":
            effort = effort if is_on else "none"
            return {"reasoning_effort": effort} if effort else {}
        case "effort_object":
            return {"reasoning": {"effort": effort if is_on else "none"}}
        case "template":
            arguments: dict[str, Any] = {} if thinking.always else {"enable_thinking": is_on}
            if effort:
                arguments["reasoning_effort"] = effort
            return {"chat_template_kwargs": arguments} if arguments else {}
        case "unknown":
            return {}


def in_use(
    thinking: Thinking, setting: str, dropped: frozenset[str], *, has_tools: bool
) -> tuple[bool, str]:
    """Whether the model is asked to think, and the effort that is named to it.

    Args:
        thinking: how it is asked.
        setting: what was set.
        dropped: fields that the server refused, which are not sent any more.
        has_tools: the request names tools.
    """
    if thinking.not_with_tools and has_tools:
        return False, ""
    sent = {
        name: value
        for name, value in fields(thinking, setting, has_tools=has_tools).items()
        if name not in dropped
    }
    effort = setting if setting in thinking.efforts and _names_effort(sent, setting) else ""
    if thinking.always:
        return True, effort
    if setting == OFF:
        # A server that refuses the field thinks as it likes.
        return bool(fields(thinking, setting, has_tools=has_tools)) and not sent, ""
    return setting != UNSET and bool(sent), effort


def described(model: str, thinks: bool, effort: str, taken: tuple[str, ...]) -> str:
    """What holds of thinking, and what the model takes, as one line.

    Args:
        model: its name.
        thinks: it is asked to, or always does.
        effort: how much, if that is said to it.
        taken: what can be set.
    """
    how = f" ({effort})" if effort else ""
    if not taken:
        return f"{model} thinks{how}; nothing can be set." if thinks else f"{model} {_NOT_KNOWN}."
    always = " always" if thinks and ON not in taken else ""
    holds = f"{always} thinks{how}" if thinks else " is not asked to think"
    return f"{model}{holds}. /thinking takes {_listed(taken)}."


def _names_effort(sent: dict[str, Any], effort: str) -> bool:
    """Whether one of the fields, or one inside them, says this effort."""
    return any(
        value == effort or effort in lenient_json.mapping(value).values() for value in sent.values()
    )


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)
