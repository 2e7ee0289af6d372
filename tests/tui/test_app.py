"""The app over the life of several sessions: each takes the place of the one before, and nothing of that stays."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from weakref import ReferenceType, WeakSet, ref

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk
from textual import events
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.geometry import Offset, Region

from kimi_tui.config.file import read_config
from kimi_tui.config.settings import Config
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.replay.screen import ReplayScreen
from kimi_tui.tui.transcript.transcript import Transcript

STREAM_LIMIT_S = Config().stream_timeout_s
SIZES = ((120, 40), (80, 24), (60, 20))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def by_new(one: Desk) -> None:
    """The command."""
    await one.say("/new")


async def by_fork(one: Desk) -> None:
    """The other command."""
    await one.say("/fork")


async def by_preview(one: Desk) -> None:
    """`n` in the preview of a rewind."""
    await one.say("/rewind 0")
    await one.confirm("n", "Rewind to #0")


async def by_replay(one: Desk) -> None:
    """`c` at the end of a replay."""
    await one.say("/replay")
    await one.until(lambda: isinstance(one.app.screen, ReplayScreen))
    replay = one.app.screen
    await one.until(lambda: replay.focused is not None)
    await one.pilot.press("end")
    await one.sees("Answered.")
    await one.pilot.press("c")


Way = Callable[[Desk], Awaitable[None]]


async def leave(
    one: Desk,
    server: ChatServer,
    way: Way,
    models: list[ReferenceType[TranscriptModel | TimelineModel]] | None = None,
) -> None:
    """Say something, so that there is something to fork, and go on in another session.

    Args:
        one: the app.
        server: its model's.
        way: into the other session.
        models: gets what the session was drawn from.
    """
    server.script(say("Answered."))
    await one.say("A question")
    await one.sees("Answered.")
    await one.idle()
    before = one.screen
    if models is not None:
        chat, timeline = before.transcript._model, before.bench.views.timeline.model
        assert chat is not None
        assert timeline is not None
        models += [ref(chat), ref(timeline)]
        del chat, timeline
    await way(one)
    await one.until(lambda: isinstance(one.app.screen, MainScreen) and one.app.screen is not before)
    await one.ready()


async def resized(one: Desk) -> None:
    """The smallest size, and back to the first."""
    for width, height in (SIZES[-1], SIZES[0]):
        await one.pilot.resize_terminal(width, height)
        await one.until(lambda width=width: one.app.screen.size.width == width)


# The second session was the one that broke, so each way is tried twice, and a new session after each fork.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "ways",
    [
        (by_replay, by_fork, by_new, by_preview),
        pytest.param(
            (by_replay, by_replay, by_fork, by_fork, by_new, by_new, by_preview, by_preview),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["once", "twice"],
)
async def test_one_session_after_another_says_what_it_is_and_keeps_the_mode(
    home: Path, ways: tuple[Way, ...]
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="all") as one:
        await one.ready()
        # The present state goes along, not that with which the program was started.
        await one.say("/mode ask")
        await one.until(lambda: one.screen.conversation.state.mode == "ask")
        for way in ways:
            await leave(one, server, way)
            # A fork looks the same as its origin, so a notice says so.
            if way in (by_fork, by_preview):
                await one.sees("This is a fork (a copy")
            elif way is by_new:
                await one.until(lambda: "This is a fork (a copy" not in one.text())
            await one.sees("kimi-test   ask")
            soul = one.screen.conversation.soul
            assert soul is not None
            assert soul.mode == one.screen.conversation.state.mode == "ask"
            await resized(one)
            assert one.app.screen_stack == [one.screen]
            assert one.screen.prompt.area.has_focus
        server.script(say("Still here."))
        await one.say("And now?")
        await one.sees("Still here.")


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES[1:])
async def test_sessions_follow_one_another_on_small_screens(
    home: Path, size: tuple[int, int]
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        await one.ready()
        for way in (by_new, by_fork, by_new):
            await leave(one, server, way)
            await resized(one)
            await one.pilot.resize_terminal(*size)
        assert one.app.screen_stack == [one.screen]


@pytest.mark.exhaustive
async def test_commands_that_come_too_fast_open_no_two_sessions(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        for _ in range(3):
            one.screen.action_command("new")
        await one.until(lambda: one.app.current_mode != one.app.DEFAULT_MODE)
        await one.ready()
        assert one.app.screen_stack == [one.screen]
        await resized(one)
        before = one.screen
        await one.say("/new")
        await one.until(lambda: one.screen is not before)
        await one.ready()
        await one.pilot.pause()  # none of them is still to come


@pytest.mark.exhaustive
async def test_another_session_parses_no_style_sheet_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Stylesheet] = []
    reparse = Stylesheet.reparse

    def counted(sheet: Stylesheet) -> None:
        parsed.append(sheet)
        reparse(sheet)

    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/theme light")
        await one.sees("The theme is light.")
        server.script(say("Answered."))
        await one.say("A question")
        await one.sees("Answered.")
        await one.idle()
        page = one.screen.styles.background
        monkeypatch.setattr(Stylesheet, "reparse", counted)
        for way in (by_fork, by_new):
            before = one.screen
            await way(one)
            await one.until(lambda before=before: one.app.screen is not before)
            await one.ready()
            assert parsed == []
            assert one.screen.styles.background == page
            assert one.screen.bench.header.styles.height == before.bench.header.styles.height
        await one.say("/theme dark")
        await one.until(lambda: one.screen.styles.background != page)


def count_tasks(name: str) -> int:
    """Return the number of running tasks whose names begin with this text."""
    return sum(task.get_name().startswith(name) for task in asyncio.all_tasks())


@pytest.mark.exhaustive
async def test_nothing_of_the_sessions_before_stays_in_memory(home: Path) -> None:
    screens: list[ReferenceType[MainScreen]] = []
    parts: list[WeakSet[DOMNode]] = []
    models: list[ReferenceType[TranscriptModel | TimelineModel]] = []
    async with ChatServer() as server, desk(home, server.base_url) as one:
        # The event loop forgets a cancelled timer, and its owner, once nothing waits that is due before it. Here something
        # always does, since the limits of the model's answers are after it.
        asyncio.get_running_loop().call_later(STREAM_LIMIT_S - 20, lambda: None)
        await one.ready()
        for _ in range(4):
            screens.append(ref(one.screen))
            await leave(one, server, by_new, models)
            parts.append(WeakSet(one.screen.walk_children(with_self=True)))
        server.script(say("Answered."))
        await one.say("The last question")
        await one.sees("Answered.")
        await one.idle()

        def is_held(session: int) -> bool:
            """Return whether the collector leaves anything of a session that was left."""
            # A thread of the pool holds what it did last, and so the chat that had it import something.
            kept = (
                part
                for part in parts[session - 1]
                if not isinstance(part, Transcript) or part.blocks
            )
            shown = models[2 * session : 2 * session + 2]
            return (
                screens[session]() is not None
                or any(kept)
                or any(model() is not None for model in shown)
            )

        def count_held() -> int:
            # Textual holds the first screen as long as the app runs; what was left last may still be on its way out.
            gc.collect()
            return sum(map(is_held, range(1, len(screens) - 1)))

        # A thread that writes for a session left, and a client that says good-bye, hold it until they are done: one may
        # be held so, but sessions do not pile up.
        await one.until(lambda: count_held() <= 1)
        await one.until(lambda: count_tasks("recorder") == 1)
        await one.until(lambda: count_tasks("message pump MainScreen") == 1)


@pytest.mark.exhaustive
async def test_a_mode_that_was_said_in_words_goes_along(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/mode edits")
        await one.until(lambda: one.screen.conversation.state.mode == "edits")
        await leave(one, server, by_new)
        assert one.screen.conversation.state.mode == "edits"
        await one.say("/plan on")
        await one.sees("changes nothing until you approve")
        assert "Background tasks" not in one.text()
        await one.say("/mode all")
        await one.until(lambda: one.screen.conversation.state.mode == "all")
        server.script(call("Shell", {"command": "sleep 60", "background": True}), say("It runs."))
        await one.say("Start it")
        await one.sees("It runs.")
        await one.idle()
        await one.say("/plan on")
        await one.sees("Background tasks keep running")


@pytest.mark.exhaustive
async def test_a_click_on_what_was_just_taken_away_is_no_crash(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        header = one.screen.bench.header
        at = header.region.offset + Offset(1, 0)
        await header.remove()
        with monkeypatch.context() as before_the_frame:
            # Whether another frame was made meanwhile is chance.
            before_the_frame.setattr(one.screen, "get_widget_at", lambda *at: (header, Region()))
            for kind in (events.MouseMove, events.MouseDown, events.MouseUp):
                await one.app.on_event(kind(None, *at, 0, 0, 1, False, False, False))
        await one.say("/help")
        await one.sees("Esc close")


async def test_a_theme_is_kept_and_an_unknown_one_named(home: Path) -> None:
    path = home / "config.toml"
    path.write_text('# mine\nglyphs = "unicode"\n')
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        before = one.app.theme
        await one.say("/theme mauve")
        await one.sees('There is no theme "mauve".')
        assert one.app.theme == before
        await one.say("/theme light")
        await one.sees("The theme is light.")
        assert read_config(path).theme == "light"
        assert path.read_text().startswith("# mine\n")
        await one.say("/theme")
        await one.until(lambda: read_config(path).theme == "16")


@pytest.mark.exhaustive
async def test_a_theme_is_no_reason_to_hide_the_settings_of_kimi_cli(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = home / "theirs.toml"
    theirs.write_text('default_model = "m"\n')
    monkeypatch.setattr("kimi_tui.tui.app.kimi_cli_config_file", lambda: theirs)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/theme light")
        await one.sees("The theme is light until you quit.")
        assert not (home / "config.toml").exists()


async def test_a_configuration_that_cannot_be_changed_stays(home: Path) -> None:
    path = home / "config.toml"
    path.write_text("theme = [\n")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/theme light")
        await one.sees("was not changed")
        assert path.read_text() == "theme = [\n"
        assert one.app.theme.endswith("light")


@pytest.mark.sample
@pytest.mark.parametrize(
    "command",
    [
        "/help",
        "/rewind 0",
        *(
            pytest.param(command, marks=pytest.mark.exhaustive)
            for command in ("/settings", "/commands", "/dmail 0", "/stats")
        ),
    ],
)
async def test_ctrl_c_twice_quits_over_every_dialog(home: Path, command: str) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(80, 24)) as one:
        server.script(say("Done."))
        await one.ready()
        await one.say("go")
        await one.sees("Done.")
        await one.idle()
        await one.say(command)
        await one.until(lambda: one.app.screen.is_modal)
        await one.pilot.press("ctrl+c")
        await one.until(lambda: any(footer.urgent for footer in one.screen.query(Footer)))
        assert one.app.screen.is_modal
        assert one.app.return_code is None
        await one.pilot.press("ctrl+c")
        await one.until(lambda: one.app.return_code == 0)
