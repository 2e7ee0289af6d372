"""Pictures of the whole screen: sizes, the overlay, approvals, notices and the first run.

All pictures are of the dark theme; that the others differ in nothing but their colours is a test of the themes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.chat_app import show_history
from support.conversation import quoted_fields
from support.pictures import Pictures, darken, still
from support.screens import Desk, no_servers
from support.still_screen import show_records
from support.story import whole_story

from kimi_tui.config.model_choice import ModelChoice, NeedsChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.projection.session_state import Queued
from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.tool_cards import DiffBlock, DiffLine
from kimi_tui.tools.session_tools import MODE_AFTER
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.dialogs.text_screen import figures_screen
from kimi_tui.tui.main.commands.session import TASKS_USE
from kimi_tui.tui.model_setup.welcome import WelcomeScreen
from kimi_tui.tui.notices import Notices
from kimi_tui.tui.theme import KIMI_LIGHT
from kimi_tui.wire.events import ApprovalRequest, EventRecord, StepRetry

SIZES = [(120, 40), (80, 24), (60, 20)]
EDGES = [pytest.param(SIZES[0], id="wide"), pytest.param(SIZES[2], id="narrow")]


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine, the same home and zone everywhere."""
    still(monkeypatch, tmp_path)
    monkeypatch.setattr("kimi_tui.llm.models.local_servers", no_servers)


def app(home: Path, **config: object) -> KimiApp:
    """Return the program in `~/work/importer`."""
    work = home / "work" / "importer"
    work.mkdir(parents=True, exist_ok=True)
    return KimiApp(
        Launch(
            work_dir=work,
            config_path=home / ".config" / "kimi-tui" / "config.toml",
            config=Config(theme="dark", reduced_motion=True, hints=False, **config),  # type: ignore[arg-type]
            choice=ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2 thinking"),
        )
    )


@pytest.mark.sample
@pytest.mark.parametrize("size", SIZES)
async def test_a_conversation(picture: Pictures, tmp_path: Path, size: tuple[int, int]) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        show_history(screen.transcript, quoted_fields().records)
        await pilot.pause()
        picture(running)


@pytest.mark.sample
@pytest.mark.parametrize("size", SIZES[1:])
async def test_the_timeline_over_the_chat(
    picture: Pictures, tmp_path: Path, size: tuple[int, int]
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        show_history(screen.transcript, quoted_fields().records)
        await pilot.press("ctrl+t")
        await pilot.pause()
        picture(running)


@pytest.mark.sample
@pytest.mark.parametrize("size", SIZES)
async def test_what_a_rewind_would_take(
    picture: Pictures, tmp_path: Path, size: tuple[int, int]
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        running.theme = KIMI_LIGHT.name
        await show_records(running, pilot, whole_story().records)
        await pilot.press("ctrl+t", "left_square_bracket", "up")
        await darken(running, pilot)
        picture(running)


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", SIZES)
async def test_nothing_said_yet(picture: Pictures, tmp_path: Path, size: tuple[int, int]) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show_records(running, pilot, ())
        screen.transcript.facts = FolderFacts(184, notes=("AGENTS.md",))
        await pilot.pause()
        picture(running)


COMMAND = ApprovalRequest(
    "r",
    "k",
    "Shell",
    "Run this command?",
    "python -m build --wheel",
    where="in ~/work/importer, at most 60 s; can change files",
    session_offer='Yes, and every "python -m build" in this session',
    changeable=True,
)
EDIT = ApprovalRequest(
    "e",
    "k",
    "StrReplaceFile",
    "Make this edit?",
    "pyproject.toml",
    display=(
        DiffBlock(
            "pyproject.toml",
            2,
            1,
            (
                DiffLine(" ", 11, "[build-system]"),
                DiffLine("-", 12, 'requires = ["setuptools"]'),
                DiffLine("+", 12, 'requires = ["hatchling>=1.27"]'),
                DiffLine("+", 13, 'build-backend = "hatchling.build"'),
                DiffLine(" ", 14, ""),
                DiffLine(" ", 15, "[project]"),
            ),
        ),
    ),
    session_offer="Yes, and allow edits in this folder for this session",
)
PLAN = ApprovalRequest(
    "p",
    "k",
    "ExitPlanMode",
    "Carry out this plan?",
    "# Quoted fields\n\n1. `reader.py`: split at quotes, not at commas.\n2. `test_reader.py`: doubled quotes, empty "
    "fields.\n\nThe writer stays as it is. Checked with `pytest -k reader`.",
    kind="plan",
    options=tuple(MODE_AFTER),
)
QUESTION = ApprovalRequest(
    "q",
    "k",
    "AskUserQuestion",
    "Which parser shall read the files?",
    "csv: The one of the standard library; quotes are its business.\nour own: As today, with quotes added.",
    where="question 1 of 2",
    kind="question",
    options=("csv", "our own"),
)
SEVERAL = replace(QUESTION, where="you can choose several", multi_select=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("asked", "size"),
    [
        pytest.param(COMMAND, SIZES[0], id="command-120"),
        pytest.param(COMMAND, SIZES[2], id="command-60"),
        pytest.param(EDIT, SIZES[1], id="edit-80"),
        pytest.param(PLAN, SIZES[0], id="plan-120"),
        pytest.param(PLAN, SIZES[2], id="plan-60"),
        pytest.param(QUESTION, SIZES[1], id="question-80"),
        pytest.param(SEVERAL, SIZES[0], id="several-120"),
        pytest.param(SEVERAL, SIZES[2], id="several-60"),
    ],
)
async def test_an_approval(
    picture: Pictures, tmp_path: Path, asked: ApprovalRequest, size: tuple[int, int]
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        show_history(screen.transcript, quoted_fields().records)
        state = screen.conversation.state
        screen.conversation._change(  # pyright: ignore[reportPrivateUsage]
            state._replace(approvals=(asked,))
        )
        await pilot.pause()
        panel = screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        # A key counts only once the question has been painted and nothing was pressed for half a second.
        while panel._chosen is None:  # pyright: ignore[reportPrivateUsage]
            panel._quiet._last -= 1.0  # pyright: ignore[reportPrivateUsage]
            panel.refresh()
            await pilot.press("down")
        if asked.multi_select:
            await pilot.press("space", "down")
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES[1:])
async def test_files_behind_an_at(
    picture: Pictures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        files = ["importer/quoting.py", "importer/", "tests/data/a name with blanks.csv"]
        files.append("importer/formats/delimited/readers/quoted_fields/field_scanner.py")
        monkeypatch.setattr(screen.completion.files, "matching", lambda query, count: files)
        show_history(screen.transcript, quoted_fields().records)
        later = Queued("q", "then run the tests of the importer", is_later=True)
        screen.conversation.state = screen.conversation.state._replace(queued=(later,))
        await pilot.press(*"fix @qu", "down")
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
@pytest.mark.parametrize("lists", [False, True], ids=["overload", "jobs"])
async def test_long_work(
    picture: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: bool
) -> None:
    now = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    running = app(tmp_path)
    async with running.run_test(size=(80, 24)) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        reason = "api.moonshot.ai 503: The engine is currently overloaded, please try again later"
        retry = StepRetry(1, 2, 3, 12.0, reason, 503, 540.0)
        show_history(screen.transcript, [EventRecord(1, now, retry)])
        state = screen.conversation.state
        screen.conversation._change(  # pyright: ignore[reportPrivateUsage]
            state._replace(running=True, turn_at=now - 64, step=3, retry_until=now + 12, jobs=2)
        )
        if lists:
            pairs = [
                ("1", "runs for 12 min: npm run dev"),
                ("2", "exit 1 after 41 s: pytest -q --slow tests/importer"),
                ("3", "runs for 3.0 s: python -m http.server 8000"),
            ]
            running.push_screen(figures_screen("Background tasks", TASKS_USE, pairs))
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
async def test_the_menu_of_commands(picture: Pictures, tmp_path: Path) -> None:
    running = app(tmp_path)
    async with running.run_test(size=(120, 40)) as pilot:
        await show_records(running, pilot, whole_story().records)
        await pilot.press(*"/")
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
async def test_a_notice(picture: Pictures, tmp_path: Path) -> None:
    running = app(tmp_path)
    async with running.run_test(size=(120, 40)) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        screen.tell(
            "The session could not be copied",
            level="error",
            advice="No space left on device. Free some space and try again.",
        )
        await pilot.pause()
        # The notice takes rows of its own, and the chat makes room for it a moment later.
        notices = screen.query_one(Notices)
        while not notices.region or screen.transcript.region.bottom > notices.region.y:
            await pilot.pause(0.01)
        await pilot.pause()
        picture(running)


@pytest.mark.sample
@pytest.mark.parametrize("key", ["f1", "ctrl+p"])
@pytest.mark.parametrize("size", EDGES)
async def test_help_and_palette(
    picture: Pictures, tmp_path: Path, size: tuple[int, int], key: str
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        await show_records(running, pilot, whole_story().records)
        await pilot.press(key)
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
async def test_signs_that_every_terminal_has(picture: Pictures, tmp_path: Path) -> None:
    running = app(tmp_path, glyphs="ascii")
    async with running.run_test(size=(80, 24)) as pilot:
        screen = await show_records(running, pilot, whole_story().records)
        show_history(screen.transcript, quoted_fields().records)
        await pilot.press("ctrl+t")
        await pilot.pause()
        picture(running)


@pytest.mark.parametrize("size", EDGES)
async def test_the_first_run(picture: Pictures, tmp_path: Path, size: tuple[int, int]) -> None:
    running = app(tmp_path)
    launch = running.launch._replace(choice=NeedsChoice())
    running = KimiApp(launch)
    async with running.run_test(size=size) as pilot:
        welcome = running.screen
        assert isinstance(welcome, WelcomeScreen)
        while welcome._servers is None:
            await pilot.pause()
        await running.workers.wait_for_complete()
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
async def test_pasting_a_key(picture: Pictures, tmp_path: Path) -> None:
    running = KimiApp(app(tmp_path).launch._replace(choice=NeedsChoice()))
    async with running.run_test(size=(80, 24)) as pilot:
        await pilot.press("1")
        # More characters would make it a pasted text.
        await Desk(running, pilot).sees("paste it here")
        picture(running)
