"""The conversation as one text: what it shows of messages, and how it is cut."""

from __future__ import annotations

import json

import pytest

from kimi_tui.llm.message import (
    FunctionCall,
    ImagePart,
    ImageURL,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
    user_message,
)
from kimi_tui.llm.tokens import estimate
from kimi_tui.prompts import prompt
from kimi_tui.soul.conversation_text import as_markdown, conversation_text
from kimi_tui.soul.messages import dmail_message, summary_message, user_words


def called(name: str, arguments: dict[str, str]) -> Message:
    function = FunctionCall(name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", tool_calls=[ToolCall(id="c0", function=function)])


def result(text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id="c0")


def test_the_text_shows_calls_reasoning_and_images() -> None:
    image = ImagePart(image_url=ImageURL(url="images/x.png", name="a.png", width=9, height=8))
    messages = [
        Message(role="user", content=[TextPart(text="see"), image]),
        Message(role="assistant", content=[ThinkPart(think="maybe"), TextPart(text="yes")]),
        called("ReadFile", {"path": "ReadFile"}),
        result("<system>ERROR: no</system>"),
        user_message("<system>CHECKPOINT 3</system>"),
    ]
    text = conversation_text(messages, 1_000)
    assert "see\n[image a.png 9x8]" in text
    assert "(thought: maybe)" in text
    assert '(calls ReadFile {"path": "ReadFile"})' in text
    assert "[Result of ReadFile]\n<system>ERROR: no</system>" in text
    assert "CHECKPOINT" not in text


def test_an_export_has_calls_with_their_arguments_and_results() -> None:
    odd = Message(
        role="assistant",
        tool_calls=[ToolCall(id="c1", function=FunctionCall(name="Glob", arguments="{broken"))],
    )
    messages = [
        user_words("write"),
        called("WriteFile", {"path": "a.py", "content": "x = 1\ny = 2"}),
        result("<system>Written.</system>"),
        result("of nobody"),
        summary_message("We wrote."),
        dmail_message(prompt("dmail_by_agent", CHECKPOINT="1", FACTS="", TEXT="Do not."), "agent"),
        user_message("<system-reminder>unseen</system-reminder>"),
        odd,
    ]
    assert as_markdown(messages).split("\n\n") == [
        "**You:** write",
        "**WriteFile** `a.py`",
        "content:",
        "```\nx = 1\ny = 2\n```",
        "```\nWritten.\n```",
        "**Tool**",
        "```\nof nobody\n```",
        "**Summary:** We wrote.",
        "**D-Mail:** Do not.",
        "**Glob** (no result)",
        "```\n{broken\n```\n",
    ]


def test_an_export_says_where_an_answer_ends_early() -> None:
    messages = [
        Message(role="assistant", content="half", interrupted=True, broken="The line\nwas lost."),
        Message(role="assistant", content="a bit", interrupted=True),
    ]
    assert as_markdown(messages).split("\n\n") == [
        "**Agent:** half",
        "*(The answer broke off here: The line was lost.)*",
        "**Agent:** a bit",
        "*(Stopped by you)*\n",
    ]


@pytest.mark.sample
@pytest.mark.parametrize("budget", [300, 1_000, 5_000, 15_000])
def test_the_text_keeps_to_its_budget(budget: int) -> None:
    messages: list[Message] = []
    for number in range(40):
        messages.append(user_words(f"request {number} " + "word " * 200))
        file = {"path": f"file{number}.py", "content": "code " * 2_000}
        messages.append(called("WriteFile", file))
        messages.append(result("output " * 4_000))
    text = conversation_text(messages, budget)
    assert estimate(text) <= budget * 1.25 + 200
    assert "left out" in text
    # The newest is there, and a short argument survives beside a long one.
    assert "file39.py" in text


def test_the_path_stays_beside_a_long_content() -> None:
    text = "x" * 100_000
    long = called("WriteFile", {"content": text, "path": "src/the/path.py", "more": text})
    text = conversation_text([long], 500)
    assert '"path": "src/the/path.py"' in text
    assert len(text) < 5_000
