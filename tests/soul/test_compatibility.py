"""Other programs open what this one wrote: kimi-cli, and the version before the engine said everything by events.

An older version passes over events that it does not know. It reads those that it knows, so these keep their keys and words.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kimi_cli, opened
from support.chat_server import ChatServerThread, say
from support.everything import CAPABILITIES, LIMITS, do_everything
from support.record_shapes import misfits
from support.soul import stage
from wire.test_codec import KINDS, events_of

from kimi_tui.llm.message import Message, TextPart
from kimi_tui.session.store import SessionStore
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import EventRecord

ROOT = Path(__file__).parents[2]
KIMI_CLI = "KIMI_TUI_TESTS_KIMI_CLI"
"""The environment variable that names a Python with kimi-cli, which needs 3.12 or newer."""
OLDER = "6092174c"
"""The commit of the older version."""
SHAPES: dict[str, Any] = json.loads((ROOT / "tests/wire/records_of_6092174c.json").read_text())
"""The records of its events, made by `support/record_shapes.py`."""


@dataclass(frozen=True)
class Stored:
    """A session in which everything was done, and its context as the engine had it at the end."""

    data: Path
    folder: Path
    messages: tuple[Message, ...]
    token_count: int
    n_checkpoints: int
    system_prompt: str | None


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Written once."""
    return asyncio.run(_store(tmp_path_factory.mktemp("everything")))


async def _store(folder: Path) -> Stored:
    data = folder / "data"
    async with stage(folder, data=data, capabilities=CAPABILITIES, limits=LIMITS) as on:
        await do_everything(on)
        context = on.session.context
        return Stored(
            data,
            on.session.dir,
            tuple(context.messages),
            context.token_count,
            context.n_checkpoints,
            context.system_prompt,
        )


@pytest.fixture
def copied(stored: Stored, tmp_path: Path) -> Path:
    """A copy of the data folder, to be gone on in."""
    shutil.copytree(stored.data, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.sample(8)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_read_every_event_that_they_know(kind: type, data: st.DataObject) -> None:
    record = EventRecord(1, 0.0, data.draw(events_of(kind)))
    _assert_readable(encode_record(record))
    _assert_readable(encode_record(record._replace(source="helper")))


def _assert_readable(record: dict[str, Any]) -> bool:
    """Return whether the older version knows such an event. kimi-cli and that version can read each event they know; kimi-cli
    skips the others."""
    line = json.dumps(record)
    kimi_cli.parse_line(line)
    message = json.loads(line)["message"]
    kind = message["type"]
    if kind not in SHAPES:
        return False
    assert not list(misfits(message["payload"], SHAPES[kind], kind))
    return True


# -- kimi-cli ------------------------------------------------------------------------------------------------------


def test_kimi_cli_restores_the_messages_of_the_context(stored: Stored) -> None:
    restored = kimi_cli.restore(stored.folder / "context.jsonl")
    assert [_plain(one) for one in restored.messages] == [_plain(one) for one in stored.messages]
    assert restored.system_prompt == stored.system_prompt
    assert restored.n_checkpoints == stored.n_checkpoints
    assert restored.token_count == stored.token_count


def test_kimi_cli_restores_every_world_line(stored: Stored) -> None:
    session = SessionStore(stored.data).find(stored.folder.name)
    lines = session.world_lines.list()
    assert len(lines) >= 4
    seen = set[str]()
    for line in lines:
        restored = kimi_cli.restore(stored.folder / f"context_{line.n}.jsonl")
        known = session.world_line(line.n).messages
        assert [_plain(one) for one in restored.messages] == [_plain(one) for one in known]
        seen |= {part.type for one in restored.messages for part in one.content}
        seen |= {one.role for one in restored.messages}
    assert seen == {"user", "assistant", "tool", "text", "think", "image_url"}


def _plain(message: Any) -> Any:
    """Return a message of either program."""
    content: Any = message.content
    if isinstance(content, str):
        content = [TextPart(text=content)]
    parts = [
        (part.type, part.image_url.url if part.type == "image_url" else getattr(part, part.type))
        for part in content
    ]
    calls = [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
    ]
    return message.role, parts, calls, message.tool_call_id


@pytest.mark.exhaustive
def test_kimi_cli_replays_the_events_that_it_knows_and_finds_the_title(
    stored: Stored, tmp_path: Path
) -> None:
    record = stored.folder / "wire.jsonl"
    assert "CheckpointCreated" in record.read_text("utf-8")
    assert "RuleApplied" in record.read_text("utf-8")
    assert len(list(kimi_cli.events(record))) > 100
    assert kimi_cli.title(stored.folder) == "Everything at once"
    # Without a title the first turn gives it.
    shutil.copy(record, tmp_path)
    (tmp_path / "state.json").write_text("{}")
    assert kimi_cli.title(tmp_path) == "Write it, as @shot.png shows."


READS = """
import asyncio, json, sys
from pathlib import Path
from kimi_cli.soul.context import Context
from kimi_cli.wire.file import WireFile

async def main():
    folder = Path(sys.argv[1])
    lines = {}
    for path in folder.glob("context*.jsonl"):
        context = Context(path)
        await context.restore()
        lines[path.name] = [m.model_dump(exclude_none=True) for m in context.history]
    kinds = []
    async for record in WireFile(folder / "wire.jsonl").iter_records():
        kinds.append(type(record.to_wire_message()).__name__)
    print(json.dumps([lines, kinds]))

asyncio.run(main())
"""


@pytest.mark.exhaustive
def test_kimi_cli_itself_reads_every_line_and_each_event_that_it_knows(stored: Stored) -> None:
    python = os.environ.get(KIMI_CLI) or sys.executable
    if KIMI_CLI not in os.environ and find_spec("kimi_cli") is None:
        pytest.skip(f"kimi-cli is not installed; {KIMI_CLI} may name a Python that has it")
    command = [python, "-c", READS, str(stored.folder)]
    told = subprocess.run(command, capture_output=True, check=True)
    lines, kinds = json.loads(told.stdout)
    session = SessionStore(stored.data).find(stored.folder.name)
    known = {f"context_{line.n}.jsonl": line.n for line in session.world_lines.list()}
    assert lines.keys() == {"context.jsonl", *known}
    for name, messages in lines.items():
        theirs = [_plain(kimi_cli.KimiMessage.model_validate(one)) for one in messages]
        n = known.get(name)
        ours = stored.messages if n is None else session.world_line(n).messages
        assert theirs == [_plain(one) for one in ours]
    # It refuses none of the records that our model of it reads.
    assert len(kinds) == len(list(kimi_cli.events(stored.folder / "wire.jsonl")))


# -- the older version ---------------------------------------------------------------------------------------------


def test_the_older_version_reads_the_record_of_a_session(stored: Stored) -> None:
    _, *lines = (stored.folder / "wire.jsonl").read_text("utf-8").splitlines()
    assert sum(_assert_readable(json.loads(line)) for line in lines) > 200


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program of the older version, from the history of this one."""
    git = shutil.which("git")
    archive = [git or "git", "-C", str(ROOT), "archive", OLDER, "kimi_tui"]
    made = subprocess.run(archive, capture_output=True) if git else None
    if made is None or made.returncode:
        pytest.skip(f"the commit {OLDER} is not in a git repository around this program")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as tar:
        tar.extractall(folder, filter="data")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.exhaustive
async def test_the_older_version_itself_opens_the_session_and_goes_on_and_so_does_this_one(
    stored: Stored, copied: Path, older: Path
) -> None:
    session_id = stored.folder.name
    (seen,) = await opened.look(copied, session_id)
    with ChatServerThread() as server:
        server.script(say("Like this, from where I stand."))
        command = [sys.executable, opened.__file__, str(copied), session_id, server.base_url]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=-1, stderr=-1, env=os.environ | {"PYTHONPATH": str(older)}
        )
        out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    first, then = json.loads(out)
    assert first == seen
    assert len(then["messages"]) > len(first["messages"])
    assert then["messages"][-1]["content"] == "Like this, from where I stand."
    assert await opened.look(copied, session_id) == [then]
