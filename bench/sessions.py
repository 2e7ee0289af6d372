"""A thousand sessions: `python -m bench.sessions`. How long until the list has its first screenful, has all of them, and has
searched the words of all.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.stored_sessions import store_session  # noqa: E402 - needs the path above

N = 1_000
TURNS = 40


def main() -> None:
    """Measure the list, and print a line for each figure."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["KIMI_TUI_HOME"] = folder
        work = home / "work"
        work.mkdir()
        said = [f"What does part {n} do, and why? " * 8 for n in range(2 * TURNS)]
        for number in range(N):
            title = f"Session number {number}"
            store_session(
                home, work, *said, f"needle-{number}", at=1e9 + number, custom_title=title
            )
        first_s, all_s, found_s, again_s = asyncio.run(_open(home, work))
    print(f"first screenful {first_s * 1e3:.0f} ms, all {N} {all_s * 1e3:.0f} ms")
    print(f"words of all searched {found_s * 1e3:.0f} ms, a further search {again_s * 1e3:.0f} ms")


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what it waits for tells nobody
        await asyncio.sleep(0.001)


async def _open(home: Path, work: Path) -> tuple[float, float, float, float]:
    from kimi_tui.config.model_choice import ModelChoice
    from kimi_tui.launch import Launch
    from kimi_tui.tui.app import KimiApp
    from kimi_tui.tui.sessions.screen import SessionsScreen

    choice = ModelChoice("bench", "http://127.0.0.1:9/v1", "kimi-bench")
    app = KimiApp(Launch(work, home / "config.toml", choice=choice, picks=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(1.0)
        # The first time counts the imports of the session reader, which a running session has done already.
        screen = SessionsScreen(app.launch)
        start = time.perf_counter()
        app.push_screen(screen)
        await _until(lambda: bool(screen.list.rows))
        first_s = time.perf_counter() - start
        await _until(lambda: len(screen.list.rows) == N)
        all_s = time.perf_counter() - start
        found: list[float] = []
        for needle in (f"needle-{N // 2}", "needle-7"):
            start = time.perf_counter()
            screen.action_field("find")
            screen._input.value = needle  # pyright: ignore[reportPrivateUsage]
            parts = (needle,)
            await _until(
                lambda parts=parts: screen.list.parts == parts and bool(screen.list.model.shown)
            )
            found.append(time.perf_counter() - start)
        return first_s, all_s, found[0], found[1]


if __name__ == "__main__":
    main()
