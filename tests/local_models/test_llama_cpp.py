"""A real small model behind llama.cpp's own server: chat, slow reading, titles, full windows.

Its chat template knows no tools, and what it says makes little sense: the tests are about the server. Calls are tested with a
scripted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.llama_server import MODEL, llama_server, missing
from support.soul import Ear, next_event

from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.session.schema import SystemPrompt
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.wire import events as ev

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(600),
]
WINDOW = 1_024
SYSTEM = "You answer in one word."
"""In the place of a prompt of a thousand tokens, which take a minute to read where the machine is busy."""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """A server with one slot."""
    with llama_server(WINDOW, 1, batch=16) as url:
        yield url


@asynccontextmanager
async def talk(folder: Path, base_url: str, **limits: Any) -> AsyncIterator[tuple[KimiSoul, Ear]]:
    """An engine without tools, as the user has it behind `/tools off`."""
    work = folder / "work"
    work.mkdir()
    provider = OpenAICompatible(
        provider="local", base_url=base_url, api_key="", model=MODEL, **limits
    )
    session = SessionStore(folder / "data").create(work)
    await session.open()
    await session.context.append([SystemPrompt(SYSTEM)])
    environ: Mapping[str, str] = {}
    policy = RetryPolicy(max_attempts=1)
    soul = await open_soul(session=session, provider=provider, environ=environ, policy=policy)
    soul.use_tools("off")
    try:
        yield soul, Ear(soul.wire)
    finally:
        await soul.aclose()


def ends(ear: Ear) -> list[ev.TurnEnd]:
    return ear.of(ev.TurnEnd)


SHORT = "Say one word."
LONG = "The quick brown fox jumps over the lazy dog. " * 20
"""About 200 tokens, which the server reads in a dozen batches."""


async def test_it_answers_and_is_known(tmp_path: Path, base_url: str) -> None:
    async with talk(tmp_path, base_url) as (soul, ear):
        await soul.run(SHORT)
        assert ends(ear) == [ev.TurnEnd("done")]
        assert "".join(one.text for one in ear.of(ev.TextPart)).strip()
        status = soul.status
        # The tokens are those that the server counted, and the window is the one that it gives.
        assert (status.estimated, status.limit, status.limit_estimated) == (False, WINDOW, False)
        assert 0 < status.used < WINDOW // 2
        model = soul._conversation.model.info()  # pyright: ignore[reportPrivateUsage]
        assert model is not None
        assert model.one_at_a_time
        # There the next message would wait for a title.
        assert await soul.name_session() == ""


async def test_it_says_how_far_it_has_read(tmp_path: Path, base_url: str) -> None:
    # Far less than it takes to read that.
    async with talk(tmp_path, base_url, stream_timeout_s=0.05) as (soul, ear):
        told = soul.wire.subscribe()
        turn = asyncio.create_task(soul.run(LONG))
        await next_event(told, ev.TextPart)
        # A pause between two of its pieces may be longer than that, too.
        await soul.interrupt()
        await turn
        assert ear.of(ev.StepRetry) == []
        assert ear.of(ev.ApprovalRequest) == []
        read = [(one.read, one.total) for one in ear.of(ev.PromptProgress)]
        assert len(read) > 5
        assert read == sorted(read)
        assert len({total for _, total in read}) == 1
        assert 200 < read[0][1] < 300


async def test_a_stop_while_it_reads_leaves_it_free(tmp_path: Path, base_url: str) -> None:
    async with talk(tmp_path, base_url) as (soul, ear):
        told = soul.wire.subscribe()
        turn = asyncio.create_task(soul.run(LONG[::-1]))
        await next_event(told, ev.PromptProgress)
        await soul.interrupt()
        await turn
        assert ends(ear) == [ev.TurnEnd("interrupted")]
        await soul.run(SHORT)
        assert ends(ear)[-1] == ev.TurnEnd("done")


async def test_a_title_costs_little_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with llama_server(WINDOW, 2, batch=16) as base_url:
        async with talk(tmp_path, base_url) as (soul, ear):
            await soul.run(SHORT)
            before = soul.status.total_output
            assert await soul.name_session()
            assert soul.status.total_output - before <= 64
            naming = asyncio.create_task(soul.name_session())
            await asyncio.sleep(0)
            await soul.run(SHORT)
            assert await naming is None
            assert ends(ear) == [ev.TurnEnd("done")] * 2


async def test_a_window_that_is_full_is_compacted(tmp_path: Path, base_url: str) -> None:
    async with talk(tmp_path, base_url) as (soul, ear):
        for n in range(5):
            await soul.run(f"{n}: {LONG} {SHORT}")
        assert all(one.reason == "done" for one in ends(ear)), ends(ear)
        made = [one for one in ear.of(ev.CompactionEnd) if not one.error]
        assert made
        assert all(one.tokens_after < one.tokens_before for one in made)
        assert soul.status.used < WINDOW
