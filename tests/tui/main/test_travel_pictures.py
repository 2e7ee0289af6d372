"""Pictures of all actions of a preview, of the comparison of two lines, and of bookmarks and pins."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.conversation import Conversation
from support.left_line import left_line
from support.pictures import Pictures, darken, still
from support.still_screen import show_records
from support.story import STORY_PREVIEW, whole_story
from textual.screen import Screen

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.projection.comparison import Comparison
from kimi_tui.session.world_lines import WorldLine
from kimi_tui.soul.rewind_values import (
    END,
    DroppedMessage,
    FilePreview,
    FilesPreview,
    Prospect,
    RewindPreview,
    Target,
)
from kimi_tui.soul.world_line_reader import WorldLineComparison
from kimi_tui.tool_cards import BriefBlock, DiffBlock, DiffLine, ShellBlock
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.frame_rows import HeaderText
from kimi_tui.tui.preview.layout import BRING, FORK, LEAVE, UNDO, actions_at, consequence_rows
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.theme import KIMI_LIGHT
from kimi_tui.wire.events import ApprovalRequest, EventRecord, MarksChanged
from kimi_tui.workspace.diff import DivergedFile, Divergence, LineDiff, SideChange

SIZES = [(120, 40), (80, 24)]


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine, the same home and zone everywhere."""
    still(monkeypatch, tmp_path)


def app(home: Path) -> KimiApp:
    """Return the program in `~/work/importer`."""
    work = home / "work" / "importer"
    work.mkdir(parents=True, exist_ok=True)
    return KimiApp(
        Launch(
            work_dir=work,
            config_path=home / ".config" / "kimi-tui" / "config.toml",
            config=Config(theme="dark", reduced_motion=True, hints=False),
            choice=ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2 thinking"),
        )
    )


def line() -> WorldLine:
    """World line 2, left two hours ago."""
    at = (datetime.now(UTC) - timedelta(hours=2, minutes=1)).isoformat()
    return left_line(2, "rewind", 4, at=at, tokens_before=47_200, messages=14, shared=4)


async def over_the_page(
    home: Path, size: tuple[int, int], page: Screen[Any], picture: Pictures
) -> None:
    """The picture of a screen over the main one."""
    running = app(home)
    async with running.run_test(size=size) as pilot:
        main = await show_records(running, pilot, whole_story().records)
        assert main is running.screen
        running.push_screen(page)
        await pilot.pause()
        await pilot.pause()
        picture(running)


@pytest.mark.exhaustive
async def test_all_actions(tmp_path: Path, picture: Pictures) -> None:
    files = FilesPreview(
        (FilePreview("src/csv/tokenizer.py", "restore", added=3, removed=1),), ran_commands=True
    )
    preview = replace(STORY_PREVIEW, dropped=STORY_PREVIEW.dropped[:1], prompt="", files=files)
    page = RewindScreen(preview, actions=actions_at(11, 0))
    await over_the_page(tmp_path, SIZES[0], page, picture)


UNDONE = RewindPreview(
    target=Target(5),
    label="3 steps since then stay as world line 4.",
    steps=3,
    turns=1,
    messages=6,
    tokens_before=47_500,
    tokens_after=51_200,
    estimated=False,
    dropped=(
        DroppedMessage("agent", "The importer takes it now."),
        DroppedMessage("tool", "src/csv/tokenizer.py", "Edit", tokens=900),
        DroppedMessage("user", "Once more, with a test"),
    ),
    prompt="",
    files=FilesPreview(
        (
            FilePreview("src/csv/tokenizer.py", "restore", added=3, removed=1),
            FilePreview("notes.md", "conflict", "also changed outside kimi-tui", "restore", 2, 0),
            FilePreview("tests/csv/test_quotes.py", "delete", removed=14, is_new=True),
        ),
        goes_along=True,
    ),
    left_as=4,
)
REVIEWED = ApprovalRequest(
    "r",
    "k",
    "SendDMail",
    "Let the agent rewind to #11 with this note (a D-Mail)?",
    "Do not split the fields by hand: the reader of the standard library takes quotes.\n\n"
    "Its tests are in tests/csv.",
    where="now at #15; files unchanged; /undo reverses it",
    kind="dmail",
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [*SIZES, (60, 20)])
async def test_the_toll_of_an_undo_and_a_dmail_that_is_reviewed(
    tmp_path: Path, picture: Pictures, size: tuple[int, int]
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        main = await show_records(running, pilot, whole_story().records)
        toll = RewindScreen(UNDONE, actions=(UNDO,), title="Undo the rewind to #5")
        running.theme = KIMI_LIGHT.name
        running.push_screen(toll)
        await pilot.pause()
        await darken(running, pilot)
        picture(running, "undo")
        running.theme = KIMI_LIGHT.name
        toll.dismiss(None)
        conversation = main.conversation
        asks = conversation.state._replace(approvals=(REVIEWED,), running=True)
        conversation._change(asks)  # pyright: ignore[reportPrivateUsage]
        await pilot.pause()
        # These are the facts that the engine would give, which is missing here.
        found = replace(
            UNDONE,
            target=Target(11),
            steps=5,
            messages=10,
            tokens_before=47_500,
            tokens_after=43_300,
        )
        panel = main.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        panel.toll = partial(consequence_rows, found)
        main.viewer.show_prospect(Prospect(found.target, found.tokens_after))
        await pilot.pause(0.6)
        await darken(running, pilot)
        picture(running, "review")


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [SIZES[1], (60, 20)])
async def test_what_is_asked_of_files_at_a_fork_and_where_a_replay_goes_on(
    tmp_path: Path, picture: Pictures, size: tuple[int, int]
) -> None:
    label = 'Fields with "" inside break the importer. Fix it, with a test.'
    assert UNDONE.files is not None
    # Here the figures are those of the change since then, and not of what an undo does.
    files = FilesPreview(
        tuple(
            replace(one, added=one.removed, removed=one.added) if one.is_new else one
            for one in UNDONE.files.files
        )
    )
    left = replace(
        UNDONE, target=Target(11), label=label, tokens_after=43_300, left_as=0, files=files
    )
    fork = RewindScreen(left, actions=actions_at(11, 0), pending=FORK)
    offer = RewindPreview(
        Target(END),
        "Some files have changed since the last message.",
        *(0, 0, 0, 47_500, 47_500),
        estimated=False,
        dropped=(),
        prompt="",
        files=files,
        is_there=True,
    )
    goes_on = RewindScreen(offer, actions=(LEAVE, BRING), title="Changed files", is_asked_for=False)
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        await show_records(running, pilot, whole_story().records)
        for name, page in (("fork", fork), ("goes-on", goes_on)):
            running.theme = KIMI_LIGHT.name
            running.push_screen(page)
            await darken(running, pilot)
            picture(running, name)
            page.dismiss(None)
            await pilot.pause()


@pytest.mark.sample
@pytest.mark.parametrize("size", SIZES)
async def test_a_comparison(tmp_path: Path, size: tuple[int, int], picture: Pictures) -> None:
    other, live = Conversation(started=0.0), Conversation(started=0.0)
    other.checkpoint, live.checkpoint = 4, 6
    other.user("Use a regular expression for the whole line.")
    other.step(text="A single expression can split most lines. Quoted fields need more.")
    diff = DiffBlock("tokenizer.py", 12, 58, ())
    other.tool("StrReplaceFile", {"path": "tokenizer.py"}, "ok", diff)
    command, failed = "pytest -q tests/csv", ShellBlock("pytest -q tests/csv", 1, 2.2)
    other.step()
    other.tool("Shell", {"command": command}, "4 failed", failed, error=True)
    live.user("Why is the import slow?")
    live.step()
    live.tool("Glob", {"pattern": "src/csv/*"}, "", BriefBlock("6 files"))
    live.checkpoint = 13
    live.letter(8, "Do not read the log.")
    live.checkpoint = 11
    live.user('Fields with "" inside break the importer.')
    live.step(text="The tokenizer ends a field at the first quote.\n" * 7)
    live.checkpoint = 15
    live.step()
    live.tool("Shell", {"command": command}, "1 failed", error=True)
    rows = (DiffLine(" ", 41, "if ch == QUOTE:"), DiffLine("-", 42, "    return"))
    same = SideChange("same")
    files = Divergence(
        (
            DivergedFile(
                "src/csv/tokenizer.py",
                SideChange("changed", "agent", LineDiff(15, 61, rows)),
                SideChange("changed", "agent", LineDiff(3, 1, rows)),
            ),
            DivergedFile(
                "tests/csv/test_quotes.py", same, SideChange("new", "agent", LineDiff(14, 0, ()))
            ),
            DivergedFile("README.md", same, SideChange("changed", "others", LineDiff(1, 1, ()))),
        )
    )
    page = CompareScreen(
        WorldLineComparison(2, 3, live.records, other.records, files, 28_100),
        Comparison.of(other.records, live.records),
        line(),
        used=58_300,
        heading=HeaderText("Fix quoted fields", "~/work/importer", "main", "kimi-k2"),
    )
    await over_the_page(tmp_path, size, page, picture)


async def test_bookmarks_and_pins(tmp_path: Path, picture: Pictures) -> None:
    running = app(tmp_path)
    async with running.run_test(size=SIZES[0]) as pilot:
        main = await show_records(running, pilot, whole_story().records)
        model = main.bench.views.timeline.model
        assert model is not None
        newest, before = model.tree.live[-1], model.tree.live[-3]
        marks = MarksChanged(((before.uid, "before the fix"),), ((newest.uid, 0),))
        main.bench.views.play([EventRecord(0, 0.0, marks)])
        await pilot.press("ctrl+t")
        await pilot.pause()
        picture(running)
