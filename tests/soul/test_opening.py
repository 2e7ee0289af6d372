"""A session is opened without a screen: what is said where it cannot be, in one line with what to do, and the exit code."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from pathlib import Path
from time import monotonic

import pytest
from support.chat_server import ChatServer, say
from support.soul import launch_at

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config, ModelConfig, ProviderConfig, SandboxConfig
from kimi_tui.launch import NEWEST, CannotOpen, Launch, ModelRefused
from kimi_tui.llm.errors import LLMError
from kimi_tui.session.aside import DELETED
from kimi_tui.session.kimi_cli_import import find_sessions, import_session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul import opening
from kimi_tui.soul.opening import EarlierSession, open_session, provider_of
from kimi_tui.soul.rewind_values import Target


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def test_a_place_that_takes_no_session_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("KIMI_TUI_HOME", str(home / "file"))
    with pytest.raises(CannotOpen, match=r"file; set KIMI_TUI_HOME") as failed:
        await open_session(launch_at(home))
    assert failed.value.code == 1


async def test_an_unknown_dialect_is_told_with_those_there_are(home: Path) -> None:
    with pytest.raises(ModelRefused, match=r"'mine' is not a dialect.*generic") as failed:
        await open_session(launch_at(home, dialect="mine"))
    assert failed.value.code == 2


async def test_only_a_stored_session_is_told_of_before_it_is_open(home: Path) -> None:
    (home / "work").mkdir()
    told: list[EarlierSession] = []
    launch = launch_at(home / "work")._replace(sandbox=False)
    opened = await open_session(launch, told.append)
    await opened.soul.aclose()
    assert told == []


@pytest.mark.exhaustive
async def test_that_there_is_no_sandbox_is_said_unless_it_was_switched_off(home: Path) -> None:
    launch = launch_at(home)._replace(mode="sandboxed", sandbox=True)
    for sandbox, config, is_said in (
        (True, Config(), True),
        (False, Config(), False),
        (True, Config(sandbox=SandboxConfig(enabled=False)), False),
    ):
        # In a folder within the program's own there can be none.
        opened = await open_session(launch._replace(sandbox=sandbox, config=config))
        try:
            assert opened.soul.mode == "ask"
            assert ("no sandbox" in opened.no_sandbox) == is_said
            assert bool(opened.no_sandbox) == is_said
        finally:
            await opened.soul.aclose()


async def test_an_opened_session_makes_the_models_that_kinds_of_sub_agents_name(
    home: Path,
) -> None:
    launch = launch_at(home)._replace(sandbox=False)
    other = ModelConfig("other", provider="own", model="other-model", max_context_size=50_000)
    provider = ProviderConfig("own", base_url="http://127.0.0.1:9/v1", api_key="")
    config = Config(models={"other": other}, providers={"own": provider})
    opened = await open_session(launch._replace(config=config))
    try:
        models = opened.soul.agent_models
        assert models is not None
        made = await models("other", "", "id")
        assert (made.info.model, made.info.window) == ("other-model", 50_000)
        await made.aclose()
        with pytest.raises(LLMError, match="No model of that name"):
            await models("none", "", "id")
    finally:
        await opened.soul.aclose()


async def test_half_a_session_that_a_killed_program_left_is_removed_beside_the_opening(
    home: Path,
) -> None:
    (home / "work").mkdir()
    for _ in range(2):
        left = SessionStore(home).bucket(home / "work") / f"{DELETED}x"
        left.mkdir(parents=True)
        opened = await open_session(launch_at(home / "work"))
        await opened.soul.aclose()
        for thread in [one for one in threading.enumerate() if one.name == "unfinished"]:
            await asyncio.to_thread(thread.join)
        assert not left.exists()


async def test_the_newest_session_of_a_folder_that_may_be_this_one_is_named(home: Path) -> None:
    (home / "older" / "app").mkdir(parents=True)
    work = home / "a" / "app"
    work.mkdir(parents=True)
    for place in (home / "older" / "app", work, work):
        opened = await open_session(launch_at(place)._replace(sandbox=False))
        await opened.soul.session.context.checkpoint(True)
        newest = opened.soul.session.id
        await opened.soul.aclose()
    (home / "older").rename(home / "also gone")
    work.rename(home / "gone")
    # The same name elsewhere.
    work = home / "b" / "app"
    work.mkdir(parents=True)
    opened = await open_session(launch_at(work)._replace(sandbox=False, resume=NEWEST))
    await opened.soul.aclose()
    (said,) = [words for words in opened.notices if "no session yet" in words]
    assert f"run kimi-tui --session {newest[:8]} to continue" in said


SAID = "import os; get_password = lambda *names: os.write(3, "
"""The beginning of a backend that writes its answer itself, to the first free descriptor."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("raise ImportError", r"keyring is not installed. Run pip install 'kimi-tui\[keyring\]'"),
        (
            "get_password = lambda *names: None",
            "the system keyring has no such key. Store it with: keyring set kimi-tui mine",
        ),
        (
            "def get_password(*names): raise OSError('sk-no')",
            "the system keyring does not answer: OSError$",
        ),
        (
            "def get_password(*names): raise SystemExit",
            "the system keyring does not answer: SystemExit$",
        ),
        (
            "import os; get_password = lambda *names: os._exit(3)",
            "the system keyring does not answer$",
        ),
        ("import time; get_password = lambda *names: time.sleep(99)", "does not answer$"),
        (f"{SAID}b'5') and os._exit(0)", "does not answer$"),
        (f"{SAID}b'[' * 60_000) and os._exit(0)", "does not answer$"),
        (f"{SAID}b'{{\"error\": 5}}') and os._exit(0)", "does not answer: 5$"),
        (f"{SAID}b'x' * (1 << 26))", "does not answer$"),
        (
            "def get_password(*names): raise type('a\\x1b]0;b\\x07c', (Exception,), {})",
            "does not answer: ac$",
        ),
        # A process that it started holds the output open.
        (
            "import os, time; get_password = lambda *names: os.fork() and os._exit(0) or time.sleep(99)",
            "answer$",
        ),
        (
            "import os, time; get_password = lambda *names: os.fork() and 'kept' or time.sleep(99)",
            "",
        ),
        ("import getpass; get_password = lambda *names: getpass.getpass()", "answer: EOFError$"),
        ("def get_password(*names): print('no'); return f' {names} \\n'", ""),
        # The backend gets the variables that it needs to find the keyring, and no other key.
        (
            "import os; get_password = lambda *names: {'asked': str(names)}[os.environ.get('MY_MODEL', "
            "os.environ['KEYRING_PROPERTY_A'])]",
            "",
        ),
    ],
)
async def test_a_key_is_taken_from_the_keyring(
    home: Path, monkeypatch: pytest.MonkeyPatch, does: str, said: str
) -> None:
    wait_s = 1.0 if "sleep(99)" in does and "fork" not in does else 30.0
    monkeypatch.setattr("kimi_tui.config.keyring.WAIT_S", wait_s)
    began = monotonic()
    (home / "keyring.py").write_text(does)
    monkeypatch.setenv("PYTHONPATH", str(home))
    monkeypatch.setenv("MY_MODEL", "sk-by-another-name")
    monkeypatch.setenv("KEYRING_PROPERTY_A", "asked")
    launch = launch_at(home)
    assert isinstance(launch.choice, ModelChoice)
    launch = launch._replace(choice=launch.choice._replace(api_key="keyring:mine"))
    if said:
        with pytest.raises(ModelRefused, match=said):
            await provider_of(launch, "s")
        assert monotonic() - began < 20
        return
    async with ChatServer() as server:
        server.script(say("Hi."))
        choice = launch.choice._replace(base_url=server.base_url)  # type: ignore[union-attr]
        opened = await open_session(launch._replace(choice=choice))
        await opened.soul.run("Hello")
        await opened.soul.aclose()
        assert (
            server.requests[-1].headers["authorization"]
            == f"Bearer {'kept' if 'kept' in does else ('kimi-tui', 'mine')}"
        )


async def test_a_fork_whose_model_cannot_be_used_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPEN_ELSEWHERE_S", 0.0)
    launch = launch_at(home)
    assert isinstance(launch.choice, ModelChoice)
    store = SessionStore(home)
    first = store.create(home)
    await first.open()
    first.rename("the first one")
    await first.aclose()
    refused = launch.choice._replace(base_url="http://llm.example.test/v1", api_key="k")

    async def wants_one(held: EarlierSession) -> bool:
        return True

    for is_open in (False, True):
        if is_open:
            await first.open()
        with pytest.raises(ModelRefused, match="unencrypted"):
            await open_session(
                launch._replace(choice=refused, resume=first.id, fork=not is_open),
                wants_fork=wants_one,
            )
        assert [one.name for one in store.newest_first()] == [first.id]
    await first.aclose()
    opened = await open_session(launch._replace(resume=first.id, fork=True))
    await opened.soul.aclose()
    assert len(store.newest_first()) == 2


@pytest.mark.exhaustive
async def test_there_is_one_way_in_for_every_session(home: Path) -> None:
    work = home / "work"
    work.mkdir()
    async with ChatServer() as server:

        async def told(launch: Launch, text: str) -> tuple[str, str, list[str]]:
            """Return the session's id, the id of one forked before its last message, and what was sent."""
            server.script(say("Fine."))
            known: list[EarlierSession] = []
            opened = await open_session(launch, known.append)
            # A fork is one that existed before, too: the first page shows its end.
            assert bool(known) is (launch.resume is not None)
            try:
                await opened.soul.run(text)
                forked = await opened.soul.travel.fork(
                    Target(opened.soul.session.context.checkpoints[-2].id)
                )
            finally:
                await opened.soul.aclose()
            sent = [m["content"] for m in server.requests[-1].messages if m["role"] == "user"]
            asked = [word for word in ("one", "two", "three", "four", "five") if word in str(sent)]
            return opened.soul.session.id, forked.session_id, asked

        launch = launch_at(work)
        assert isinstance(launch.choice, ModelChoice)
        choice = launch.choice._replace(base_url=server.base_url, dialect="generic", window=200_000)
        launch = launch._replace(choice=choice)
        new, _, asked = await told(launch, "one")
        assert asked == ["one"]
        same, branch, asked = await told(launch._replace(resume=new), "two")
        assert (same, asked) == (new, ["one", "two"])
        other, _, asked = await told(launch._replace(resume=branch), "three")
        assert (other, asked) == (branch, ["one", "three"])
        fork, _, asked = await told(launch._replace(resume=new, fork=True), "four")
        assert asked == ["one", "two", "four"]
        assert fork not in (new, branch)
        share = home / "share"
        folder = share / "sessions" / hashlib.md5(str(work).encode()).hexdigest() / "0f0f"
        folder.mkdir(parents=True)
        (share / "kimi.json").write_text(json.dumps({"work_dirs": [{"path": str(work)}]}))
        (folder / "context.jsonl").write_text('{"role": "user", "content": "one of kimi-cli"}\n')
        (found,) = find_sessions(share)
        imported = import_session(SessionStore(home), found).folder.name
        _, _, asked = await told(launch._replace(resume=imported), "five")
        assert asked == ["one", "five"]
