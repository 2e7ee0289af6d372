"""A session of many messages, held with the real engine and a scripted model, to be opened with `--continue`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.answers import tokens
from kimi_tui.llm.script import Script, ScriptedAnswer, ScriptedModel
from kimi_tui.llm.scripted import ScriptedProvider
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.runtime import open_soul


def write_session(home: Path, work_dir: Path, n_messages: int) -> None:
    """Hold the conversation: half of the messages are the person's, half the agent's.

    Args:
        home: what KIMI_TUI_HOME will be.
        work_dir: the folder in which `--continue` will be called.
        n_messages: how many.
    """
    asyncio.run(_hold(home, work_dir, n_messages // 2))


async def _hold(home: Path, work_dir: Path, n_turns: int) -> None:
    script = Script(
        rate=0,
        model=ScriptedModel(window=1_000_000),
        answer=[ScriptedAnswer(when="Question", text="".join(tokens(200)))],
    )
    session = SessionStore(home).create(work_dir)
    soul = await open_soul(session=session, provider=ScriptedProvider(script, speed=0))
    for n in range(n_turns):
        await soul.run(f"Question {n + 1}: what does the tokenizer do with a quote?")
    await soul.aclose()
