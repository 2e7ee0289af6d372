"""The program's own user messages are told from what the person said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.llm.message import Message, user_message
from kimi_tui.prompts import prompt
from kimi_tui.soul import messages as im

KIMI_CLI_DMAIL = (
    "<system>You just got a D-Mail from your future self. It is likely that your future self has already done "
    "something. D-Mail content:\n\nbig.txt has one line</system>"
)


@each(
    "text, kind",
    [
        ("<system>CHECKPOINT 0</system>", "marker"),
        ("<system>CHECKPOINT 12345</system>\n", "marker"),
        (KIMI_CLI_DMAIL, "dmail"),
        ("<system-reminder>look</system-reminder>", "reminder"),
        ('<notification id="1" category="x">done', "notification"),
        ("<system>The user has run /init</system>", "note"),
        ("fix <system>CHECKPOINT 1</system>", None),
        ("<systematic> work", None),
        ("", None),
    ],
)
def test_kinds(text: str, kind: str | None) -> None:
    message = user_message(text)
    assert im.internal_kind(message) == kind
    assert im.is_user_words(message) is (kind is None)


def test_what_is_inside() -> None:
    assert im.dmail_text(user_message(KIMI_CLI_DMAIL)) == "big.txt has one line"
    assert im.summary_text(im.summary_message("All of it.")) == "All of it."
    stored = Message.model_validate(im.summary_message("All of it.").stored())
    assert im.internal_kind(stored) == "compaction"
    for message in (user_message("hello"), Message(role="assistant", content=KIMI_CLI_DMAIL)):
        assert im.dmail_text(message) is im.summary_text(message) is None


CALLING = Message.model_validate(
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"type": "function", "id": "1", "function": {"name": "Glob", "arguments": "{}"}}
        ],
    }
)
ANSWER = Message(role="assistant", content="Done.")
ASIDE = [user_message("<system>CHECKPOINT 7</system>"), user_message("<system-reminder>look")]


REPORT = [user_message(prompt("user_command", FACTS="exit code 0", OUTPUT="out").strip())]


@each(
    "messages, is_open",
    [
        ([], False),
        ([user_message("hello")], True),
        ([user_message("hello"), ANSWER], False),
        ([user_message("hello"), ANSWER, *ASIDE], False),
        ([user_message("hello"), CALLING], True),
        ([CALLING, Message(role="tool", content="a.txt", tool_call_id="1"), *ASIDE], True),
        ([ANSWER.model_copy(update={"interrupted": True})], True),
        ([ANSWER, user_message(KIMI_CLI_DMAIL)], True),
        (ASIDE, False),
        ([user_message("hello"), *REPORT], False),
        ([*REPORT, user_message("hello")], True),
    ],
)
def test_whether_a_line_ends_in_the_middle(messages: list[Message], is_open: bool) -> None:
    assert im.ends_open(messages) is is_open


@given(
    st.sampled_from(
        [
            "",
            "<system>CHECKPOINT 3</system>",
            KIMI_CLI_DMAIL,
            im.COMPACTION_START,
            "<system-reminder>",
        ]
    ),
    st.text(max_size=5),
)
def test_a_person_may_say_anything(start: str, end: str) -> None:
    message = im.user_words(start + end)
    assert im.is_user_words(message)
    again = Message.model_validate(message.stored())
    assert im.is_user_words(again)
    assert again.text == start + end


@each("author", ["agent", "person"])
def test_a_stored_dmail_says_who_wrote_it(author: im.Author) -> None:
    assert im.author_of(im.dmail_message("Do not.", author)) == author
