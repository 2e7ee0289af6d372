"""Threads read a line while the event loop appends to it and lets go of what is safe: never a wrong byte."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

import pytest

from kimi_tui.llm.message import user_message
from kimi_tui.session import context_file, context_index
from kimi_tui.session.session import Session

N_MESSAGES = 300


@pytest.mark.exhaustive
async def test_what_threads_read_is_right_whatever_happens_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this limit nearly every sync lets go of something, and nearly every read drops something else.
    monkeypatch.setattr(context_file, "WHOLE_IN_MEMORY_BYTES", 1_000)
    monkeypatch.setattr(context_index, "CACHE_BYTES", 2_000)
    session = Session(tmp_path / "s", tmp_path)
    await session.open()
    context = session.context
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        dice = random.Random(threading.get_ident())
        try:
            while not done.is_set():
                count = len(context.messages)
                if count:
                    place = dice.randrange(count)
                    text = context.messages[place].text
                    if not text.startswith(f"message {place} "):
                        wrong.append(text[:40])
        except Exception as error:
            wrong.append(repr(error))

    readers = [threading.Thread(target=read) for _ in range(4)]
    # Threads take turns all the time, so that they meet in the middle of things.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for reader in readers:
        reader.start()
    for n in range(N_MESSAGES):
        await context.append([user_message(f"message {n} " + "x" * (n % 90))])
        if n % 5 == 0:
            await context.sync()
    done.set()
    sys.setswitchinterval(interval)
    for reader in readers:
        reader.join()
    assert wrong == []
    await session.aclose()
