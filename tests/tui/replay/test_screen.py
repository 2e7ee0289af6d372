"""The replay on a screen: what keys, clicks and the clock do, how it looks, and where continuing leads."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.pictures import Pictures
from support.screens import Desk, desk
from support.story import Teller, moment_at, whole_story
from textual.pilot import Pilot

from kimi_tui.config.model_choice import ModelChoice, NeedsChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.projection.replay import ChangedFiles, PlaybackClock, Replay
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.metadata import read_state
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.record import final_checkpoints
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.replay.player import Player
from kimi_tui.tui.replay.screen import ReplayScreen, load_session
from kimi_tui.tui.replay.scrubber import Scrubber
from kimi_tui.tui.replay.source import RecordedSession, fork_at
from kimi_tui.tui.timeline.timeline import Timeline
from kimi_tui.tui.views import Views
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import EventRecord, FilesChanged, TextPart

CONTEXT = """\
{"role":"_checkpoint","id":0}
{"role":"user","content":"Build an importer"}
{"role":"_checkpoint","id":1}
{"role":"assistant","content":"It is built."}
"""
SIZES = [(120, 40), (80, 24), (60, 20)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, in a zone that is the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def story() -> list[EventRecord]:
    """Return the story of the pictures, with files."""
    records = list(whole_story().records)
    at = next(
        i for i, r in enumerate(records) if getattr(r.event, "label", "") == "Add a CSV importer"
    )
    uid = getattr(records[at + 2].event, "uid", "")
    changed = FilesChanged(uid, ("src/csv/importer.py", "src/csv/tokenizer.py"))
    records.insert(at + 12, EventRecord(0, records[at + 11].at, changed))
    return [EventRecord(seq, r.at, r.event) for seq, r in enumerate(records, 1)]


def stored(home: Path, records: Sequence[EventRecord], context: str = CONTEXT) -> str:
    """Store a session with this record, or without one with this context; return its id."""
    work = home / "work" / "importer"
    work.mkdir(parents=True, exist_ok=True)
    session = SessionStore(home).create(work)
    session.dir.mkdir(parents=True)
    (session.dir / "context.jsonl").write_text(conversation(records) or context)
    for record in records:
        session.record.append(encode_record(record))
    session.record.close()
    session.rename("Fix quoted fields")
    return session.id


def conversation(records: Sequence[EventRecord]) -> str:
    """Return the line at which a record ends, with the least that a conversation can hold."""
    lines: list[dict[str, object]] = []
    for number, uid in enumerate(final_checkpoints(records) or ()):
        lines.append({"role": "_checkpoint", "id": number, "uid": uid})
        lines.append({"role": "user", "content": f"This was said at {number}."})
    return "".join(json.dumps(line) + "\n" for line in lines)


def replaying(home: Path, session: str, *, motion: bool = False, model: bool = True) -> KimiApp:
    """`kimi-tui replay SESSION`."""
    choice = ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2 thinking")
    return KimiApp(
        Launch(
            work_dir=home / "work" / "importer",
            config_path=home / "config.toml",
            config=Config(reduced_motion=not motion),
            choice=choice if model else NeedsChoice(),
            resume=session,
            replay=True,
        )
    )


async def until_read(app: KimiApp, pilot: Pilot[None]) -> ReplayScreen:
    """Wait for the session to be read."""
    one = Desk(app, pilot)
    await one.until(lambda: bool(app.screen.query(Scrubber)))
    await one.until(lambda: app.screen.query_one(Scrubber).has_focus)
    await pilot.pause()
    assert isinstance(app.screen, ReplayScreen)
    return app.screen


def clock_of(screen: ReplayScreen) -> PlaybackClock:
    """Return the clock of a replay."""
    player = screen._player  # pyright: ignore[reportPrivateUsage]
    assert player is not None
    return player.clock


async def settled(pilot: Pilot[None], screen: ReplayScreen) -> None:
    """Wait until the moment that was wanted is on the screen."""
    await pilot.pause()
    player = screen._player  # pyright: ignore[reportPrivateUsage]
    assert player is not None
    await player.settled()
    await pilot.pause()


def seen(app: KimiApp, pilot: Pilot[None]) -> str:
    """Return the text of the screen."""
    return Desk(app, pilot).text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES)
async def test_looks(home: Path, picture: Pictures, size: tuple[int, int]) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=size) as pilot:
        screen = await until_read(app, pilot)
        app.screen.query_one(Scrubber).post_message(Scrubber.PlayheadMoved(_before_dmail(screen)))
        await Desk(app, pilot).sees("next: D-Mail")
        await settled(pilot, screen)
        picture(app)


def _before_dmail(screen: ReplayScreen) -> int:
    recorded = screen._recorded  # pyright: ignore[reportPrivateUsage]
    assert recorded is not None
    dmail = next(mark for mark in recorded.replay.recording.markers if mark.kind == "dmail")
    return recorded.replay.recording.step(dmail.position, -2)


async def test_keys_clicks_and_the_clock_go_through_it(home: Path) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        one, scrubber, clock = Desk(app, pilot), app.screen.query_one(Scrubber), clock_of(screen)
        # Keys go by steps and turns and to the edges.
        assert "replay, read-only" in seen(app, pilot)
        assert "at #0, of 64 steps" in seen(app, pilot)
        await pilot.press("right", "right")
        assert "at #2, of 64 steps" in seen(app, pilot)
        await pilot.press("left")
        assert "at #1, of 64 steps" in seen(app, pilot)
        await pilot.press("end")
        await one.sees("at the end")
        await one.sees("One index runs past the end")
        await pilot.press("left_square_bracket")
        await one.until(lambda: "One index runs past the end" not in seen(app, pilot))
        assert "Fields with" in seen(app, pilot)
        await pilot.press("home")
        assert "at the beginning" in seen(app, pilot)
        # A row of the timeline goes there.
        await pilot.press("end", "t")
        await pilot.press("down", "down", "enter")
        await one.sees("at #9, of 16 steps")
        await pilot.press("escape", "right")
        await one.sees("at #10, of 16 steps")
        await pilot.press("home")
        await settled(pilot, screen)
        # The playhead is dragged.
        await pilot.mouse_down(scrubber, offset=(60, 2))
        await settled(pilot, screen)
        assert "at #0, of" not in seen(app, pilot)
        await pilot.hover(scrubber, offset=(117, 2))
        await pilot.mouse_up(scrubber, offset=(117, 2))
        await one.sees("at the end")
        await pilot.hover(scrubber, offset=(30, 2))
        await settled(pilot, screen)
        assert "at the end" in seen(app, pilot)  # let go
        # The replay plays faster and slower, and stops at the end.
        await pilot.press("home")
        await settled(pilot, screen)
        await pilot.press("space")
        assert "playing  1x" in seen(app, pilot)
        await pilot.press("plus", "plus", "plus", "plus", "plus")
        assert "playing  16x" in seen(app, pilot)
        await pilot.press("minus")
        assert "playing  8x" in seen(app, pilot)
        before = clock.position
        await one.until(lambda: clock.position > before)
        clock.time_s = 10_000.0
        await one.until(lambda: not clock.is_playing)
        await one.sees("One index runs past the end")
        assert "at the end  8x" in seen(app, pilot)


@pytest.fixture
def may_read(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No session is read before this is set."""
    may = threading.Event()

    def told_late(launch: Launch, session: Session | None) -> RecordedSession:
        may.wait()
        return load_session(launch, session)

    monkeypatch.setattr("kimi_tui.tui.replay.screen.load_session", told_late)
    return may


@pytest.mark.exhaustive
async def test_keys_that_were_pressed_too_early_are_not_lost(
    home: Path, may_read: threading.Event
) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        one = Desk(app, pilot)
        await pilot.press("right", "plus", "t")
        may_read.set()
        await one.sees("at #1, of 64 steps")
        await one.until(lambda: app.screen.query_one(Timeline).has_focus)
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        assert clock_of(screen).speed == 2
        await pilot.press("escape", "right")
        await one.sees("at #2, of 64 steps")


@pytest.mark.exhaustive
async def test_a_replay_can_be_left_before_it_was_read(
    home: Path, may_read: threading.Event
) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("escape")
        await pilot.pause()
        assert app.return_code == 0
        may_read.set()


@pytest.mark.exhaustive
async def test_a_session_that_is_open_elsewhere_is_played_and_left_as_it_is(home: Path) -> None:
    name = stored(home, story())
    session = SessionStore(home).find(name)
    lock = SessionLock(session.dir)
    lock.acquire()
    before = {path.name: path.read_bytes() for path in session.dir.iterdir()}
    app = replaying(home, name, model=False)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await pilot.press("end", "home", "c")
        await Desk(app, pilot).sees("There is nothing to continue from")
        await pilot.press("right", "c")
        await Desk(app, pilot).sees("No model is configured")
        await pilot.press("escape")
    assert app.return_code == 0
    assert {path.name: path.read_bytes() for path in session.dir.iterdir()} == before
    lock.release()


async def test_a_session_that_is_not_there_ends_with_one_line(home: Path) -> None:
    stored(home, story())
    app = replaying(home, "nosuch")
    async with app.run_test(size=(120, 40)) as pilot:
        await Desk(app, pilot).until(lambda: app.return_code is not None)
        await app.action_quit()
    assert app.return_code == 2
    assert "nosuch" in app.exit_message


@pytest.mark.exhaustive
async def test_a_dmail_folds_as_it_did_when_it_was_sent(home: Path) -> None:
    app = replaying(home, stored(home, story()), motion=True)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        recorded, clock = screen._recorded, clock_of(screen)  # pyright: ignore[reportPrivateUsage]
        assert recorded is not None
        dmail = next(mark for mark in recorded.replay.recording.markers if mark.kind == "dmail")
        app.screen.query_one(Scrubber).post_message(Scrubber.PlayheadMoved(dmail.position - 1))
        await Desk(app, pilot).sees("next: D-Mail from #12")
        await pilot.press("space")
        await Desk(app, pilot).until(lambda: screen.transcript.is_moving)
        assert clock.position == dmail.position
        await Desk(app, pilot).sees("D-Mail  from #12 to #8")
        await pilot.press("space", "left", "left")
        await settled(pilot, screen)
        assert not screen.transcript.is_moving
        assert "D-Mail  from #12 to #8" not in seen(app, pilot)


@pytest.mark.parametrize(
    ("number", "whole", "n_lines"), [(0, False, 0), (0, True, 2), (1, False, 2), (1, True, 4)]
)
async def test_a_fork_holds_what_is_complete(
    home: Path, number: int, whole: bool, n_lines: int
) -> None:
    session = SessionStore(home).find(stored(home, ()))
    uid = scan_world_line(session.storage, session.dir, 0).checkpoints[number].uid
    forked = await fork_at(session, uid, whole=whole)
    title = read_state(forked.dir).title
    assert title.startswith(f"Fork {'after' if whole else 'at'} #{number}: ")
    kept = (forked.dir / "context.jsonl").read_text()
    assert kept == "".join(CONTEXT.splitlines(keepends=True)[:n_lines])


async def test_a_moment_that_is_nowhere_any_more_cannot_be_forked(home: Path) -> None:
    session = SessionStore(home).find(stored(home, ()))
    with pytest.raises(UnknownWorldLine):
        await fork_at(session, "nowhere", whole=True)


@pytest.mark.exhaustive
async def test_without_a_record_the_conversation_is_told(home: Path) -> None:
    app = replaying(home, stored(home, ()))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await pilot.press("end")
        await Desk(app, pilot).sees("Build an importer")
        await Desk(app, pilot).sees("It is built.")
        await pilot.press("left")
        assert "It is built." not in seen(app, pilot)


async def test_without_the_size_of_the_window_the_tokens_are_told(home: Path) -> None:
    app = replaying(home, stored(home, (), CONTEXT + '{"role":"_usage","token_count":5200}\n'))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await pilot.press("end")
        shown = await Desk(app, pilot).sees("5.2k tokens")
        gauge = next(line for line in shown.splitlines() if "5.2k tokens" in line)
        assert "%" not in gauge
        assert "█" in "".join(line[80:] for line in shown.splitlines()[:12])


@pytest.mark.exhaustive
async def test_a_damaged_record_is_completed_from_the_conversation(home: Path) -> None:
    name = stored(home, story())
    folder = SessionStore(home).find(name).dir
    record = (folder / "wire.jsonl").read_bytes().splitlines(keepends=True)
    record[40:43] = [b'{"timestamp":1,"mess\n', b"\x00\xff\n", b"{}\n"]
    (folder / "wire.jsonl").write_bytes(b"".join(record[:-120])[:-20])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    app = replaying(home, name)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await pilot.press("end")
        shown = await Desk(app, pilot).sees("This was said at 16.")
        assert "at #16, of 16 steps" in shown
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


async def test_an_empty_session_is_said_to_be_one(home: Path) -> None:
    name = stored(home, ())
    (SessionStore(home).find(name).dir / "context.jsonl").write_bytes(b"")
    app = replaying(home, name)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await Desk(app, pilot).sees("This session has no event log, so there is nothing to replay.")
        await pilot.press("space", "right", "left", "end", "home", "c")
        await Desk(app, pilot).sees("There is nothing to continue from")


async def test_a_text_appears_as_it_was_streamed(home: Path) -> None:
    words = "These words came one after another, for a minute. " * 20
    teller = Teller()
    teller.turn("Tell me.")
    teller.begin_step()
    teller.tell(TextPart(words))
    teller.tell(TextPart("The end."), after_s=60.0)
    teller.end()
    app = replaying(home, stored(home, teller.records))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        assert "These words" not in seen(app, pilot)
        clock = clock_of(screen)
        await pilot.press("plus", "plus", "space")
        await Desk(app, pilot).sees("These words came")
        await pilot.press("space")
        await pilot.pause()
        position = clock.position
        assert isinstance(teller.records[position].event, TextPart)
        assert seen(app, pilot).count("These words came") < 20
        # The rest of it comes when its time has come, and nothing twice.
        await pilot.press("space")
        clock.time_s = 10_000.0
        shown = await Desk(app, pilot).sees("The end.")
        chat = " ".join(" ".join(line[:80] for line in shown.splitlines()).split())
        assert chat.count("These words came one after another, for a minute.") == 20
        screen.on_scrubber_playhead_moved(Scrubber.PlayheadMoved(position))
        await Desk(app, pilot).until(lambda: "These words" not in seen(app, pilot))


@pytest.mark.exhaustive
async def test_from_the_command_line_into_a_fork(home: Path) -> None:
    name = stored(home, ())
    app = replaying(home, name)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await pilot.press("end")
        await Desk(app, pilot).sees("It is built.")
        left = app.screen
        await pilot.press("c")
        await Desk(app, pilot).until(lambda: isinstance(app.screen, MainScreen))
        one = Desk(app, pilot)
        await one.ready()
        await one.sees("This is a fork")
        await one.sees("It is built.")
        await one.until(lambda: not left.is_running)
        assert app.screen_stack == [app.screen]
        session = one.screen.conversation.soul
        assert session is not None
        assert session.session.id != name
        await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_continuing_waits_for_the_moment_that_was_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = replaying(home, stored(home, ()))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        assert "It is built." not in seen(app, pilot)
        may_arrive = asyncio.Event()
        seek = Player._show

        async def seek_late(player: Player, position: int) -> None:
            await may_arrive.wait()
            await seek(player, position)

        monkeypatch.setattr(Player, "_show", seek_late)
        await pilot.press("end", "c")
        await pilot.pause()
        assert app.screen is screen
        may_arrive.set()
        one = Desk(app, pilot)
        await one.until(lambda: isinstance(app.screen, MainScreen))
        await one.ready()
        await one.sees("It is built.")
        await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_from_the_timeline_into_a_fork(home: Path) -> None:
    (home / "app").mkdir()
    (home / "app" / "a.txt").write_text("contents of a")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            call("ReadFile", {"path": "a.txt"}), say("First answer."), say("Second answer.")
        )
        await one.ready()
        await one.say("First question")
        await one.sees("First answer.")
        await one.idle()
        await one.say("Second question")
        await one.sees("Second answer.")
        await one.idle()
        original = one.screen.conversation.soul
        assert original is not None
        await one.pilot.press("ctrl+t", "p")
        await one.until(lambda: isinstance(one.app.screen, ReplayScreen))
        await until_read(one.app, one.pilot)
        assert "First answer." not in one.text()
        await one.pilot.press("right", "right")
        shown = await one.sees("First answer.")
        assert "Second question" not in shown
        await one.pilot.press("c")
        await one.until(lambda: isinstance(one.app.screen, MainScreen))
        await one.until(lambda: one.screen.conversation.soul not in (None, original))
        await one.ready()
        server.script(say("Third answer."))
        await one.say("Another question")
        await one.sees("Third answer.")
        await one.idle()
        told = str(server.requests[-1].body["messages"])
        assert "First answer." in told
        assert "Second question" not in told
        assert "contents of a" in told


# -- faults: told in a notice, and the replay can be used on


FAULT = "kimi-tui had an internal error"


async def broken(*_: object, **__: object) -> None:
    raise RuntimeError("a fault")


def test_an_event_that_a_reducer_cannot_take_does_not_keep_the_others_from_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = ChangedFiles.apply

    def fails(model: ChangedFiles, record: EventRecord) -> bool:
        if isinstance(record.event, FilesChanged):
            raise RuntimeError("a fault")
        return apply(model, record)

    monkeypatch.setattr(ChangedFiles, "apply", fails)
    replay = Replay(story())
    assert [str(fault) for fault in replay.faults] == ["a fault"]
    assert moment_at(replay, replay.recording.end).session.chat.blocks


@pytest.mark.exhaustive
async def test_a_session_in_which_something_cannot_be_shown_is_played_and_that_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = ChangedFiles.apply

    def fails(model: ChangedFiles, record: EventRecord) -> bool:
        if isinstance(record.event, FilesChanged):
            raise RuntimeError("a fault")
        return apply(model, record)

    monkeypatch.setattr(ChangedFiles, "apply", fails)
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_read(app, pilot)
        await Desk(app, pilot).sees(FAULT)
        await pilot.press("end")
        await Desk(app, pilot).sees("One index runs past the end")


async def test_a_fault_while_it_is_read_leaves_the_way_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(launch: Launch, session: Session | None) -> RecordedSession:
        raise RuntimeError("a fault")

    monkeypatch.setattr("kimi_tui.tui.replay.screen.load_session", fails)
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        await Desk(app, pilot).sees(FAULT)
        await pilot.press("right", "c", "t", "escape")
        await Desk(app, pilot).until(lambda: app.return_code == 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fault_while_a_moment_is_brought_on_view(
    home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    app = replaying(home, stored(home, story()))
    seek = Player._show

    async def fails(player: Player, position: int) -> None:
        if when == "after":
            await seek(player, position)
        raise RuntimeError("a fault")

    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        with monkeypatch.context() as patch:
            patch.setattr(Player, "_show", fails)
            await pilot.press("right")
            await settled(pilot, screen)
        await Desk(app, pilot).sees(FAULT)
        await pilot.press("right")
        await settled(pilot, screen)
        assert "at #2, of 64 steps" in seen(app, pilot)


@pytest.mark.exhaustive
async def test_a_fault_while_it_plays_stops_it_at_the_same_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        one = Desk(app, pilot)
        screen = await until_read(app, pilot)
        clock = clock_of(screen)
        with monkeypatch.context() as patch:
            patch.setattr(Views, "play", lambda *_, **__: 1 / 0)
            await pilot.press("plus", "plus", "plus", "plus", "space")
            await one.sees(FAULT)
            await one.until(lambda: not clock.is_playing)
            await settled(pilot, screen)
        reached = clock.position
        assert "paused" in seen(app, pilot)
        await pilot.press("space")
        await one.until(lambda: clock.position > reached)
        clock.time_s = 10_000.0
        shown = await one.sees("One index runs past the end")
        assert shown.count("One index runs past the end") == 1


@pytest.mark.exhaustive
async def test_a_fault_while_it_is_forked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = replaying(home, stored(home, ()))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        with monkeypatch.context() as patch:
            patch.setattr("kimi_tui.tui.replay.source.forked", broken)
            await pilot.press("end", "c")
            await Desk(app, pilot).sees(FAULT)
        await pilot.press("left")
        await settled(pilot, screen)
        assert app.screen is screen
        await pilot.press("c")
        await Desk(app, pilot).until(lambda: isinstance(app.screen, MainScreen))
        one = Desk(app, pilot)
        await one.ready()
        await one.screen.conversation.close()


@pytest.mark.exhaustive
async def test_what_is_copied_in_a_replay_is_said(home: Path) -> None:
    app = replaying(home, stored(home, story()))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await until_read(app, pilot)
        await pilot.press("end")
        await Desk(app, pilot).sees("One index runs past the end")
        screen.transcript.copy_answer()
        await Desk(app, pilot).sees("Copied the last answer")
        assert app.clipboard
        screen.transcript.copy_code()
        await Desk(app, pilot).sees("There is no code block to copy here.")
