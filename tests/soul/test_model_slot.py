"""Another model in the middle of the work: the answer under way is finished by the one that was asked, and paid once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, gate, say, strict
from support.soul import Stage, stage, until_end

from kimi_tui.filesystem import Storage
from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.session.images import ImageStore
from kimi_tui.soul.model_slot import ModelSlot
from kimi_tui.wire import events as ev


class Model(OpenAICompatible):
    """Knows whether it was closed."""

    def __init__(self, server: ChatServer, name: str) -> None:
        super().__init__(
            provider="test", base_url=server.base_url, api_key="key", model=name, window=200_000
        )
        self.closed = asyncio.Event()

    async def aclose(self) -> None:
        await super().aclose()
        self.closed.set()


async def test_without_a_model_images_are_kept_for_the_one_to_come(tmp_path: Path) -> None:
    slot = ModelSlot(None, RetryPolicy(), ImageStore(tmp_path, Storage()))
    assert slot.sees
    assert slot.name == ""


async def test_the_effort_that_was_chosen_with_a_model_is_asked_of_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        facts = {"provider": "p", "base_url": on.server.base_url, "api_key": "", "model": "m"}
        on.soul.set_provider(OpenAICompatible(**facts, dialect="qwen"), "off")
        assert await on.soul.prepare_model() == ()
        on.server.script(say("Done."))
        await on.soul.run("hi")
        assert on.server.requests[-1].body["enable_thinking"] is False
        on.soul.set_provider(OpenAICompatible(**facts, dialect="generic"))
        (words,) = await on.soul.prepare_model()
        assert words.startswith("Reasoning effort: ")


def models_asked(server: ChatServer) -> list[str]:
    return [request.body["model"] for request in server.requests]


async def answering(on: Stage, server: ChatServer) -> tuple[Model, asyncio.Task[None]]:
    """Return a model in the middle of its answer, which calls a tool."""
    old = Model(server, "old")
    on.soul.set_provider(old)
    server.script(gate(2, call("Glob", {"pattern": "*"}, text="I look at it.")), say("never"))
    turn = asyncio.create_task(until_end(on.soul.run("hi")))
    await server.at_gate.wait()
    return old, turn


@pytest.mark.exhaustive
async def test_another_model_holds_from_the_next_call_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as on, ChatServer(check=strict) as first:
        old, turn = await answering(on, first)
        new = Model(on.server, "new")
        on.server.script(say("done"))
        on.soul.set_provider(new)
        await asyncio.sleep(0)
        assert not old.closed.is_set()
        first.release()
        await turn
        # Asked once, heard to its end, and closed by then.
        assert models_asked(first) == ["old"]
        assert models_asked(on.server) == ["new"]
        assert ("assistant", 'I look at it.\nGlob({"pattern": "*"})') in on.sent()
        assert not on.ear.of(ev.StepRetry)
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        await old.closed.wait()
        assert not new.closed.is_set()
        await on.soul.aclose()
        assert new.closed.is_set()


async def test_several_models_while_one_answers(tmp_path: Path) -> None:
    async with stage(tmp_path) as on, ChatServer(check=strict) as first:
        old, turn = await answering(on, first)
        never, new = Model(on.server, "never"), Model(on.server, "new")
        on.soul.set_provider(never)
        on.soul.set_provider(new)
        # Nobody asks it anything.
        await never.closed.wait()
        on.server.script(say("done"))
        # The first model is set again: it is still open.
        on.soul.set_provider(old)
        assert not old.closed.is_set()
        await new.closed.wait()
        first.release()
        await turn
        assert models_asked(first) == ["old", "old"]
        assert not old.closed.is_set()


async def test_a_stopped_answer_lets_its_model_go(tmp_path: Path) -> None:
    async with stage(tmp_path) as on, ChatServer(check=strict) as first:
        old, turn = await answering(on, first)
        on.soul.set_provider(Model(on.server, "new"))
        await on.soul.interrupt()
        await turn
        await old.closed.wait()
        assert not on.server.requests
