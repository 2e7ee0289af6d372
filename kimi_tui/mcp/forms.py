"""Forms of a server, or of an external agent, for the user: a few plain values, asked one after the other, or an address to open.

A schema is foreign: what is no field of a known type is asked for as text.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line
from kimi_tui.tools.base import ApprovalQuestion, Approver, Asks

_MOST_FIELDS = 24
_MOST_OPTIONS = 8
"""The answers that are offered; the keys of a question are 1 to 9, and another value can be written."""
_MOST_WORDS = 500
_MOST_SHOWN = 160
"""Characters of a choice; some programs put its explanation behind it."""
_LEAVE = "Leave it empty"
_YES, _NO = "Yes", "No"
_DONE = "I have done it"
_DECLINE = "Do not answer"

OWN_PAIR = ("answers", "text")
"""The names of the fields of a question of this program's own agent: its choices, and another answer."""
Value = str | int | float | bool | list[str] | None


async def opened_address(asker: str, message: str, url: str, approver: Approver) -> bool:
    """Ask the user to open an address; return whether they say that they have done what is to be done there.

    Args:
        asker: who asks, as the subject of a sentence.
        message: what it says.
        url: the address.
        approver: asks the user.

    Raises:
        ToolRejected: the user said no.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    said = await approver.ask(
        ApprovalQuestion(
            asks=Asks("question"),
            question=f"{asker} asks you to open an address: {one_line(message[:_MOST_WORDS])}",
            detail=one_line(url),
            where=f"open it yourself if you trust {one_line(host)}; kimi-tui does not open it",
            options=(_DONE,),
            no_offer=_DECLINE,
            protected=True,
        )
    )
    return said == _DONE


async def filled_form(
    asker: str, goes_to: str, message: str, schema: dict[str, Any], approver: Approver
) -> dict[str, Value] | None:
    """Ask the user for the values of a form; return them by the names of the fields, None if the user does not answer.

    Args:
        asker: who asks, as the subject of a sentence.
        goes_to: the name of the program that gets the answers.
        message: the words over the form.
        schema: the fields, as a JSON Schema of an object with plain values.
        approver: asks the user.

    Raises:
        ToolRejected: the user said no.
    """
    fields = lenient_json.mapping(schema.get("properties"))
    required = lenient_json.listing(schema.get("required"))
    asked = f"{asker} asks: {one_line(message[:_MOST_WORDS])}"
    if len(fields) > _MOST_FIELDS:
        return None
    if not fields:
        said = await approver.ask(_question(asked, "", goes_to, (_YES, _NO), _DECLINE))
        return {} if said == _YES else None
    content: dict[str, Value] = {}
    own_fields = _own_fields(fields)
    for name, part in fields.items():
        if name in own_fields.values():
            # It is asked for together with the choices before it.
            continue
        field = lenient_json.mapping(part)
        words = " · ".join(
            one_line(text[:_MOST_WORDS])
            for text in (
                lenient_json.text(field.get("title")) or name,
                lenient_json.text(field.get("description")),
            )
            if text
        )
        is_needed = name in required
        question = _question(
            asked,
            words,
            goes_to,
            _options(field, is_needed=is_needed),
            _DECLINE if is_needed else _LEAVE,
            several=field.get("type") == "array" and bool(_choices(field)),
        )
        for _ in range(3):
            said = await approver.ask(question)
            if _DECLINE in said.split("; "):
                return None
            if not said:
                if is_needed:
                    return None
                break
            value = _value(said, field)
            is_own = name in own_fields and not _are_chosen(said, field)
            if is_own or value is not None:
                content[own_fields[name] if is_own else name] = said if is_own else value
                break
        else:
            return None
    return content


def _own_fields(fields: dict[str, Any]) -> dict[str, str]:
    """Return the fields for an answer in the user's own words, by the fields with choices that they belong to.

    No standard says which they are: claude-agent-acp names one after its field, and this program's own agent has one pair.
    """
    found: dict[str, str] = {}
    names = list(fields)
    for name, following in pairwise(names):
        field = lenient_json.mapping(fields[following])
        is_text = field.get("type") == "string" and not _choices(field)
        if is_text and (following == f"{name}_custom" or (name, following) == OWN_PAIR):
            found[name] = following
    return found


def _are_chosen(said: str, field: dict[str, Any]) -> bool:
    """Return whether an answer consists of choices of a field alone."""
    choices = _choices(field)
    parts = [said] if field.get("type") != "array" else [one.strip() for one in said.split(";")]
    return all(one in choices or one in choices.values() for one in parts if one)


def _question(
    asked: str,
    words: str,
    goes_to: str,
    options: tuple[str, ...],
    no_offer: str,
    *,
    several: bool = False,
) -> ApprovalQuestion:
    return ApprovalQuestion(
        asks=Asks("question"),
        question=asked,
        detail=words,
        where=f"your answer goes to {goes_to}: enter no passwords or keys",
        options=options,
        multi_select=several,
        no_offer=no_offer,
        protected=True,
    )


def _options(field: dict[str, Any], *, is_needed: bool) -> tuple[str, ...]:
    """Return the answers that are offered for a field; the user may write another one, or give none."""
    # To a field that may be left empty, no answer leaves it empty; another one is needed to leave the form.
    ends = () if is_needed else (_DECLINE,)
    if field.get("type") == "boolean":
        return (_YES, _NO, *ends)
    offered = list(_choices(field))
    default = field.get("default")
    if not offered and isinstance(default, str | int | float):
        offered = [one_line(str(default)[:80])]
    return tuple(dict.fromkeys([*filter(None, offered[:_MOST_OPTIONS]), *ends]))


def _choices(field: dict[str, Any]) -> dict[str, str]:
    """Return the values that a field may have, by the words that are shown for them; empty if it may have any."""
    items = lenient_json.mapping(field.get("items"))
    plain = lenient_json.listing(field.get("enum")) or lenient_json.listing(items.get("enum"))
    names = lenient_json.listing(field.get("enumNames"))
    titled = [
        (one, names[place] if place < len(names) else None) for place, one in enumerate(plain)
    ]
    for key in ("oneOf", "anyOf"):
        titled = titled or [
            (facts.get("const"), facts.get("title"))
            for one in lenient_json.listing(field.get(key)) or lenient_json.listing(items.get(key))
            for facts in [lenient_json.mapping(one)]
        ]
    found: dict[str, str] = {}
    for value, title in titled:
        if isinstance(value, str):
            shown = title if isinstance(title, str) and title.strip() else value
            # Several answers are joined by semicolons.
            words = one_line(shown[:_MOST_SHOWN]).replace(";", ",").strip()
            found[words if words not in found else one_line(value[:80])] = value
    return found


def _value(said: str, field: dict[str, Any]) -> Value:
    """Return the user's words as a value of the field's type; None if they are none."""
    choices = _choices(field)
    values = frozenset(choices.values())
    match field.get("type"):
        case "boolean":
            return {_YES.lower(): True, _NO.lower(): False}.get(said.strip().lower())
        case "integer":
            return int(said) if said.strip().lstrip("-").isdecimal() and len(said) < 20 else None
        case "number":
            try:
                number = float(said)
            except ValueError:
                return None
            return number if math.isfinite(number) else None
        case "array":
            parts = [part.strip() for part in said.split(";") if part.strip()]
            if not all(part in choices or part in values for part in parts):
                parts = [part.strip() for part in said.replace(";", ",").split(",") if part.strip()]
            found = [choices.get(part, part) for part in parts]
            return [one for one in found if not choices or one in values]
        case _:
            if not choices:
                return said
            return choices.get(said) or (said if said in values else None)
