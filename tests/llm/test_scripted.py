from __future__ import annotations

import pytest

from kimi_tui.llm.completion import AnswerItem, RetryPolicy, complete, stream_answer
from kimi_tui.llm.errors import APIStatusError, ContextOverflowError, LLMError
from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.provider import Completion, TextDelta
from kimi_tui.llm.scripted import ScriptedProvider

SCRIPT = """
suggestions = ["first", "second"]
fallback = "Nothing to say."
[model]
name = "demo"
window = 32000

[[answer]]
when = ["first", "begin"]
think = "I think."
text = "One."
  [[answer.calls]]
  name = "ReadFile"
  arguments = { path = "big.log" }

[[answer]]
text = "Too long, I tell myself."
usage = { input = 100, output = 20, cached = 50 }
  [[answer.calls]]
  name = "SendDMail"
  arguments = { message = "skip {said}", checkpoint_id = "{checkpoint_before:big.log}", n = "{checkpoint}", b = ["{checkpoint-1}"] }

[[answer]]
when = "summarise"
aside = true
text = "A summary."

[[answer]]
when = "D-Mail"
text = "Done."

[[answer]]
when = "second"
text = "Two {not a placeholder}."
"""


async def ask(provider: ScriptedProvider, *history: Message) -> Completion:
    seen: list[AnswerItem] = []
    done = await complete(
        stream_answer(provider, "", [], history, policy=RetryPolicy(max_attempts=1)), seen.append
    )
    assert "".join(one.text for one in seen if isinstance(one, TextDelta)) == done.message.text
    return done


def provider(script: str = SCRIPT) -> ScriptedProvider:
    return ScriptedProvider.from_text(script, speed=0)


MARKS = [user_message(f"<system>CHECKPOINT {n}</system>") for n in range(4)]


async def test_the_story_follows_the_person() -> None:
    model = provider()
    assert model.suggestions == ["first", "second"]
    assert (model.info.model, model.info.window) == ("demo", 32_000)
    begun = [MARKS[0], user_message("the first thing"), MARKS[1]]
    one = await ask(model, *begun)
    assert one.finish == "tool_calls"
    assert one.message.thinking == "I think."
    assert not one.usage.estimated
    result = Message(role="tool", tool_call_id="x", content="a lot")
    two = await ask(model, *begun, one.message, result, MARKS[2])
    assert two.message.tool_calls is not None
    arguments = two.message.tool_calls[0].function.arguments
    assert arguments == '{"message": "skip the first thing", "checkpoint_id": 1, "n": 2, "b": [1]}'
    assert (two.usage.input, two.usage.output, two.usage.cached) == (100, 20, 50)
    aside = await ask(model, user_message("Please summarise"))
    assert aside.message.text == "A summary."
    assert (await ask(model, *begun, user_message("a D-Mail came"))).message.text == "Done."
    assert (await ask(model, user_message("second"))).message.text == "Two {not a placeholder}."
    # After a rewind the person asks the first thing again, or something that was never foreseen.
    assert (await ask(model, user_message("begin again"))).message.text == "One."
    assert (await ask(provider(), user_message("what?"))).message.text == "Nothing to say."


async def test_figures_are_a_servers_with_a_cache() -> None:
    model = provider('[[answer]]\ntext = "a"\n[[answer]]\ntext = "b"')
    history = [user_message("one two three")]
    first = await ask(model, *history)
    assert first.usage.cached == 0
    second = await ask(model, *history, first.message, user_message("more words here"))
    assert 0 < second.usage.cached < second.usage.input


@pytest.mark.parametrize("kind", ["connection", "timeout", "stream", "empty", "overflow", "status"])
async def test_errors_are_raised_after_so_many_pieces(kind: str) -> None:
    model = provider(
        f'[[answer]]\ntext = "a b c d"\nerror_after = 2\n[answer.error]\nkind = "{kind}"\nstatus = 429\n'
        'window = 5\nretry_after_s = 1.5\nmessage = "As planned."'
    )
    seen: list[AnswerItem] = []

    async def read() -> None:
        async for item in model.generate("", [], [user_message("x")]):
            seen.append(item)

    with pytest.raises(LLMError, match="As planned") as caught:
        await read()
    assert len(seen) == 2
    if isinstance(caught.value, ContextOverflowError):
        assert caught.value.window == 5
    elif isinstance(caught.value, APIStatusError):
        assert (caught.value.retryable, caught.value.retry_after_s) == (True, 1.5)


def test_a_wrong_script_is_told() -> None:
    with pytest.raises(LLMError, match="not a script"):
        provider("[[answer]]\nwords = 1")
    with pytest.raises(LLMError, match="not a script"):
        provider("oops")


async def test_speed_shortens_every_wait() -> None:
    slow = ScriptedProvider.from_text('[[answer]]\ntext = "a"\npause_s = 30', speed=10_000)
    assert (await ask(slow, user_message("x"))).message.text == "a"
