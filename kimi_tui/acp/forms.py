"""Forms that an editor shows (elicitation), for what one choice cannot say: several answers, an own answer, a reason, a changed text.

They are used only where the editor offers them. An answer is foreign: values of a wrong type count as left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from acp import RequestError, schema

from kimi_tui.acp.approvals import ChosenAnswer, explained
from kimi_tui.foreign_text import visible
from kimi_tui.mcp.forms import OWN_PAIR
from kimi_tui.wire.events import ApprovalRequest

_ANSWERS, _TEXT = OWN_PAIR
_MOST_CHARS = 100_000
_NUMBER = "option-"
Written = Literal["why", "words", "change"]
"""The answers that need a text: a no with a reason, a yes with own words, and a yes to a changed text."""


class Form(NamedTuple):
    """A form: the words over it and its fields."""

    message: str
    fields: schema.ElicitationSchema


def written_options(request: ApprovalRequest) -> list[tuple[Written, str]]:
    """Return the answers with a text that a request has in the app, with the words of the app."""
    if request.kind == "pause":
        return [("words", visible(request.words_offer))] if request.words_offer else []
    if request.kind == "question":
        return []
    why = "No, keep planning: say what is missing" if request.kind == "plan" else "No, and say why"
    can_change = request.changeable or request.kind in ("plan", "dmail")
    # A field shows no signs for characters that cannot be seen, so such a text is not agreed to there.
    is_plain = visible(request.detail) == request.detail
    fits = bool(request.detail) and len(request.detail) <= _MOST_CHARS and is_plain
    change = [("change", "Yes, but let me edit it first")] if can_change and fits else []
    return cast("list[tuple[Written, str]]", [*change, ("why", why)])


def written_form(request: ApprovalRequest, option: Written) -> Form:
    """Return the form for the text of an answer."""
    title = {"why": "Reason", "words": "Message to the agent", "change": "Text"}[option]
    field = schema.ElicitationStringPropertySchema(
        type="string",
        title=title,
        default=request.detail if option == "change" else None,
        max_length=_MOST_CHARS,
    )
    fields = schema.ElicitationSchema(properties={_TEXT: field}, required=[_TEXT])
    return Form(visible(request.question), fields)


def written_answer(option: Written, content: Mapping[str, Any] | None) -> ChosenAnswer:
    """Return the answer with the text of a form. None, or an empty text, is a no: nothing was agreed to."""
    text = _text_of(content)
    if option == "why" or not text:
        return ChosenAnswer("no", text)
    return ChosenAnswer("once", text)


def question_form(request: ApprovalRequest) -> Form:
    """Return the form for a question of the agent: its options, one or several, and a field for another answer."""
    choices = [
        schema.EnumOption(const=f"{_NUMBER}{number}", title=visible(words))
        for number, words in enumerate(request.options)
    ]
    other = "Other (your own answer)" if choices else "Answer"
    properties: dict[str, Any] = {}
    if choices and request.multi_select:
        properties[_ANSWERS] = schema.ElicitationMultiSelectPropertySchema(
            type="array", title="Answers", items=schema.TitledMultiSelectItems(any_of=choices)
        )
    elif choices:
        properties[_ANSWERS] = schema.ElicitationStringPropertySchema(
            type="string", title="Answer", one_of=choices
        )
    properties[_TEXT] = schema.ElicitationStringPropertySchema(
        type="string", title=other, max_length=_MOST_CHARS
    )
    message = [explained(request), "If you leave all fields empty, the agent decides."]
    return Form("\n\n".join(message), schema.ElicitationSchema(properties=properties))


def question_answer(request: ApprovalRequest, content: Mapping[str, Any]) -> ChosenAnswer:
    """Return the answer to a question of the agent; without any it is left to the agent."""
    given = content.get(_ANSWERS)
    names = cast("list[object]", given) if isinstance(given, list) else [given]
    offered = {f"{_NUMBER}{number}": words for number, words in enumerate(request.options)}
    chosen = [words for name, words in offered.items() if name in names]
    text = _text_of(content)
    if not request.multi_select:
        # An answer in the user's own words says more than the choice beside it.
        return ChosenAnswer("once", text or next(iter(chosen), ""))
    return ChosenAnswer("once", "; ".join([*chosen, *([text] if text else [])]))


def _text_of(content: Mapping[str, Any] | None) -> str:
    text = (content or {}).get(_TEXT)
    return text.strip()[:_MOST_CHARS] if isinstance(text, str) else ""


async def filled(client: Any, session: str, form: Form) -> dict[str, Any] | None:
    """Have the person fill in a form; return what they entered, None if they did not.

    Raises:
        RequestError, ConnectionError: the editor did not show it.
    """
    mode = schema.ElicitationFormSessionMode(session_id=session, requested_schema=form.fields)
    try:
        found = await client.create_elicitation(message=form.message, mode=mode)
    except ValueError as error:
        # The package cannot read the answer.
        raise RequestError(-32603, "The answer to the form cannot be read.") from error
    if not isinstance(found, schema.AcceptElicitationResponse):
        return None
    return dict(found.content or {})
