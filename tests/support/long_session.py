"""A long session as a real engine wrote it: 200 checkpoints, 3 D-Mails, 1 compaction, 5 world lines, files on the disk.

It is made once for a run of tests, and its times are set to fixed ones afterwards, so that it looks the same everywhere.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import secrets
import shutil
import string
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config, DMailConfig
from kimi_tui.launch import Launch
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.screen import MainScreen
from support.chat_server import Answer, ChatServer, calls, say
from support.screens import Desk, keys_count
from support.soul import Stage

N_CHECKPOINTS = 200
START = datetime(2024, 3, 2, 9, 0, tzinfo=UTC).timestamp()
WINDOW = 200_000
STILL = Config(theme="dark", reduced_motion=True, hints=False)
RULES = "Write a test for each change, and run all of them before you say that it is done.\n" * 3
"""Additional words of the system prompt, so that its part of the gauge does not depend on the length of a path."""
TITLE = "Importer for bank statements"
MODULES = ("tokenizer", "importer", "ledger", "statement", "währung", "日付")

LOG = "".join(f"2024-03-02 09:14:07 INFO  row {n:04} in 0.8 ms\n" for n in range(400))
SUMMARY = """## Current task

Import bank statements from CSV, with quoted fields, and keep the ledger balanced.

## Done

- `src/tokenizer.py` splits a line at its commas
- `src/ledger.py` adds up what a statement holds
- 42 tests are green

## To do

1. Quoted fields with "" inside
2. Dates as 2024年3月2日
"""
QUOTES_TEST = """from src.tokenizer import run


def test_escaped_quote():
    assert run(['a ""quoted"" word']) == ['a "quoted" word']
"""
LETTERS = (
    "import.log is 24 kB and says nothing but the time of each row: do not read it whole, search it for what is not INFO.",
    "One regular expression for a whole line cannot tell a quote from an escaped one. Read character by character.",
    "日付 stands in the third column, not in the second: look at tests/data/kontoauszug.csv before you change the parser.",
)


@dataclass(frozen=True, slots=True)
class LongSession:
    """The folder of the session, and its id."""

    home: Path
    work: Path
    session_id: str


class _Writer:
    """Makes answers of the model, with the usage that a server would report."""

    def __init__(self) -> None:
        self.used = 5_200
        self.n = 0
        self._steps = {module: place for place, module in enumerate(MODULES)}

    def step(self, *wanted: tuple[str, dict[str, Any]], text: str = "", cost: int = 600) -> Answer:
        usage = (self.used, 40 + len(text) // 4, self.used * 9 // 10)
        self.used += cost
        if not wanted:
            return say(text, usage=usage, piece=400)
        ids = [f"call_{(number := self.n)}_{place}" for place in range(len(wanted))]
        self.n = number + 1
        return calls(wanted, text=text, ids=ids, usage=usage, piece=4_000)

    def work(self, n: int) -> Answer:
        """Return one step of an ordinary day."""
        module = MODULES[n % len(MODULES)]
        path = f"src/{module}.py"
        match n % 5:
            case 0:
                return self.step(("ReadFile", {"path": path}), cost=1_900)
            case 1:
                old, self._steps[module] = self._steps[module], n
                edit = {"old": f"STEP = {old}\n", "new": f"STEP = {n}\n"}
                arguments = {"path": path, "edit": edit}
                return self.step(("StrReplaceFile", arguments), text="I change one line.", cost=700)
            case 2:
                return self.step(
                    ("Grep", {"pattern": "STEP", "path": "src"}), ("Glob", {"pattern": "src/*"})
                )
            case 3:
                source = (
                    f"STEP = {n + 3}\n\n\ndef run(rows):\n    return [row for row in rows if row]\n"
                )
                self._steps[module] = n + 3
                return self.step(("WriteFile", {"path": path, "content": source}), cost=900)
            case _:
                return self.step(
                    ("SetTodoList", {"todos": [{"title": f"Look at {module}", "status": "done"}]}),
                    cost=300,
                )


async def _make(folder: Path, is_short: bool) -> LongSession:
    work = folder / "work"
    (work / "src").mkdir(parents=True)
    (work / "import.log").write_text(LOG)
    (work / "AGENTS.md").write_text(RULES)
    for place, module in enumerate(MODULES):
        (work / "src" / f"{module}.py").write_text(f"STEP = {place}\n")
    async with ChatServer() as server:
        stage = Stage(
            folder, server, window=WINDOW, limits=LoopLimits(dmail=DMailConfig(nudge_tokens=1))
        )
        await stage.open()
        await stage.soul.files_ready()
        await _tell(stage, _Writer(), is_short)
        await stage.soul.rename(TITLE)
        session_id = stage.session.id
        await stage.soul.aclose()
    (work / "src" / "ledger.py").write_text("STEP = 0  # by hand\n")
    return LongSession(folder / "data", work, session_id)


async def _tell(stage: Stage, writer: _Writer, is_short: bool) -> None:
    """Hold the conversation: 3 D-Mails, a compaction and a rewind, between turns of 8 steps; or, to be short, two turns and the last."""
    soul, server = stage.soul, stage.server
    made = 0

    async def turn(text: str, *answers: Answer) -> None:
        nonlocal made
        server.script(*answers)
        await soul.run(text)
        made += 1 + len(answers)

    async def day(n: int) -> None:
        steps = [writer.work(n * 10 + k) for k in range(7)]
        done = writer.step(text=f"Part {n} of the importer is done; the tests are green.")
        await turn(
            f"Go on with part {n}: {MODULES[n % len(MODULES)]}, and keep it short.", *steps, done
        )

    if is_short:
        for n in range(2):
            await day(n)
        await _last(writer, turn, 9)
        return
    for n in range(10):
        await day(n)
    server.script(say(SUMMARY, usage=(writer.used, 300)))
    await soul.compact("")
    # The three checkpoints are the summary's, and those of the last step and user message with their new numbers.
    made += 3
    writer.used = 9_000
    await day(10)
    await _letter(stage, writer, LETTERS[0], turn)
    await day(11)
    # The user leaves a line that led nowhere.
    number = stage.session.context.n_checkpoints
    await turn(
        "Use a regular expression for the whole line.",
        writer.work(301),
        writer.step(("Shell", {"command": "echo '1 failed, 6 passed'; exit 1"}), cost=900),
        writer.step(text="One test fails: quoted fields need more than an expression."),
    )
    await soul.travel.rewind(Target(number))
    await _letter(stage, writer, LETTERS[1], turn)
    for n in range(12, 15):
        await day(n)
    await _letter(stage, writer, LETTERS[2], turn)
    left = N_CHECKPOINTS - made - 3
    while left > 12:
        await day(15 + left)
        left = N_CHECKPOINTS - made - 3
    await _last(writer, turn, left)


async def _last(writer: _Writer, turn: Any, n_steps: int) -> None:
    """Take the turn that ends the session, with so many steps."""
    await turn(
        'Fields with "" inside break the importer. Fix it, with a test.',
        *(writer.work(500 + k) for k in range(n_steps - 4)),
        writer.step(
            ("WriteFile", {"path": "src/ledger.py", "content": "STEP = 9\n" * 14}),
            ("WriteFile", {"path": "tests/test_quotes.py", "content": QUOTES_TEST}),
            cost=1_500,
        ),
        writer.step(("Shell", {"command": "echo '1 failed, 41 passed'; exit 1"}), cost=1_200),
        writer.step(
            text="One index runs past the end of the last line; `src/tokenizer.py` needs a guard."
        ),
    )


async def _letter(stage: Stage, writer: _Writer, letter: str, turn: Any) -> None:
    """Take a turn in which the agent reads a long log and writes to its past self not to read it."""
    to = stage.session.context.n_checkpoints + 1
    used = writer.used
    reading = writer.step(
        ("ReadFile", {"path": "import.log"}), text="The log may name the line.", cost=14_200
    )
    sending = writer.step(("SendDMail", {"message": letter, "checkpoint_id": to}), cost=400)
    writer.used = used + 500
    await turn(
        "Why is the import slow?",
        reading,
        sending,
        writer.step(("Grep", {"pattern": "WARN|ERROR", "path": "import.log"}), cost=300),
        writer.step(text="Nothing in the log is slow; the parser looks at every character twice."),
    )


def _set_times(session: Path) -> None:
    """Give every record in the session's files a time that does not depend on when and how fast it was made."""
    at = START
    times: dict[str, str] = {}
    lines: list[str] = []
    record = session / "wire.jsonl"
    told_before = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    kinds = [told["message"]["type"] if "message" in told else "" for told in told_before]
    last_end = max(n for n, kind in enumerate(kinds) if kind == "TurnEnd")
    for n, told in enumerate(told_before):
        if "timestamp" in told:
            payload = told["message"]["payload"]
            # The number of pieces of a text depends on the machine, and so does the order in which two searches end, so a sum
            # of such times must not lie where it is rounded: the end of the last turn brings that of the model to 953 s.
            at += 0.0 if kinds[n] == "ContentPart" else 0.8 if n != last_end else 20.8
            told["timestamp"] = at
            if "duration_s" in payload:
                payload["duration_s"] = 2.4
            if "uid" in payload and "at" in payload:
                times[payload["uid"]] = payload["at"] = _iso(at)
        lines.append(
            re.sub(r'"(seconds|elapsed_s|duration_s)":[0-9.e-]+', r'"\1":2.4', _json(told))
        )
    record.write_text("\n".join(lines) + "\n", "utf-8")
    for path in (*session.glob("context*.jsonl"), *session.glob("worldlines.jsonl")):
        kept = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for one in kept:
            if "at" in one:
                one["at"] = times.get(one.get("uid", ""), _iso(at))
        path.write_text("".join(_json(one) + "\n" for one in kept), "utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def long_session(is_short: bool = False) -> Generator[LongSession]:
    """Make the session, in a folder whose name always has as many tokens; the agent is told its path.

    Args:
        is_short: leave out all but its first two turns and its last one, which takes an eighth of the time.
    """
    folder = Path(
        "/tmp", f"kimi-tui-{''.join(secrets.choice(string.ascii_lowercase) for _ in range(12))}"
    )
    folder.mkdir(mode=0o700)
    try:
        # On a slow machine the end of the first scan would be shown in the chat, and in the pictures.
        with patch("kimi_tui.soul.file_history._LONG_S", math.inf):
            made = asyncio.run(_make(folder, is_short))
        (session,) = made.home.glob("sessions/*/*/")
        _set_times(session)
        yield made
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def opened(
    session: LongSession, folder: Path, base_url: str, config: Config | None = None
) -> AsyncGenerator[Desk]:
    """Run the app on a copy of the session, until its history is shown.

    Args:
        session: the session.
        folder: the folder for the copy: the program's home.
        base_url: the base URL of the model's server.
        config: the user's configuration.
    """
    shutil.copytree(session.home, folder, dirs_exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    app = KimiApp(
        Launch(
            work_dir=session.work,
            config_path=folder / "config.toml",
            config=config or STILL,
            choice=ModelChoice("moonshot", base_url, "kimi-k2 thinking", window=WINDOW),
            resume=session.session_id,
        )
    )
    with keys_count():
        async with app.run_test(size=(120, 40)) as pilot:
            desk = Desk(app, pilot)
            await desk.ready()
            await pilot.pause()
            yield desk
            for screen in app.screen_stack:
                if isinstance(screen, MainScreen):
                    await screen.conversation.close()
