"""Sessions of many messages, held with the real engine and a scripted model, to be opened with `--continue`.

What would take the engine an hour is a few turns that it held, written down again and again with new numbers.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from bench.answers import tokens
from kimi_tui.llm.scripted import (
    Script,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedModel,
    ScriptedProvider,
)
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.assembly import open_soul

MESSAGES_A_TURN = 7
"""Messages of a turn of a long session: the user's, two answers, one result, and three markers."""

NOTES = "notes.txt"
"""The file that the agent reads in such sessions."""

_CHECKPOINTS_A_TURN = 3
_LINE = "{n}: a line of the notes that the agent reads, about sixty characters\n"
# A turn has about 14 kB with its answer, so that 50,000 messages are 100 MB.
_RESULT_BYTES = 10_200
_UID = re.compile(r"\b[0-9a-f]{16}\b")
_ID = re.compile(r'"id":(\d+),"uid"|<system>CHECKPOINT (\d+)</system>')
_SEQ = re.compile(r'"seq":(\d+),')


def write_session(home: Path, work_dir: Path, n_messages: int) -> None:
    """Hold a conversation without tools: half of the messages are the person's, half the agent's.

    Args:
        home: what KIMI_TUI_HOME will be.
        work_dir: the folder in which `--continue` will be called.
        n_messages: the number of messages.
    """
    n_turns = n_messages // 2
    answers = [ScriptedAnswer(when="Question", text="".join(tokens(200)))]
    asyncio.run(_hold(home, work_dir, n_turns, answers))


def write_notes(work_dir: Path, size_bytes: int) -> str:
    """Write the file that the agent reads; return its name. A tool result holds all of it."""
    lines: list[str] = []
    written = 0
    while written < size_bytes:
        lines.append(_LINE.format(n=len(lines)))
        written += len(lines[-1])
    (work_dir / NOTES).write_text("".join(lines))
    return NOTES


def write_long_session(
    home: Path, work_dir: Path, n_messages: int, *, result_bytes: int = _RESULT_BYTES
) -> Path:
    """Write a session in which a file is read in every turn.

    Args:
        home: what KIMI_TUI_HOME will be.
        work_dir: the folder in which `--continue` will be called.
        n_messages: the number of messages, markers of checkpoints included.
        result_bytes: the size in bytes of each tool result.

    Returns:
        The session's folder.
    """
    read = ScriptedCall(name="ReadFile", arguments={"path": write_notes(work_dir, result_bytes)})
    one = [
        ScriptedAnswer(text="I look at the notes.", calls=[read]),
        ScriptedAnswer(text="".join(tokens(200))),
    ]
    folder = asyncio.run(_hold(home, work_dir, 2, one * 2))
    n_turns = n_messages // MESSAGES_A_TURN - 2
    context, record = folder / "context.jsonl", folder / "wire.jsonl"
    lines = context.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if f'"id":{_CHECKPOINTS_A_TURN},' in line)
    _repeat(context, "".join(lines[first:]), n_turns, 0)
    lines = record.read_text().splitlines(keepends=True)
    first = [i for i, line in enumerate(lines) if '"TurnBegin"' in line][-1]
    turn = "".join(lines[first:])
    numbers = [int(found) for found in _SEQ.findall(turn)]
    _repeat(record, turn, n_turns, numbers[-1] - numbers[0] + 1)
    return folder


def first_of_last_turn(n_messages: int) -> int:
    """Return the checkpoint at which the last turn of such a session begins."""
    return (n_messages // MESSAGES_A_TURN - 1) * _CHECKPOINTS_A_TURN


def _repeat(path: Path, turn: str, n_turns: int, seq_step: int) -> None:
    """Append a turn to a file again and again, with new numbers each time."""
    with path.open("a") as file:
        for n in range(1, n_turns + 1):
            file.write(_renumbered(turn, n, seq_step))


def _renumbered(turn: str, n: int, seq_step: int) -> str:
    add = n * _CHECKPOINTS_A_TURN

    def number(found: re.Match[str]) -> str:
        if found[1]:
            return f'"id":{int(found[1]) + add},"uid"'
        return f"<system>CHECKPOINT {int(found[2]) + add}</system>"

    turn = _ID.sub(number, turn)
    # A checkpoint has the same uid in both files, made from its place.
    turn = _UID.sub(
        lambda found: f"{(int(found[0], 16) + n * 0x9E3779B97F4A7C15) % 2**64:016x}", turn
    )
    turn = _SEQ.sub(lambda found: f'"seq":{int(found[1]) + n * seq_step},', turn)
    return turn.replace("Question 2", f"Question {n + 2}")


async def _hold(home: Path, work_dir: Path, n_turns: int, answers: list[ScriptedAnswer]) -> Path:
    script = Script(rate=0, model=ScriptedModel(window=1_000_000), answer=answers)
    session = SessionStore(home).create(work_dir)
    soul = await open_soul(session=session, provider=ScriptedProvider(script, speed=0))
    for n in range(n_turns):
        await soul.run(f"Question {n + 1}: what does the tokenizer do with a quote?")
    await soul.aclose()
    return session.dir
