"""What the editor over the page asks for, as data; and what becomes of its text when a draft comes. Knows no widget."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["", "dmail", "compaction"]


class Letter(NamedTuple):
    """Something that the person writes.

    Attributes:
        title: in the frame.
        question: what it is about, strong.
        consequence: what happens with it, one sentence.
        text: what stands there at first.
        placeholder: what stands in the empty field.
        quote: what goes along with it, to be read only.
        verb: what Enter does, in a word.
        kind: whose colour the title bears.
        may_be_empty: whether Enter does it without a word, too.
        low: the field is one row high at first.
    """

    title: str
    question: str
    consequence: str
    text: str = ""
    placeholder: str = ""
    quote: str = ""
    verb: str = "send"
    kind: Kind = ""
    may_be_empty: bool = False
    low: bool = False


def with_draft(written: str, draft: str) -> str:
    """The text after a draft came: behind what the person wrote meanwhile, which is never lost."""
    return "\n\n".join(part for part in (written.strip(), draft.strip()) if part)


def can_send(letter: Letter, text: str) -> bool:
    """Whether Enter does anything."""
    return letter.may_be_empty or bool(text.strip())


def keys(letter: Letter, *, can_draft: bool, drafting: bool) -> tuple[tuple[str, str], ...]:
    """The last row: keys with their meanings, most used first."""
    if drafting:
        return (("Esc", "stop the draft"),)
    # Short, and before what every editor has: in a narrow terminal nothing else would tell of it.
    draft = (("Ctrl+L", "model drafts it"),) if can_draft else ()
    return (("Enter", letter.verb), *draft, ("Shift+Enter", "new line"), ("Esc", "cancel"))
