"""The approval: shows all of what will happen, takes no key too early, and no answer by accident."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.effort import n_calls
from textual import events
from textual.app import App, ComposeResult
from textual.keys import _character_to_key  # pyright: ignore[reportPrivateUsage]
from textual.pilot import Pilot

from kimi_tui.tool_cards import DiffBlock, DiffLine
from kimi_tui.tui.approval.model import (
    FEW_ROWS,
    Choice,
    answer_of_word,
    choices,
    counts,
    detail_rows,
    may_be_changed,
    visible,
    visible_code,
    wrapped,
)
from kimi_tui.tui.approval.panel import (
    AWAY,
    BESIDE_ROWS,
    ENTER_ANSWERS,
    ApprovalPanel,
    PanelLayout,
    _answer_rows,  # pyright: ignore[reportPrivateUsage]
    detail_row,
)
from kimi_tui.tui.frame_rows import TINY_BELOW
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.keyboard import QUIET_S, LetterRun, QuietKeyboard
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK
from kimi_tui.wire.events import ApprovalRequest, RequestKind


@pytest.fixture(autouse=True)
def settle_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let letters answer at once, unless a test says how long they wait."""
    monkeypatch.setattr(LetterRun, "DEBOUNCE_S", getattr(request, "param", 0.0))


def request(detail: str = "python -m build", **more: object) -> ApprovalRequest:
    """Return a request for a command."""
    values = {"id": "r", "key": "k", "tool": "Shell", "question": "Run this command?"}
    values |= {"changeable": True, **more}
    return ApprovalRequest(detail=detail, where="in ~/app, for at most 60 s", **values)  # type: ignore[arg-type]


EDIT = DiffBlock(
    "pyproject.toml",
    2,
    1,
    (
        DiffLine(" ", 11, "[build-system]"),
        DiffLine("-", 12, 'requires = ["setuptools"]'),
        DiffLine("+", 12, 'requires = ["hatchling"]'),
        DiffLine("+", 13, "\tbackend = 1"),
    ),
)

# --- what is shown


@given(st.text(max_size=300), st.integers(8, 60))
def test_nothing_of_a_command_is_ever_cut(command: str, width: int) -> None:
    rows = list(detail_rows(request(command), width))
    assert all(cell_len(row.text) <= width for row in rows)
    shown = "".join(row.text for row in rows)
    assert shown == visible(command).replace("\n", "")
    assert all(character.isprintable() for character in shown)


def test_what_hides_is_written_out() -> None:
    (row,) = detail_rows(request("ls \u202egpj\x1b[2K" + " " * 60 + "; rm -rf x"), 200)
    assert "<U+202E>" in row.text
    assert "<U+001B>" in row.text
    assert "<60 spaces>" in row.text
    assert row.text.endswith("rm -rf x")


def test_a_diff_is_shown_whole_with_numbers_and_signs() -> None:
    asked = request("", display=(EDIT,))
    rows = list(detail_rows(asked, 60))
    assert [row.kind for row in rows] == ["same", "delete", "add", "add"]
    assert rows[1].margin == " 12 − "
    assert rows[3].text == "→   backend = 1"
    assert counts(asked) == (2, 1)


def test_several_files_are_named() -> None:
    other = DiffBlock("b.py", 0, 0, (), created=True)
    rows = list(detail_rows(request("", display=(EDIT, other)), 60))
    assert [row.text for row in rows if row.kind == "path"] == ["pyproject.toml", "b.py"]
    assert rows[-1].text == "an empty file"


def test_long_lines_of_a_diff_go_on_under_their_margin() -> None:
    block = DiffBlock("a", 1, 0, (DiffLine("+", 1, "x" * 50),))
    rows = list(detail_rows(request("", display=(block,)), 30))
    assert "".join(row.text for row in rows) == "x" * 50
    assert rows[1].margin.strip() == ""
    assert len(rows[1].margin) == len(rows[0].margin)


def test_signs_that_every_terminal_has() -> None:
    rows = list(detail_rows(request("", display=(EDIT,)), 60, ASCII))
    assert "".join(f"{row.margin}{row.text}" for row in rows).isascii()
    assert "12 - " in rows[1].margin


def test_tabs_go_to_the_next_stop() -> None:
    assert visible_code("a\tb\t\tc") == "a→  b→  →   c"
    assert wrapped("", 5) == [""]


def test_a_yes_for_the_session_only_where_one_is_offered() -> None:
    assert [choice.key for choice in choices(request())] == ["y", "n", "e"]
    offered = request(session_offer="Yes, and allow edits in this folder for this session")
    assert [choice.key for choice in choices(offered)] == ["y", "a", "n", "e"]


def test_words_answer_as_the_key_of_an_answer_or_as_an_option() -> None:
    asked = choices(request(kind="question", options=("In the `config`", "b")))
    found = {word: answer_of_word(asked, word) for word in ("in the config ", "B", "yes", "in", "")}
    assert {word: one.says for word, one in found.items() if one is not None} == {
        "in the config ": "In the `config`",
        "B": "b",
    }
    yes_or_no = {word: answer_of_word(choices(request()), word) for word in ("OK", "no", "y x")}
    assert {word: one.then for word, one in yes_or_no.items() if one is not None} == {
        "OK": "once",
        "no": "no",
    }


@pytest.mark.parametrize("height", [5, 6, 8, 10, 12])
def test_the_keys_stay_on_a_low_screen_and_what_is_cut_is_in_the_details(height: int) -> None:
    asked = request(question="Run this command in the folder of the work?")
    answers = choices(asked)
    laid = PanelLayout(
        asked, answers, 24, height, UNICODE, waiting=1, chosen=None, accepts_keys=True
    )
    assert laid.keys is not None or height == 12
    # Below eight rows the header and the gauge are left out; the details have a row, and one that says which it is.
    around = 2 if height < TINY_BELOW else 4
    assert around + laid.n_rows + 2 <= height
    rows = [span.text for line in (*laid.question, *laid.place) for span in line.spans]
    shown = " ".join(" ".join([*rows, *laid.moved]).split())
    assert asked.question in shown or "folder of the work?" in shown
    assert "for at most 60 s" in shown


# --- when it may be answered


@pytest.mark.exhaustive
@given(st.lists(st.floats(0, 2), max_size=30))
def test_a_key_counts_only_after_half_a_second_of_quiet(waits: list[float]) -> None:
    quiet = QuietKeyboard(now=100.0, last_key_at=99.0)
    now = last = 100.0
    for wait in waits:
        now += wait
        accepted = quiet.accepts(now)
        assert accepted == (now - last >= QUIET_S)
        if not accepted:
            last = now


def test_keys_that_were_read_before_it_was_painted_and_handled_later_are_no_quiet() -> None:
    quiet = QuietKeyboard(now=100.0, last_key_at=96.0)
    assert not any(quiet.accepts(at) for at in (97.0, 97.6, 98.5, 99.9, 100.4))
    assert quiet.accepts(101.0)


async def test_no_key_counts_before_the_terminal_has_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = False
    monkeypatch.setattr("kimi_tui.tui.terminal_input.has_arrived", lambda node, mark: taken)
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.panel._quiet = QuietAlready(0.0, 0.0)  # pyright: ignore[reportPrivateUsage]
        await press(pilot, "y", "y")
        assert desk.answers == []
        assert not desk.panel.accepts_keys
        taken = True
        while not desk.panel.accepts_keys:
            await pilot.pause(0.01)
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


def test_what_was_typed_before_it_appeared_counts_too() -> None:
    assert QuietKeyboard(now=10.0, last_key_at=10.0).remaining_s(10.2) == pytest.approx(0.3)


# --- the panel


class QuietAlready(QuietKeyboard):
    """A keyboard that was quiet for long."""

    def restart(self, now: float) -> None:
        """Do nothing: the keyboard stays quiet."""


class Desk(App[None]):
    """A panel, and what it answered."""

    CSS_PATH = sheets("app", "rows", "approval")

    def __init__(self, asked: ApprovalRequest) -> None:
        super().__init__()
        self.register_theme(KIMI_DARK)
        self.theme = "kimi-dark"
        self.written: list[str] = []
        self.panel = ApprovalPanel(asked, 0.0, {}, write=self.written.append)
        self.answers: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        """Return the panel alone."""
        yield self.panel

    async def on_event(self, event: events.Event) -> None:
        """Ask the panel first, as the main screen does."""
        if not (
            isinstance(event, events.Key)
            and not event.is_forwarded
            and self.focused in (None, self.panel)
            and await self.panel.intercept(event)
        ):
            await super().on_event(event)

    def on_approval_panel_answered(self, event: ApprovalPanel.Answered) -> None:
        """Note it."""
        self.answers.append((event.answer, event.feedback))

    def wait_out(self) -> None:
        """Let the quiet half second be over, without waiting for it."""
        for watch in (self.panel._paint, self.panel._turning):  # pyright: ignore[reportPrivateUsage]
            # On a busy machine the panel may be painted only after this, which must not count either.
            watch._n_begun += 1  # pyright: ignore[reportPrivateUsage]
            watch.seen_at = 0.0
        self.panel._quiet = QuietAlready(0.0, 0.0)  # pyright: ignore[reportPrivateUsage]

    def text(self) -> str:
        """Return the text of the panel."""
        return "\n".join(line.text for line in self.panel.lay_out(self.panel.size.width))


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, one after another; after a key that opens the field, wait until that is visible."""
    assert isinstance(pilot.app, Desk)
    panel = pilot.app.panel
    for key in keys:
        await pilot.press(key)
        if field(pilot.app).display:
            await until(pilot, lambda: not panel._opening.waits)  # pyright: ignore[reportPrivateUsage]
    await pilot.pause()


@pytest.mark.exhaustive
async def test_a_key_that_comes_too_early_answers_nothing() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        # Half a second may pass between two keys of a test.
        desk.panel._quiet = QuietKeyboard(time.monotonic(), 0.0, 600.0)  # pyright: ignore[reportPrivateUsage]
        before = len(desk.panel._timers)  # pyright: ignore[reportPrivateUsage]
        await press(pilot, "y", "enter", "n", *"x" * 9)
        assert desk.answers == []
        assert not desk.panel.accepts_keys
        # Only one timer checks for quiet, however long a key is held.
        assert len(desk.panel._timers) <= before + 1  # pyright: ignore[reportPrivateUsage]
        desk.wait_out()
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


@pytest.mark.parametrize(("key", "answer"), [("y", "once"), ("a", "session"), ("n", "no")])
async def test_a_letter_answers_at_once(key: str, answer: str) -> None:
    desk = Desk(request(session_offer="Yes, always"))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, key)
        assert desk.answers == [(answer, "")]


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("1",), ("once", "Go on")),
        (("down", "enter"), ("once", "Go on")),
        (("e", *"no", "enter"), ("once", "no")),
        (("n",), ("no", "")),
    ],
)
async def test_a_pause_is_answered_as_any_question(
    keys: tuple[str, ...], answer: tuple[str, str]
) -> None:
    pause = request("Shell make", kind="pause", key="", tool="", question="It goes in circles.")
    pause = replace(
        pause, options=("Go on",), words_offer="Tell the agent", no_offer="Stop the turn"
    )
    desk = Desk(pause)
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        shown = desk.text()
        assert "1  Go on" in shown
        assert "e  Tell the agent" in shown
        assert "n  Stop the turn" in shown
        await press(pilot, *keys)
        assert desk.answers == [answer]


async def test_a_pause_without_details_has_no_row_for_them() -> None:
    asked = request("", kind="pause", key="", tool="", question="Keep waiting for the answer?")
    asked = replace(asked, where="", options=("Wait on",), no_offer="Stop the turn")
    desk = Desk(asked)
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        rows = [row.strip("▌ ") for row in desk.text().split("\n")]
        asks, waits = rows.index("Keep waiting for the answer?"), rows.index("1  Wait on")
        assert waits - asks == 2
        await press(pilot, "1")
        assert desk.answers == [("once", "Wait on")]


def typed(desk: Desk, words: str, *, gap_s: float = 0.05) -> None:
    """Letters that were read one after the other, the last of them now."""
    # A busy machine may stop this process between two letters.
    now = time.monotonic()
    for place, letter in enumerate(words):
        event = events.Key(_character_to_key(letter), letter)
        event.time = now - gap_s * (len(words) - 1 - place)
        desk.post_message(event)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until something holds."""
    async with asyncio.timeout(20):
        while not condition():
            await pilot.pause(0.01)


@pytest.mark.exhaustive
@pytest.mark.parametrize("settle_s", [0.25], indirect=True)
async def test_prose_that_begins_with_an_answer_is_none() -> None:
    kinds = (
        (request(session_offer="Yes, always"), ("yes, stop", "a better way", "no", "east", "y.")),
        (letter(), ("change it", "nyan")),
        (request(kind="question", options=("a", "b")), ("2 of them", "1 ", "no idea")),
        (request(kind="plan", options=("go",)), ("could you", "1.")),
    )
    for asked, prose in kinds:
        desk = Desk(asked)
        async with desk.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: not desk.panel._paint.waits)  # noqa: B023  # pyright: ignore[reportPrivateUsage]
            desk.wait_out()
            for words in prose:
                typed(desk, words)
                await until(pilot, lambda words=words: "".join(desk.written) == words)  # noqa: B023
                desk.written.clear()
                await pilot.pause(0.3)
            # Any other key after a letter shows that it was no answer; a letter without an answer does nothing.
            for key in ("down", "escape", "pagedown"):
                typed(desk, "n")
                desk.post_message(events.Key(key, None))
            typed(desk, "x")
            await pilot.pause(0.5)
            assert desk.answers == []
            assert desk.written == []
            assert not field(desk).display


@pytest.mark.exhaustive
@pytest.mark.parametrize("settle_s", [0.25], indirect=True)
async def test_a_letter_answers_when_it_has_settled() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not desk.panel._paint.waits)  # pyright: ignore[reportPrivateUsage]
        desk.wait_out()
        # A held letter counts once, and answers when it is released.
        typed(desk, "nnnn")
        await pilot.pause()
        assert desk.answers == []
        await until(pilot, lambda: desk.answers == [("no", "")])
        # Enter after the letter confirms it as an answer.
        typed(desk, "y")
        desk.post_message(events.Key("enter", "\r"))
        await pilot.pause()
        assert desk.answers[1:] == [("once", "")]
        # If the program was stopped meanwhile, that is known before the letter acts.
        typed(desk, "y")
        await pilot.pause()
        time.sleep(0.6)  # noqa: ASYNC251
        await asyncio.sleep(0.05)
        desk.panel.restart_wait()
        await pilot.pause(0.6)
        assert desk.answers[2:] == []
        # A letter that continues a text from before the question is prose at once.
        desk.panel._letters.continue_prose(time.monotonic())  # pyright: ignore[reportPrivateUsage]
        typed(desk, "n")
        await until(pilot, lambda: desk.written == ["n"])
        # Text that is typed right after the key that opens the field goes into it.
        await pilot.pause(0.3)
        desk.post_message(events.Key("ctrl+g", None))
        typed(desk, "a")
        await pilot.pause()
        assert field(desk).text == "python -m builda"


@pytest.mark.parametrize("settle_s", [0.25], indirect=True)
async def test_a_letter_that_was_held_from_before_answers_nothing() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not desk.panel._paint.waits)  # pyright: ignore[reportPrivateUsage]
        # Half a second was over at the tenth of these.
        desk.panel._quiet = QuietKeyboard(time.monotonic() - 1.0, 0.0)  # pyright: ignore[reportPrivateUsage]
        typed(desk, "y" * 20)
        await pilot.pause(0.6)
        assert desk.answers == []
        typed(desk, "y")
        await until(pilot, lambda: desk.answers == [("once", "")])


async def test_enter_answers_only_what_the_arrows_chose() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "enter", "enter")
        assert desk.answers == []
        await press(pilot, "down", "down", "enter")
        assert desk.answers == [("no", "")]


async def test_a_digit_chooses_a_row_and_enter_answers() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.panel._quiet = QuietKeyboard(time.monotonic(), 0.0, 600.0)  # pyright: ignore[reportPrivateUsage]
        await press(pilot, "2", "enter")
        assert (desk.panel._chosen, desk.answers) == (None, [])  # pyright: ignore[reportPrivateUsage]
        desk.wait_out()
        await press(pilot, "2")
        assert desk.answers == []
        assert ENTER_ANSWERS in desk.text()
        assert ("1-3 ↑↓ Enter", "choose") in desk.panel.hints
        # There is no fourth.
        await press(pilot, "4")
        assert desk.answers == []
        assert '"4" is not an answer.' in desk.text()
        assert desk.panel._chosen == 1  # pyright: ignore[reportPrivateUsage]
        desk.wait_out()
        await press(pilot, "1", "2", "enter")
        assert desk.answers == [("no", "")]


async def test_a_digit_leads_to_no_yes_before_the_end_was_on_the_screen() -> None:
    desk = Desk(request("\n".join(f"command {n}" for n in range(40))))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "1", "enter")
        assert desk.answers == []
        assert "Read to the end first" in desk.text()


@pytest.mark.parametrize("settle_s", [0.25], indirect=True)
async def test_a_digit_that_begins_a_word_chooses_nothing() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not desk.panel._paint.waits)  # pyright: ignore[reportPrivateUsage]
        desk.wait_out()
        typed(desk, "2 files")
        await until(pilot, lambda: "".join(desk.written) == "2 files")
        assert (desk.panel._chosen, desk.answers) == (None, [])  # pyright: ignore[reportPrivateUsage]


async def test_a_click_waits_for_the_quiet_too() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        y = next(y for y, row in enumerate(desk.text().split("\n")) if "Yes, once" in row)
        await until(pilot, lambda: not desk.panel._placing.waits)  # pyright: ignore[reportPrivateUsage]
        click = events.MouseUp(None, 8, y, 0, 0, 1, False, False, False)
        assert desk.panel.refuses_click(click)
        await until(pilot, lambda: desk.panel.accepts_keys)
        # Handled now, and read before.
        assert desk.panel.refuses_click(click)
        desk.wait_out()
        assert not desk.panel.refuses_click(click)
        desk.panel.waiting = 2
        await pilot.pause()
        assert not desk.panel.refuses_click(click)
        # The rows stand elsewhere than they did when it was read.
        await pilot.resize_terminal(80, 40)
        await until(pilot, lambda: row_of(desk, "Yes, once") != y)
        await pilot.pause()
        # From when that could be seen.
        await until(pilot, lambda: not desk.panel._placing.waits)  # pyright: ignore[reportPrivateUsage]
        moved = events.MouseUp(None, 8, row_of(desk, "Yes, once"), 0, 0, 1, False, False, False)
        assert not desk.panel.refuses_click(moved)
        moved.time = click.time
        assert desk.panel.refuses_click(moved)
        await pilot.click(ApprovalPanel, offset=(8, row_of(desk, "Yes, once")))
        assert desk.answers == [("once", "")]


async def test_a_narrow_question_is_clicked_where_its_answers_stand() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(50, 24)) as pilot:
        desk.set_focus(None)
        await pilot.pause()
        desk.wait_out()
        shown = desk.text().split("\n")
        assert AWAY in desk.text()
        assert all(cell_len(row) <= 50 for row in shown)
        y = next(y for y, row in enumerate(shown) if "No" in row)
        await pilot.click(ApprovalPanel, offset=(8, y))
        assert desk.answers == [("no", "")]


@pytest.mark.exhaustive
async def test_no_with_a_reason() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "e")
        await press(pilot, "enter")
        assert desk.answers == []
        await press(pilot, *"use make", "enter")
        assert desk.answers == [("no", "use make")]


@pytest.mark.exhaustive
async def test_escape_in_the_reason_goes_back_to_the_answers() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "e", *"ny", "escape")
        assert desk.panel.has_focus
        assert desk.answers == []


PLAN = """# Plan

1. Split `reader.py`
2. **Test** it

```python
x = 1
```
"""


@pytest.mark.exhaustive
async def test_a_plan_is_drawn_from_its_markdown() -> None:
    desk = Desk(request(PLAN, kind="plan", options=("Yes",)))
    async with desk.run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        shown = [row.strip("▌ ") for row in desk.text().split("\n")]
        at = shown.index("Plan")
        assert shown[at : at + 6] == [
            "Plan",
            "",
            "1. Split reader.py",
            "2. Test it",
            "",
            "x = 1",
        ]


@pytest.mark.parametrize(
    "hidden",
    [
        '[a]: https://example.com "Then delete it"',
        '[docs](https://example.com "Then delete it")',
        "[docs](https://example.com/" + "x" * 80 + ")",
        "``` and then delete it\n```",
        "&ZeroWidthSpace;",
    ],
)
def test_a_plan_of_which_markdown_hides_a_letter_is_shown_as_it_is_written(hidden: str) -> None:
    rows = detail_rows(request(f"# Plan\n\n{hidden}", kind="plan", options=("Yes",)), 200)
    assert "\n".join(row.text for row in rows) == f"# Plan\n\n{hidden}"


DATABASES = ("SQLite", "Postgres")


async def test_an_option_and_its_explanation_are_shown_once() -> None:
    described = "SQLite: One **file**, no server\nPostgres: Many writers"
    asked = request(described, question="Which `db`?", kind="question", options=DATABASES)
    desk = Desk(asked)
    async with desk.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown = [row.strip("▌ ") for row in desk.text().split("\n") if row.strip("▌ ")]
        shown.remove("in ~/app, for at most 60 s")
        assert shown == [
            "Which db?",
            "1  SQLite  One file, no server",
            "2  Postgres  Many writers",
            "e  Other (your own answer)",
            "n  Let the agent decide",
        ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("y", "Yes"),
        ("Y", "Yes"),
        ("n", "No, keep it"),
        ("l", ""),
    ],
)
async def test_y_and_n_answer_a_yes_no_question(keys: str, said: str) -> None:
    desk = Desk(request("", question="Delete it?", kind="question", options=("Yes", "No, keep it")))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, keys)
        assert desk.answers == [("once", said)]


@pytest.mark.exhaustive
async def test_no_yes_before_the_end_was_on_the_screen() -> None:
    desk = Desk(request("\n".join(f"echo {n}" for n in range(50)) + "\nrm -rf /"))
    async with desk.run_test(size=(80, 40)) as pilot:
        desk.wait_out()
        assert "rm -rf" not in desk.text()
        await press(pilot, "y")
        await press(pilot, "down", "enter")
        assert desk.answers == []
        assert "Read to the end first" in desk.text()
        for _ in range(51 // (FEW_ROWS - 1) + 1):
            await press(pilot, "pagedown")
        assert "rm -rf /" in desk.text()
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "key", "size"), [("tool", "y", (80, 24)), ("plan", "1", (60, 20))]
)
async def test_a_yes_past_the_middle_is_asked_for_twice(
    kind: RequestKind, key: str, size: tuple[int, int]
) -> None:
    text = "\n".join(f"- echo {n}" for n in range(50))
    desk = Desk(request(text, kind=kind, options=("Yes",)))
    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        await press(pilot, "end")
        await press(pilot, key)
        assert desk.answers == []
        assert re.search(r"you have seen only rows 1 to (7|12)", desk.text())
        if kind == "plan":
            await press(pilot, "c", "escape")
        await press(pilot, key)
        assert desk.answers == [("once", "Yes" if kind == "plan" else "")]
        # A user who scrolls back to where they were has read all of it.
    text = "\n".join(f"- echo {n}" for n in range(50))
    desk = Desk(request(text, kind=kind, options=("Yes",)))
    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        await press(pilot, "end")
        await press(pilot, "home")
        for _ in range(50):
            await press(pilot, "pagedown")
        await press(pilot, key)
        assert [answer for answer, _ in desk.answers] == ["once"]


@pytest.mark.sample
@pytest.mark.parametrize("text", ["x\n" * 50_000, "界" * 9_000, "x" * 100_000])
async def test_what_no_field_can_hold_is_not_changed_there(text: str) -> None:
    for kind in ("plan", "dmail"):
        desk = Desk(request(text, kind=kind, options=("Yes",)))
        async with desk.run_test(size=(60, 20)) as pilot:
            desk.wait_out()
            await press(pilot, "end")
            await press(pilot, "c")
            await press(pilot, "c")
            assert not field(desk).display
            assert "let me edit it first" not in desk.text()
            assert "too long to edit here" in desk.text()
    assert not may_be_changed(request(text))


async def test_a_long_change_is_laid_out_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    # However fast the machine is, each slice ends with its first rows.
    monkeypatch.setattr("kimi_tui.tui.approval.model.LAID_OUT_S", 0.0)
    lines = (*(DiffLine("+", n, "x") for n in range(40_000)), DiffLine("+", 40_000, "y " * 100_000))
    desk = Desk(request("a.py", display=(DiffBlock("a.py", 40_001, 0, lines),)))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        assert "loading more" in desk.text()
        await press(pilot, "end")
        await press(pilot, "y")
        assert desk.answers == []
        detail = desk.panel._detail  # pyright: ignore[reportPrivateUsage]
        while not detail.is_laid_out:
            assert n_calls(detail.lay_out) < 10_000
        await press(pilot, "end")
        assert re.search(r"rows \d+ to (\d+) of \1$", desk.text(), re.M)
        await press(pilot, "y")
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


async def test_a_plan_is_read_before_it_is_changed() -> None:
    desk = Desk(request("\n".join(f"{n}. x" for n in range(50)), kind="plan", options=("Yes",)))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "c")
        assert not field(desk).display
        assert "Read to the end first" in desk.text()


@pytest.mark.exhaustive
async def test_a_command_is_edited_before_it_runs() -> None:
    desk = Desk(request("pytest -q"))
    async with desk.run_test(size=(120, 40)) as pilot:
        desk.wait_out()
        assert ("Ctrl+G", "edit the command") in desk.panel.hints
        await press(pilot, "ctrl+g")
        assert field(desk).has_focus
        assert field(desk).text == "pytest -q"
        assert "Run this command" in desk.text()
        await press(pilot, *" -x")
        assert desk.answers == []
        await press(pilot, "enter")
        assert desk.answers == [("once", "pytest -q -x")]


async def test_a_command_that_was_only_looked_at_runs_as_it_was_asked_for() -> None:
    desk = Desk(request("pytest -q"))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "ctrl+g", "enter")
        assert desk.answers == [("once", "")]


@pytest.mark.parametrize(
    "asked",
    [
        request("a.py", tool="WriteFile", changeable=False, display=(EDIT,)),
        request("ls \u202egpj"),
        request("ls" + " " * 60 + "; rm -rf x"),
    ],
    ids=["no command", "reversed", "far to the right"],
)
async def test_what_a_field_would_not_show_is_not_edited(asked: ApprovalRequest) -> None:
    desk = Desk(asked)
    async with desk.run_test(size=(120, 40)) as pilot:
        desk.wait_out()
        assert "Ctrl+G" not in dict(desk.panel.hints)
        await press(pilot, "ctrl+g")
        assert not field(desk).display
        assert desk.answers == []


async def test_a_command_is_read_to_its_end_before_it_is_edited() -> None:
    desk = Desk(request("\n".join(f"echo {n}" for n in range(50)) + "\nrm -rf /"))
    async with desk.run_test(size=(80, 40)) as pilot:
        desk.wait_out()
        await press(pilot, "ctrl+g", "enter")
        assert desk.answers == []
        assert "Read to the end first" in desk.text()
        assert not field(desk).display


LONG_EDIT = DiffBlock("a.py", 18, 0, tuple(DiffLine("+", n, f"line {n}") for n in range(1, 19)))


async def test_tab_shows_the_whole_diff_and_less_again() -> None:
    desk = Desk(request("a.py", display=(LONG_EDIT,)))
    async with desk.run_test(size=(120, 40)) as pilot:
        desk.wait_out()
        assert ("Tab", "full diff") in desk.panel.hints
        assert "line 13" not in desk.text()
        await press(pilot, "tab")
        assert "line 18" in desk.text()
        assert ("Tab", "less") in desk.panel.hints
        assert not any(words == "read on" for _, words in desk.panel.hints)
        await press(pilot, "tab")
        assert "line 13" not in desk.text()
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


@pytest.mark.exhaustive
async def test_tab_is_named_only_where_it_shows_more() -> None:
    desk = Desk(request("a.py", display=(LONG_EDIT,)))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        before = desk.text()
        await press(pilot, "tab")
        assert desk.text() == before
        assert ("Tab", "chat") in desk.panel.hints
        await pilot.resize_terminal(120, 34)
        await pilot.pause()
        assert ("Tab", "more rows") in desk.panel.hints


@pytest.mark.sample
@pytest.mark.parametrize("size", [(120, 40), (60, 40)])
async def test_all_answers_stay_on_the_screen_with_the_whole_diff(size: tuple[int, int]) -> None:
    block = DiffBlock("a.py", 50, 0, tuple(DiffLine("+", n, "x") for n in range(50)))
    offer = "Yes, and allow edits in this folder for this session"
    desk = Desk(request("deep/" * 12 + "a.py", display=(block,), session_offer=offer))
    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        await press(pilot, "tab")
        shown = re.search(r"rows 1 to (\d+) of 50", desk.text())
        assert shown is not None
        # Its words are not cut in two: the answer takes a second row.
        assert int(shown[1]) >= 17
        assert desk.panel.size.height <= size[1] - 4


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("Yes, and allow edits in this folder", ["Yes, and allow edits", "in this folder"]),
        # A command is shown as it is, with its spaces, and a path that is longer than a row is not moved down.
        ("Yes, allow a  b in this folder too", ["Yes, allow a  b in thi", "s folder too"]),
        (f"Yes, allow {'x' * 24}", [f"Yes, allow {'x' * 11}", "x" * 13]),
    ],
)
def test_an_answer_breaks_between_words(words: str, rows: list[str]) -> None:
    made = _answer_rows(Choice("a", words, "once"), 31, chosen=False, accepts_keys=True)
    assert [row.text[6:].rstrip() for row in made] == rows


def test_the_numbers_of_a_diff_stand_as_in_the_chat() -> None:
    asked = request("pyproject.toml", display=(EDIT,))
    shown = [detail_row(row, 80).text for row in detail_rows(asked, 60)]
    assert shown[1].startswith(" " * 5 + "12 − ")
    assert detail_row(next(detail_rows(request(), 60)), 80).text.startswith(" " * 5 + "python")


async def test_no_needs_no_reading() -> None:
    desk = Desk(request("\n".join("x" for _ in range(50))))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "n")
        assert desk.answers == [("no", "")]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_question_place_and_all_answers_are_on_every_screen(size: tuple[int, int]) -> None:
    offer = 'Yes, and every "python -m build" in this session'
    desk = Desk(request("x" * 2000, session_offer=offer))
    async with desk.run_test(size=size) as pilot:
        await pilot.pause()
        shown = desk.text()
        words = " ".join(shown.replace("▌", " ").split())
        for said in ("Run this command?", "for at most 60 s", "Yes, once", "No, and say why"):
            assert said in words
        assert offer.replace(" ", "") in words.replace(" ", "")
        assert desk.panel.size.height <= size[1]
        assert all(cell_len(row) <= size[0] for row in shown.split("\n"))


@pytest.mark.parametrize("deep", [8, 30])
@pytest.mark.parametrize("size", [(60, 40), (60, 20)])
async def test_no_word_stands_alone_before_a_long_path(size: tuple[int, int], deep: int) -> None:
    where = f"in /work{'/a-folder' * deep}, at most 60 s; can change files"
    desk = Desk(replace(request(), where=where))
    async with desk.run_test(size=size) as pilot:
        await pilot.pause()
        rows = [row.strip(" ▌") for row in desk.text().split("\n")]
        assert "in" not in rows
        assert where.replace(" ", "") in "".join(rows).replace(" ", "") or size[1] == 20


async def test_a_question_of_the_agent_breaks_between_words() -> None:
    asks = "Which one of the many parsers that stand in the folders of tools shall be kept for the importer?"
    desk = Desk(request("", question=asks, kind="question", options=("a", "b")))
    async with desk.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert asks in " ".join(desk.text().replace("▌", " ").split())


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_all_answers_to_a_question_are_on_every_screen(size: tuple[int, int]) -> None:
    label = "Take the parser of the standard library for reading and write one for the rest"
    options = tuple(f"{label} {n}" for n in range(1, 7))
    described = "\n".join(f"{one}: what follows from it" for one in options)
    asked = "Which one of the many parsers in the folders of tools shall be kept for the importer?"
    desk = Desk(request(described, question=asked, kind="question", options=options))
    async with desk.run_test(size=size) as pilot:
        await pilot.pause()
        rows = desk.text().replace("▌", " ").split("\n")
        assert len(rows) <= size[1] - 3
        shown = " ".join(" ".join(rows).split())
        assert "e Other (your own answer)" in shown
        assert "n Let the agent decide" in shown
        # Whole words, in as many rows as there are for them.
        assert all(f" {n} Take the parser of the standard" in shown for n in range(1, 7))
        known = {*label.split(), *described.split(), *asked.split()}
        answers = [row for row in rows if "Take the" in row or "standard" in row]
        assert all(word in known or len(word) < 3 for row in answers for word in row.split())
        assert ("…" in shown) == (size != (120, 40))
        assert "rows 1 to" in shown or "…" not in shown


@pytest.mark.sample
@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
async def test_the_chosen_answer_of_a_long_question_is_read_whole_and_alone(
    size: tuple[int, int],
) -> None:
    options = tuple(
        f"Rewrite the importer in way {n}, whatever else may come of it" for n in range(1, 7)
    )
    described = "\n".join(
        f"{one}: {'it costs a day and more ' * 16}END{n}" for n, one in enumerate(options, 1)
    )
    desk = Desk(request(described, question="Which?" * 90, kind="question", options=options))

    def read() -> str:
        return re.split(r"rows \d+ to", desk.text())[0]

    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        await press(pilot, "4")
        assert desk.answers == []
        for _ in range(40):
            if "1  Rewrite" in read():
                break
            await press(pilot, "pagedown")
        await press(pilot, *["down"] * 4)
        assert "4  Rewrite the importer in way 4" in read()
        assert "3  Rewrite" not in read()
        assert read().count("\n") >= 9
        assert "1  2  3  4  5  6  e  n" in desk.text()
        assert "END4" not in read() or size == (80, 24)
        if "END4" not in read():
            await press(pilot, "enter")
            assert desk.answers == []
            await press(pilot, "pagedown")
        assert "END4" in read()
        y = row_of(desk, "1  2  3  4  5")
        x = desk.text().split("\n")[y].index("4")
        # The words of the chosen one beside them are no key.
        await pilot.click(ApprovalPanel, offset=(x + 30, y))
        await pilot.click(ApprovalPanel, offset=(x + 6, y))
        assert desk.answers == []  # another one has not been read
        assert "6  Rewrite" in desk.text()
        await pilot.click(ApprovalPanel, offset=(x, row_of(desk, "1  2  3  4  5")))
        assert desk.answers == [("once", options[3])]


async def test_what_a_question_leaves_to_the_agent_need_not_be_read() -> None:
    same = request("a: x\na: y\n" + "b: z " * 300, kind="question", options=("a", "b"))
    desk = Desk(same)
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        assert "1  a  x" in desk.text()
        await press(pilot, "end")
        # A text that has the words of another answer is shown, too.
        assert "a: y" in desk.text()
        await press(pilot, "n")
        assert desk.answers == [("once", "")]


@pytest.mark.parametrize("path", ["setup.py", "a/very/long/way/to/" * 5 + "a/file.py"])
async def test_an_edit_names_its_file_whole(path: str) -> None:
    app = Desk(request(path, question="Make this edit?", display=(EDIT,)))
    async with app.run_test(size=(80, 24)):
        shown = "".join(row.strip("▌ ") for row in app.text().split("\n"))
        assert path in shown


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_a_very_long_path_hides_neither_the_edit_nor_the_answers(
    size: tuple[int, int],
) -> None:
    path = "deep/" * 480 + "a.py"
    desk = Desk(
        request(
            path,
            tool="WriteFile",
            question="Make this edit?",
            display=(EDIT,),
            session_offer=f"Yes, and everything in {path} in this session",
        )
    )
    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        for words in ("Make this edit?", "y  Yes, once", "e  No, and say why"):
            assert words in desk.text()
        assert desk.panel.outer_size.height < size[1]
        await press(pilot, "y")
        assert desk.answers == []
        read = ""
        while "backend = 1" not in desk.text():
            read += desk.text()
            await press(pilot, "pagedown")
        assert "a.py" in read
        await press(pilot, "y")
        assert desk.answers == [("once", "")]


async def test_the_panel_survives_markup_and_odd_widths() -> None:
    desk = Desk(request("[/] [@click=app.quit] [bold", question="[/b]?"))
    async with desk.run_test(size=(60, 20)) as pilot:
        await pilot.resize_terminal(30, 12)
        await asyncio.sleep(0)
        assert "[@click=app.quit]" in desk.text().replace("\n", "")


# --- a letter, before it is sent


def letter(text: str = "Do not read the log.\n\nLook at line 212.") -> ApprovalRequest:
    """Return a request for a D-Mail."""
    return request(text, kind="dmail", tool="SendDMail", question="Send this D-Mail to #7?", key="")


def row_of(desk: Desk, words: str) -> int:
    """In which row something stands."""
    return next(y for y, row in enumerate(desk.text().split("\n")) if words in row)


def field(desk: Desk) -> PromptArea:
    """Return the field in which the user writes."""
    return desk.panel.query_one(PromptArea)


def test_a_letter_is_broken_between_words_and_loses_none() -> None:
    text = "one two three four five six seven eight nine ten"
    rows = list(detail_rows(letter(text), 12))
    assert " ".join(row.text for row in rows) == text
    assert all(cell_len(row.text) <= 12 for row in rows)


@pytest.mark.parametrize(("key", "answer"), [("y", "once"), ("n", "no")])
async def test_a_letter_is_sent_or_not_as_it_is(key: str, answer: str) -> None:
    desk = Desk(letter())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        assert "Look at line 212." in desk.text()
        await press(pilot, key)
        assert desk.answers == [(answer, "")]


@pytest.mark.exhaustive
async def test_a_letter_is_changed_in_place() -> None:
    desk = Desk(letter())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "c")
        assert field(desk).has_focus
        assert field(desk).text == "Do not read the log.\n\nLook at line 212."
        assert field(desk).region.height == 3
        await press(pilot, "ctrl+j", *"/ or 213")
        assert field(desk).region.height == 4
        assert desk.answers == []
        await press(pilot, "enter")
        changed = "Do not read the log.\n\nLook at line 212.\n/ or 213"
        assert desk.answers == [("once", changed)]


async def test_a_letter_that_was_only_looked_at_goes_as_the_agent_wrote_it() -> None:
    desk = Desk(letter())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "c", "enter")
        assert desk.answers == [("once", "")]


@pytest.mark.exhaustive
async def test_what_was_written_is_still_there_after_a_look_at_the_answers() -> None:
    desk = Desk(letter("Yes"))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "c", *", now", "escape")
        assert desk.panel.has_focus
        assert not field(desk).display
        await press(pilot, "e", *"later", "escape", "c")
        assert field(desk).text == "Yes, now"
        await press(pilot, "escape", "e")
        assert field(desk).text == "later"
        await press(pilot, "enter")
        assert desk.answers == [("no", "later")]


async def test_a_click_beside_the_field_leaves_the_keys_to_it() -> None:
    desk = Desk(request())
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "e", *"not")
        await pilot.click(ApprovalPanel, offset=(4, row_of(desk, "Run this command?")))
        assert field(desk).has_focus
        await press(pilot, *" now", "enter")
        assert desk.answers == [("no", "not now")]


async def test_an_empty_letter_is_not_sent() -> None:
    desk = Desk(letter("Yes"))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await press(pilot, "c", "ctrl+u", "enter")
        assert field(desk).text == ""
        assert desk.answers == []


@pytest.mark.exhaustive
async def test_a_letter_is_changed_and_sent_by_mouse() -> None:
    desk = Desk(letter("Yes"))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await pilot.click(ApprovalPanel, offset=(8, row_of(desk, "let me edit it first")))
        assert field(desk).has_focus
        await pilot.click("ApprovalPanel PromptArea")
        assert desk.answers == []
        await pilot.click(ApprovalPanel, offset=(8, row_of(desk, "Back to the answers")))
        assert desk.panel.has_focus
        await pilot.click(ApprovalPanel, offset=(8, row_of(desk, "say why")))
        await press(pilot, *"not yet")
        await pilot.click(ApprovalPanel, offset=(8, row_of(desk, "Say no")))
        assert desk.answers == [("no", "not yet")]


async def test_a_long_question_leaves_rows_to_what_is_read_elsewhere() -> None:
    desk = Desk(request("make test\n" * 60))
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.wait_out()
        await pilot.pause()
        height = desk.panel.size.height
        desk.set_focus(None)
        await pilot.pause()
        assert desk.panel.size.height == height - BESIDE_ROWS
        assert AWAY in desk.text()
        desk.set_focus(desk.panel)
        await pilot.pause()
        assert desk.panel.size.height == height


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_a_long_letter_fits_every_screen_also_while_it_is_changed(
    size: tuple[int, int],
) -> None:
    desk = Desk(letter("The log says nothing. " * 60))
    async with desk.run_test(size=size) as pilot:
        desk.wait_out()
        await pilot.pause()
        assert "Yes, but let me edit it first" in desk.text()
        # Each page is to be drawn: what was passed over is not read.
        while not desk.panel._detail.at_end:  # pyright: ignore[reportPrivateUsage]
            await press(pilot, "pagedown")
        await press(pilot, "c")
        assert desk.panel.size.height <= size[1]
        below = row_of(desk, "Send this D-Mail instead")
        assert field(desk).region.bottom - desk.panel.region.y < below
        assert field(desk).region.y - desk.panel.region.y > row_of(desk, "Send this D-Mail to #7?")
