"""The preview of a rewind: what it says, and how it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.cases import first_only
from support.pictures import Pictures
from support.screens import keys_count
from support.story import STORY_PREVIEW
from textual.app import App
from textual.geometry import Offset

from kimi_tui.soul.rewind_values import (
    DroppedMessage,
    FilePreview,
    FilesPreview,
    RewindPreview,
    Target,
)
from kimi_tui.soul.usage import Cost
from kimi_tui.tool_cards import DiffLine
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.keyboard import QUIET_S
from kimi_tui.tui.preview import layout
from kimi_tui.tui.preview.layout import (
    CONVERSATION_ACTIONS,
    PreviewAction,
    PreviewAnswer,
    actions_at,
)
from kimi_tui.tui.preview.screen import PreviewSheet, RewindScreen
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK

GOES = tuple(STORY_PREVIEW.dropped)
LONG = RewindPreview(
    target=Target(1),
    label="Add a CSV importer",
    steps=65,
    turns=3,
    messages=140,
    tokens_before=158_300,
    tokens_after=22_800,
    estimated=True,
    dropped=(
        DroppedMessage("user", "Why is the import slow?"),
        DroppedMessage("agent", "I look at what the importer does with each line."),
        DroppedMessage("dmail", "Do not read import.log whole.", tokens=300),
        DroppedMessage("summary", "The importer so far."),
        *GOES * 12,
    ),
    prompt="Add",
)


class PreviewApp(App[None]):
    """Shows one preview and keeps its answer."""

    CSS_PATH: ClassVar = sheets("app")

    def __init__(
        self,
        preview: RewindPreview = STORY_PREVIEW,
        *,
        running: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        super().__init__()
        self.register_theme(KIMI_DARK)
        self.theme = KIMI_DARK.name
        self.glyphs = glyphs
        actions = actions_at(6, 3) if preview.target.world_line else CONVERSATION_ACTIONS
        self.shown = RewindScreen(preview, running=running, actions=actions)
        self.answers: list[PreviewAnswer | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.shown, self.answers.append)

    @property
    def rows(self) -> list[str]:
        """The text of the screen."""
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in line).rstrip() for line in strips]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], "rewind"),
        (["r"], "rewind"),
        (["n"], "fork"),
        (["y"], "copy"),
        (["down", "enter"], "fork"),
        (["2", "enter"], "fork"),
        (["9"], None),
        (["down", "down", "down", "up", "enter"], "fork"),
        (["escape"], None),
    ],
)
async def test_keys_answer(keys: list[str], answer: str | None) -> None:
    app = PreviewApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answers == [PreviewAnswer(answer) if answer else None]


async def test_a_click_answers_but_only_on_a_choice() -> None:
    app = PreviewApp()
    async with app.run_test(size=(120, 40)) as pilot:
        row = next(y for y, text in enumerate(app.rows) if "Fork into" in text)
        await pilot.click(offset=(80, row))
        await pilot.pause()
        assert app.answers == []
        # A second click selects the word, a third one the row.
        sheet = app.screen.query_one(PreviewSheet)
        at = Offset(layout.AIR, 1) + sheet.gutter.top_left
        words = sheet.sheet.rows[1].text.strip()
        for times, selected in ((2, words.split()[0]), (3, words)):
            await pilot.click(sheet, offset=at, times=times)
            assert app.screen.get_selected_text() == selected
        assert app.answers == []
        await pilot.click(offset=(20, row))
        await pilot.pause()
        assert app.answers == [PreviewAnswer("fork")]


async def test_the_story_is_told_as_in_the_picture() -> None:
    app = PreviewApp()
    async with app.run_test(size=(120, 40)):
        rows = [row[8:] for row in app.rows if row]
        assert rows[0].startswith("╭─ Rewind to #11 ─")
        assert (
            rows[2].strip("│ ") == 'Fields with "" inside break the importer. Fix it, with a test.'
        )
        assert (
            rows[3]
            == "│   Removes 5 steps, 11 messages; frees 4.6k tokens"
            + " " * 28
            + "context 58.3k → 53.7k   │"
        )
        assert rows[5].startswith(
            "│ ▌ r  Rewind the conversation              Removed from the conversation"
        )
        assert rows[6].startswith(
            "│      files unchanged                      × Shell pytest -q tests/csv"
        )


async def test_a_running_turn_is_said_to_be_stopped_first() -> None:
    app = PreviewApp(LONG, running=True)
    async with app.run_test(size=(80, 24)):
        assert any("! The agent is working. It will be stopped first." in row for row in app.rows)
        assert any("Removes 3 turns, 65 steps, 140 messages" in row for row in app.rows)


async def test_below_a_hundred_columns_tab_shows_what_goes() -> None:
    app = PreviewApp(LONG)
    async with app.run_test(size=(80, 24)) as pilot:
        assert not any("Why is the import slow?" in row for row in app.rows)
        await pilot.press("tab")
        await pilot.pause()
        assert any("● Why is the import slow?" in row for row in app.rows)
        assert any("≡ Summary  The importer so far." in row for row in app.rows)
        await pilot.press("down", "down", "pagedown")
        await pilot.pause()
        assert not any("Why is the import slow?" in row for row in app.rows)
        assert any("↑" in row and "more ↓" in row for row in app.rows)
        # The files are no choice here, so Enter still carries out the selected action.
        await pilot.press("tab", "enter")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("rewind")]


async def test_resizing_lays_out_anew() -> None:
    app = PreviewApp(LONG)
    async with app.run_test(size=(120, 40)) as pilot:
        assert any("Removed from" in row for row in app.rows)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert all(cell_len(row) <= 60 for row in app.rows)
        assert any("Rewind the conversation" in row for row in app.rows)
        assert not any("Removed from" in row for row in app.rows)


@pytest.mark.parametrize(("width", "height"), [(102, 28), (72, 20), (56, 16)])
def test_nine_choices_leave_room_for_the_files_and_for_what_is_not_lost(
    width: int, height: int
) -> None:
    state = layout.PreviewState(WITH_FILES, layout.actions_at(11, 0))
    assert len(state.actions) == 9
    rows = [row.text for row in layout.preview_rows(state, width, height, UNICODE).rows]
    assert sum("Nothing is lost" in row for row in rows) == 1
    assert any("README.md" in row for row in rows) or any("3 files changed" in row for row in rows)
    assert sum("copy" in row.lower() for row in rows) == 1


def test_more_actions_are_data() -> None:
    actions = (
        *CONVERSATION_ACTIONS[:1],
        PreviewAction("f", "both", "Rewind and restore files", "1 file restored, 1 deleted"),
        *CONVERSATION_ACTIONS[1:],
        PreviewAction("d", "dmail", "Send a D-Mail here", group=1),
        PreviewAction("c", "compact_from", "Compact from here on", group=1),
        PreviewAction("p", "compact_to", "Compact up to here", group=1),
    )
    state = layout.PreviewState(STORY_PREVIEW, actions)
    for width, height in ((102, 28), (72, 20), (56, 16)):
        sheet = layout.preview_rows(state, width, height, UNICODE)
        assert len(sheet.rows) <= height
        assert {row.action for row in sheet.rows} == {None, *range(len(actions))}


@pytest.mark.parametrize(("width", "n_rows"), [(106, 1), (72, 2), (56, 2)])
@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Cost((("$", 0.4213),)), "spent on these steps: $0.42"),
        (Cost((("$", 1_204.2),), is_exact=False), "spent on these steps: about $1,204"),
        (Cost((("¥", 0.0031),), is_whole=False), "spent on these steps: at least ¥0.0031"),
    ],
)
def test_what_goes_had_cost_so_much(width: int, n_rows: int, cost: Cost, words: str) -> None:
    state = layout.PreviewState(replace(LONG, cost=cost), CONVERSATION_ACTIONS)
    rows = [row.text for row in layout.preview_rows(state, width, 20, UNICODE).rows]
    found = [number for number, row in enumerate(rows) if words in row.lower()]
    assert found == [1 + n_rows]
    assert "frees" in rows[2]


def test_without_prices_no_money_is_spoken_of() -> None:
    rows = layout.preview_rows(
        layout.PreviewState(LONG, CONVERSATION_ACTIONS), 102, 30, UNICODE
    ).rows
    assert not any("spent" in row.text.lower() for row in rows)


@pytest.mark.exhaustive
@given(
    st.text(max_size=300),
    st.integers(0, 80),
    st.integers(56, 120),
    st.integers(15, 40),
    st.booleans(),
    st.integers(-5, 500),
)
def test_every_row_fits_whatever_the_words(
    words: str, count: int, width: int, height: int, details: bool, scroll: int
) -> None:
    goes = tuple(DroppedMessage("tool", words, words[:9], tokens=count) for _ in range(count))
    preview = RewindPreview(Target(3), words, 1, 1, 1, 9, 3, True, goes, "")
    state = layout.PreviewState(preview, CONVERSATION_ACTIONS, True, details=details)
    state.choices.choose(1)
    state.messages.move(scroll)
    for glyphs in (UNICODE, ASCII):
        sheet = layout.preview_rows(state, width, height, glyphs)
        assert len(sheet.rows) <= height
        for row in sheet.rows:
            assert cell_len(row.text) == width
            assert "\x1b" not in row.text


@pytest.fixture(autouse=True)
def keys_at_once() -> Iterator[None]:
    """Keys count at once; when they do not is a test of the main screen."""
    with keys_count():
        yield


async def test_looks(picture: Pictures) -> None:
    app = PreviewApp()
    async with app.run_test(size=(80, 24)):
        picture(app)


async def test_looks_when_much_goes(picture: Pictures) -> None:
    app = PreviewApp(LONG, running=True, glyphs=ASCII)
    async with app.run_test(size=(120, 40)):
        picture(app)


# -- files ---------------------------------------------------------------------------------------

DIFF = (
    DiffLine(" ", 41, "  if ch == QUOTE:"),
    DiffLine("-", 42, "      return self._field(start, i)"),
    DiffLine("+", 42, "      if text[i + 1 : i + 2] != QUOTE:"),
    DiffLine("+", 43, "          return self._field(start, i)"),
    DiffLine("+", 44, "      i += 1"),
)
FILES = FilesPreview(
    files=(
        FilePreview(
            "README.md", "conflict", "also changed outside kimi-tui", "restore", 2, 0, DIFF[2:4]
        ),
        FilePreview("src/csv/tokenizer.py", "restore", added=3, removed=1, rows=DIFF),
        FilePreview("tests/csv/test_quotes.py", "delete", added=14, rows=DIFF[2:], is_new=True),
    ),
    not_covered=((".venv/", "ignored"),),
    ran_commands=True,
)
WITH_FILES = replace(STORY_PREVIEW, files=FILES)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["f"], PreviewAnswer("rewind", "restore")),
        (["o"], PreviewAnswer("rewind", "only")),
        (["down", "enter"], PreviewAnswer("rewind", "restore")),
        (
            ["tab", "down", "space", "tab", "tab", "f"],
            PreviewAnswer("rewind", "restore", frozenset({"tests/csv/test_quotes.py"})),
        ),
        # Files that need a confirmation come first.
        (
            ["tab", "space", "o"],
            PreviewAnswer("rewind", "only", frozenset({one.path for one in FILES.files})),
        ),
        (["tab", "space", "space", "f"], PreviewAnswer("rewind", "restore")),
        # From a whole diff back to the list, and only from there away.
        (["tab", "enter", "escape", "escape"], None),
        # A fork asks for a word on the files, and so would a D-Mail.
        (["n", "n"], PreviewAnswer("fork")),
        (["n", "f"], PreviewAnswer("fork", "restore")),
        (["n", "escape", "f"], PreviewAnswer("rewind", "restore")),
        (["n", "escape", "escape"], None),
    ],
)
async def test_files_are_chosen(keys: list[str], answer: PreviewAnswer | None) -> None:
    app = PreviewApp(WITH_FILES)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answers == [answer]


async def test_choosing_files_changes_what_the_action_says() -> None:
    app = PreviewApp(WITH_FILES)
    async with app.run_test(size=(120, 40)) as pilot:
        assert any("1 file restored, 1 deleted; 1 kept" in row for row in app.rows)
        assert any(
            "! README.md" in row and "also changed outside kimi-tui; kept" in row
            for row in app.rows
        )
        assert any("No snapshot of: .venv/ (ignored)" in row for row in app.rows)
        await pilot.press("tab", "space")
        await pilot.pause()
        assert any("2 files restored, 1 deleted" in row for row in app.rows)
        assert any("✓ README.md" in row for row in app.rows)


FOREIGN = replace(
    FILES,
    files=(*FILES.files, FilePreview("theirs.md", "restore", "also changed outside kimi-tui")),
    not_covered=tuple((f"folder{n}/", "ignored") for n in range(30)),
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_what_someone_else_changed_is_asked_for_once(size: tuple[int, int]) -> None:
    app = PreviewApp(replace(STORY_PREVIEW, files=FOREIGN))
    async with app.run_test(size=size) as pilot:
        await pilot.press("f")
        await pilot.pause()
        assert app.answers == []
        assert any("Changed outside kimi-tui: theirs.md   f again" in row for row in app.rows)
        await pilot.press("f")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("rewind", "restore")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", ["enter", "f"])
async def test_a_key_right_behind_the_one_that_asked_for_a_word_is_no_word(key: str) -> None:
    with keys_count(QUIET_S):
        await _press_twice(PreviewApp(replace(STORY_PREVIEW, files=FOREIGN)), key)


async def _press_twice(app: PreviewApp, key: str) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.shown.accepts_keys:
            await pilot.pause(0.01)
        await pilot.press("f")
        while not any("f again" in row for row in app.rows):
            await pilot.pause(0.01)
        await pilot.press(key, key)
        await pilot.pause()
        assert app.answers == []
        assert any("too early" in row for row in app.rows)
        while not app.shown.accepts_keys:
            await pilot.pause(0.01)
        await pilot.press(key)
        while not app.answers:
            await pilot.pause(0.01)
        assert app.answers == [PreviewAnswer("rewind", "restore")]


async def test_an_enter_close_behind_a_digit_is_about_its_row() -> None:
    with keys_count(QUIET_S):
        app = PreviewApp(STORY_PREVIEW)
        async with app.run_test(size=(120, 40)) as pilot:
            while not app.shown.accepts_keys:
                await pilot.pause(0.01)
            await pilot.press("2", "enter")
            while not app.shown.accepts_keys:
                await pilot.pause(0.01)
            await pilot.press("enter")
            await pilot.pause()
        assert [one.action for one in app.answers if one] == ["fork"]


@pytest.mark.sample
@pytest.mark.parametrize(
    ("files", "says"),
    [
        (("built",), "during a background task: built"),
        (("built", "theirs.md"), "outside kimi-tui: built"),
    ],
)
async def test_what_a_job_changed_is_not_said_to_be_changed_outside(
    files: tuple[str, ...], says: str
) -> None:
    built = FilePreview("built", "restore", "also changed during a background task")
    listed = [one for one in (built, *FOREIGN.files) if one.path in files]
    app = PreviewApp(replace(STORY_PREVIEW, files=replace(FOREIGN, files=tuple(listed))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f")
        await pilot.pause()
        assert any(f"Changed {says}" in row for row in app.rows), app.rows


@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24), (120, 40)]))
async def test_a_fork_asks_whether_the_files_go_along(size: tuple[int, int]) -> None:
    app = PreviewApp(WITH_FILES)
    async with app.run_test(size=size) as pilot:
        before = len(app.rows)
        await pilot.press("n")
        await pilot.pause()
        assert app.answers == []
        assert any("Fork at #11" in row for row in app.rows)
        assert any("The fork omits 5 steps, 11 messages" in row for row in app.rows)
        assert not any("Removed " in row for row in app.rows)
        if size == (120, 40):
            assert any("Left out of the fork" in row for row in app.rows)
        assert not any("frees" in row for row in app.rows)
        assert any(
            "estore the files as well?" in row or "Restore them as well?" in row for row in app.rows
        )
        assert any("n  Fork and keep the files" in row for row in app.rows)
        assert any("f  Fork and restore the files" in row for row in app.rows)
        assert not any("/undo" in row for row in app.rows)
        # The other actions do not answer that question.
        assert not any("Rewind the conversation" in row for row in app.rows)
        assert len(app.rows) == before


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_what_needs_a_word_is_in_sight_among_many_files(size: tuple[int, int]) -> None:
    many = tuple(FilePreview(f"file{n:02}", "restore", added=1) for n in range(40))
    mine = tuple(
        FilePreview(f"mine{n}", "conflict", "changed outside kimi-tui", "restore") for n in range(4)
    )
    app = PreviewApp(replace(STORY_PREVIEW, files=FilesPreview((*many, *mine))))
    async with app.run_test(size=size) as pilot:
        kept = "" if size == (60, 20) else "; 4 kept"
        assert any(f"40 files restored{kept}" in row for row in app.rows)
        await pilot.press("tab")
        await pilot.pause()
        assert all(any(f"! mine{n}" in row for row in app.rows) for n in range(4))


async def test_what_the_user_has_said_is_not_asked_again() -> None:
    app = PreviewApp(replace(STORY_PREVIEW, files=FOREIGN))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f", "tab", "down", "space", "tab", "tab", "f")
        await pilot.pause()
        others = frozenset(one.path for one in FILES.restorable)
        assert app.answers == [PreviewAnswer("rewind", "restore", others)]


async def test_all_that_is_not_covered_can_be_read() -> None:
    app = PreviewApp(replace(STORY_PREVIEW, files=FOREIGN))
    async with app.run_test(size=(80, 24)) as pilot:
        assert any("No snapshot (30) of: folder0/" in row for row in app.rows)
        await pilot.press("tab", *["down"] * 9, "enter", *["pagedown"] * 5)
        await pilot.pause()
        assert any("folder29/" in row and "ignored" in row for row in app.rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24), (120, 40)]))
async def test_files_that_are_not_seen_are_counted(size: tuple[int, int]) -> None:
    many = tuple(FilePreview(f"file{n:02}", "restore", added=1) for n in range(40))
    app = PreviewApp(replace(STORY_PREVIEW, files=FilesPreview(many)))
    async with app.run_test(size=size) as pilot:

        def counted() -> int:
            row = next(row for row in app.rows if "Files changed since" in row)
            hidden = [int(number) for number in re.findall(r"(\d+) more [↓↑]", row)]
            return len(re.findall(r"file\d\d", "\n".join(app.rows))) + sum(hidden)

        await pilot.press("tab")
        await pilot.pause()
        assert counted() == len(many)
        await pilot.press(*["down"] * 20)
        await pilot.pause()
        assert any("more ↓" in row and "↑" in row for row in app.rows)
        assert counted() == len(many)


async def test_a_change_that_no_line_shows_has_a_word() -> None:
    some = (
        FilePreview("picture", "restore", is_text=False),
        FilePreview("script", "restore", only_rights=True),
    )
    app = PreviewApp(replace(STORY_PREVIEW, files=FilesPreview(some)))
    async with app.run_test(size=(120, 40)) as pilot:
        assert any("picture" in row and "not text" in row for row in app.rows)
        await pilot.press("tab", "down", "enter")
        await pilot.pause()
        assert any("script" in row and "permissions" in row for row in app.rows)
        assert any("Only its permissions changed." in row for row in app.rows)


async def test_the_mouse_chooses_files_and_scrolls_their_diff() -> None:
    rows = tuple(DiffLine("+", n, f"line {n}") for n in range(1, 101))
    one, other = (
        FilePreview("one.py", "restore", added=1),
        FilePreview("b.py", "restore", rows=rows),
    )
    app = PreviewApp(replace(STORY_PREVIEW, files=FilesPreview((one, other))))
    async with app.run_test(size=(120, 40)) as pilot:

        async def click(text: str, shift: int = 0) -> None:
            y, row = next((y, row) for y, row in enumerate(app.rows) if text in row)
            await pilot.click(offset=(row.index(text) + shift, y))
            await pilot.pause()

        await click("b.py")
        assert any("✓ one.py" in row for row in app.rows)
        assert any("line 1" in row for row in app.rows)
        await click("one.py", -2)
        assert any("one.py" in row and "kept" in row for row in app.rows)
        await click("b.py")
        await click("b.py")
        assert not any("one.py" in row for row in app.rows)
        assert isinstance(app.screen, RewindScreen)
        for _ in range(5):
            app.screen.on_mouse_scroll_down()
        await pilot.pause()
        assert any("5 more ↑" in row for row in app.rows)
        await pilot.press("enter", "tab", "tab", "f")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("rewind", "restore", frozenset({"b.py"}))]


async def test_no_number_is_cut_where_there_is_little_room() -> None:
    much = replace(STORY_PREVIEW, turns=12, steps=1_234, messages=45_678, tokens_before=211_000)
    app = PreviewApp(much)
    async with app.run_test(size=(60, 20)):
        assert any("; frees 157k" in row for row in app.rows)


@pytest.mark.exhaustive
async def test_enter_shows_the_whole_diff_of_a_file() -> None:
    rows = tuple(DiffLine("+", n, f"line {n}") for n in range(1, 101))
    files = FilesPreview((FilePreview("long.py", "delete", added=100, rows=rows, is_new=True),))
    app = PreviewApp(replace(STORY_PREVIEW, files=files))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "enter")
        await pilot.press(*["pagedown"] * 20)
        await pilot.pause()
        assert any("100 + line 100" in row for row in app.rows)
        assert any("↑" in row for row in app.rows)
        await pilot.press("enter", "tab", "tab", "r")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("rewind")]


async def test_files_that_cannot_come_back_say_why_and_offer_the_rest() -> None:
    files = FilesPreview(reason="The work folder is a home folder, so there are no file snapshots.")
    app = PreviewApp(replace(STORY_PREVIEW, files=files))
    async with app.run_test(size=(120, 40)) as pilot:
        assert any("The work folder is a home folder" in row for row in app.rows)
        assert not any("Restore files only" in row for row in app.rows)
        await pilot.press("f", "o", "tab", "tab", "enter")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("rewind")]


@pytest.mark.exhaustive
@given(
    st.text(max_size=120),
    st.integers(0, 40),
    st.integers(56, 120),
    st.integers(15, 40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 50),
)
def test_every_row_of_files_fits_whatever_they_are_called(
    name: str, count: int, width: int, height: int, focused: bool, whole: bool, step: int
) -> None:
    fates = ("restore", "create", "delete", "conflict", "skip")
    rows = tuple(DiffLine("+", n, name * 3) for n in range(30))
    some = tuple(
        FilePreview(f"{name}{n}", fates[n % 5], name, "restore", n, n, rows, is_text=n % 3 > 0)
        for n in range(count)
    )
    files = FilesPreview(some, ((name, name),) * 5, (name,), ran_commands=True)
    state = layout.PreviewState(replace(LONG, files=files), CONVERSATION_ACTIONS)
    assert state.files is not None
    state.files.focused, state.files.whole = focused, whole and focused
    state.files.move(step)
    state.files.toggle()
    for glyphs in (UNICODE, ASCII):
        sheet = layout.preview_rows(state, width, height, glyphs)
        assert len(sheet.rows) <= height
        for row in sheet.rows:
            assert cell_len(row.text) == width
            assert "\x1b" not in row.text


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_looks_with_files(picture: Pictures, size: tuple[int, int]) -> None:
    app = PreviewApp(WITH_FILES)
    async with app.run_test(size=size):
        picture(app)


async def test_looks_among_the_files(picture: Pictures) -> None:
    app = PreviewApp(WITH_FILES)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab")
        await pilot.pause()
        picture(app)


THERE = replace(
    STORY_PREVIEW, target=Target(6, 3), steps=1, messages=2, tokens_before=4_300, tokens_after=4_800
)


async def test_a_jump_says_what_it_leaves_and_that_there_is_more() -> None:
    app = PreviewApp(THERE)
    async with app.run_test(size=(120, 40)):
        shown = "\n".join(app.rows)
        assert "╭─ Switch to #6 of world line 3 ─" in shown
        assert "Leaves 1 step, 2 messages; adds 500 tokens" in shown
        assert "4.3k → 4.8k" in shown
        assert "Left as a world line" in shown
        assert "Nothing is lost: the current messages" in shown


def test_a_jump_forward_leaves_nothing() -> None:
    preview = replace(THERE, dropped=(), steps=0, messages=0)
    state = layout.PreviewState(preview, actions_at(6, 3))
    for width, height in ((104, 28), (74, 20), (58, 16)):
        rows = layout.preview_rows(state, width, height, UNICODE).rows
        shown = "\n".join(row.text for row in rows)
        assert "Leaves nothing; adds 500 tokens" in shown
        assert "r  Switch the conversation" in shown
        assert "Rewind" not in shown
        assert "becomes a world line" not in shown.casefold()


def test_the_files_go_along_with_a_jump() -> None:
    state = layout.PreviewState(replace(THERE, files=FILES), actions_at(6, 3))
    assert [(one.name, one.verb) for one in state.actions[:2]] == [
        ("rewind", "switch"),
        ("both", "switch"),
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24), (120, 40)]))
@pytest.mark.parametrize("files", [FILES, FOREIGN])
async def test_the_frame_keeps_still_while_files_are_chosen(
    size: tuple[int, int], files: FilesPreview
) -> None:
    app = PreviewApp(replace(STORY_PREVIEW, files=files))
    async with app.run_test(size=size) as pilot:

        def frame() -> list[int]:
            return [y for y, row in enumerate(app.rows) if row.lstrip()[:1] in ("╭", "╰")]

        before = frame()
        assert len(before) == 2
        for key in ("tab", *["down"] * 5, "enter", "enter", "up", "space", "tab", "tab", "f"):
            await pilot.press(key)
            await pilot.pause()
            if app.answers:
                break
            assert frame() == before, key


def test_at_sixty_cells_the_files_can_be_left_with_esc() -> None:
    state = layout.PreviewState(replace(STORY_PREVIEW, files=FILES), CONVERSATION_ACTIONS)
    assert state.files is not None
    state.files.focused = True
    keys = layout.preview_rows(state, 58, 16, UNICODE).rows[-1]
    assert "Esc cancel" in keys.text


async def test_rows_without_colours_are_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = PreviewApp()
    async with app.run_test(size=(120, 40)) as pilot:
        with monkeypatch.context() as patch:
            patch.setattr(PreviewSheet, "get_component_rich_style", lambda *_, **__: 1 / 0)
            await pilot.press("down")
            await pilot.pause()
            assert any("Rewind the conversation" in row for row in app.rows)
        await pilot.press("up")
        await pilot.pause()
        assert any("Rewind the conversation" in row for row in app.rows)
        await pilot.press("n")
        await pilot.pause()
        assert app.answers == [PreviewAnswer("fork")]


def test_a_call_that_waits_is_not_called_done() -> None:
    waits, ran = (
        DroppedMessage("tool", "a.py", "Write"),
        DroppedMessage("tool", "a.py", "Read", tokens=2),
    )
    signs = [layout.dropped_row(one, 40, UNICODE)[0][0] for one in (waits, ran)]
    assert signs == [f"{UNICODE.running} ", f"{UNICODE.done} "]


def test_a_message_that_alone_goes_is_said_to_come_back() -> None:
    preview = replace(STORY_PREVIEW, dropped=(), steps=2, messages=1)
    state = layout.PreviewState(preview, CONVERSATION_ACTIONS)
    rows = layout.preview_rows(state, 104, 28, UNICODE).rows
    shown = "\n".join(row.text for row in rows)
    assert "Only your message is removed; it returns to the prompt." in shown
    assert "Only the checkpoint" not in shown
