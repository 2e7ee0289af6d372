"""The page that sets futures side by side: facts in an order that no model has a say in, messages, files, and actions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
from support.fake_futures import FakeFutures, changed_file
from support.pictures import Pictures
from support.screens import keys_count
from textual.app import App

from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.projection.blocks import Block, ToolBlock
from kimi_tui.projection.futures import FutureGroup, groups
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.frame_rows import HeaderText
from kimi_tui.tui.futures.layout import FilesAcross, detail_rows, table_rows
from kimi_tui.tui.futures.page import FuturesPage, FuturesShown, PageAnswer
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.row_list import Look
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT
from kimi_tui.wire.events import (
    CheckpointCreated,
    FutureChanged,
    StepBegin,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from kimi_tui.wire.queue import Wire

NAMES = ("Use a set in place of the list", "Rewrite it with a generator", "Add a cache")
TEXTS = (
    "The tokenizer keeps its rules in a `set`. All tests pass.",
    "I rewrote it:\n\n```python\ndef fields(text):\n    yield from split(text)\n```\n\nIt needs half the memory.",
    "A cache of 128 entries makes it four times as fast.",
)


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with keys_count():
        yield


async def made(*, are_over: bool = True) -> FakeFutures:
    """Return three futures that have worked."""
    fake = FakeFutures(Wire())
    plan = FuturesPlan(Target(12), tuple(Variant(name) for name in NAMES), "make test")
    keys = await fake.start(plan)
    for key, text in zip(keys, TEXTS, strict=True):
        fake.tell(key, StepBegin(1), CheckpointCreated(11, f"{key}-1", "step"))
        fake.tell(key, ToolCall(f"c{key}", "Read", '{"path":"src/tokenizer.py"}'))
        fake.tell(key, ToolResult(f"c{key}", is_error=False, output="x", message="184 lines"))
        fake.work(key, text, step=3)
        fake.tell(key, TurnEnd("done"))
    fake.files = {
        keys[0]: [changed_file("src/tokenizer.py", 12, 3)],
        keys[1]: [
            changed_file("src/tokenizer.py", 48, 31),
            changed_file("tests/test_csv.py", 4, 9),
        ],
        keys[2]: [changed_file("src/cache.py", 40, 0), changed_file("src/tokenizer.py", 12, 3)],
    }
    began = time.time() - 75
    if are_over:
        passed = {"check": "passed", "check_exit": 0, "began_at": began, "ended_at": began + 75}
        fake.end(keys[0], files=1, added=12, removed=3, world_line=4, last_words=TEXTS[0], **passed)
        own = ("tests/test_csv.py",)
        fake.end(keys[1], files=2, added=52, removed=40, own_check=own, world_line=5, **passed)
        output = "....F\nFAILED tests/test_csv.py::test_quotes"
        failed = {"check": "failed", "check_exit": 2, "check_output": output}
        fake.end(keys[2], files=2, added=52, removed=3, world_line=6, **passed | failed)
    return fake


def shown(fake: FakeFutures) -> FuturesShown:
    """Return what the page shows of the futures."""
    blocks: dict[str, list[Block]] = {}
    for one in fake.states:
        model = SessionModel()
        for record in fake.records(one.key):
            model.apply(record)
        blocks[one.key] = [*model.chat.blocks]
    over = {one.key for one in fake.states if one.is_over}
    files = {key: found for key, found in fake.files.items() if key in over}
    return FuturesShown(groups(fake.states)[0], blocks, files)


class PageApp(App[None]):
    """An app with the page over an empty screen; remembers its results."""

    CSS_PATH: ClassVar = sheets("app", "rows")

    def __init__(self, fake: FakeFutures, *, theme: str = "kimi-dark") -> None:
        super().__init__()
        for one in (KIMI_DARK, KIMI_LIGHT):
            self.register_theme(one)
        self.theme = theme
        self.glyphs = UNICODE
        self.animation_level = "none"
        self.page = FuturesPage(
            shown(fake),
            HeaderText(title="Speed up the tokenizer", folder="~/csv", model="kimi-k2"),
            title="3 futures from #12",
            stop=fake.stop,
            opinion=fake.opinion,
        )
        self.answers: list[PageAnswer | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.page, self.answers.append)

    def text(self) -> str:
        """Return what is on the screen."""
        rows = self.page._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
        return "\n".join(strip.text for strip in rows)


async def test_it_shows_facts_messages_and_files_side_by_side() -> None:
    app = PageApp(await made())
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        text = app.text()
        assert (
            "2 of 3 passed the check; future 1 ranks first (by check, unchanged tests, diff size, cost)"
            in text
        )
        for words in (
            "check passed",
            "changed its check",
            "check failed (exit 2)",
            "+52 −40",
        ):
            assert words in text
        row = next(
            line for line in text.splitlines() if "src/tokenizer.py" in line and "+48" in line
        )
        assert row.split() == ["src/tokenizer.py", "+12", "−3", "+48", "−31", "+12", "−3"]
        assert "1 Use a set in place of the list" in text
        await pilot.press("right", "right")
        await pilot.pause()
        assert "Check: FAILED tests/test_csv.py::test_quotes" in app.text()
        await pilot.press("tab", "enter")
        await pilot.pause()
        # Both have made the same change, which is shown once.
        assert "Futures 1, 3  changed" in app.text()


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("3", "tab", "s"), PageAnswer("file", "g1-3", path="src/tokenizer.py")),
        *(
            pytest.param(keys, answer, marks=pytest.mark.exhaustive)
            for keys, answer in (
                (("2", "j"), PageAnswer("current", "g1-2")),
                (("right", "left", "w"), PageAnswer("read", "g1-1")),
                (("3", "d"), PageAnswer("prune", "g1-3")),
                (("n",), PageAnswer("new", "g1-1")),
                (("escape",), None),
            )
        ),
    ],
)
async def test_its_actions_are_on_the_chosen_future_and_file(
    keys: tuple[str, ...], answer: PageAnswer | None
) -> None:
    app = PageApp(await made())
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press(*keys)
        await pilot.pause()
    assert app.answers == [answer]


async def test_the_chosen_message_is_copied() -> None:
    app = PageApp(await made())
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("2", "down", "down", "s")
        await pilot.pause()
    (answer,) = app.answers
    assert answer is not None
    assert (answer.action, answer.key) == ("send", "g1-2")
    assert isinstance(answer.block, ToolBlock)


async def test_one_without_a_step_can_be_deleted_but_not_made_current() -> None:
    fake = await made()
    fake.change("g1-2", state="failed", step=0, world_line=0, check="")
    app = PageApp(fake)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("2", "j")
        await pilot.pause()
        assert "You cannot switch to future 2, because it has no finished step." in app.text()
        await pilot.press("d")
        await pilot.pause()
    assert app.answers == [PageAnswer("prune", "g1-2")]


@pytest.mark.exhaustive
async def test_a_file_that_the_chosen_future_left_alone_is_not_taken_over() -> None:
    app = PageApp(await made())
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("1", "tab", "down", "s")
        await pilot.pause()
        assert "Future 1 has not changed this file." in app.text()
    assert app.answers == []


async def test_what_runs_can_be_stopped_and_not_made_current() -> None:
    fake = await made(are_over=False)
    app = PageApp(fake)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        assert "3 of 3 still running" in app.text()
        await pilot.press("2", "j")
        await pilot.pause()
        assert "Future 2 is still running." in app.text()
        await pilot.press("x")
        await app.workers.wait_for_complete()
        assert fake.stopped == ["g1-2"]
        app.page.show(shown(fake))
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "stopped" in app.text()
        assert "2 of 3 still running" in app.text()
        assert app.page.chosen.key == "g1-2"
    assert app.answers == []


async def test_a_models_opinion_is_a_note_and_changes_no_order() -> None:
    app = PageApp(await made())
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        before = app.text()
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await pilot.pause()
        after = app.text()
    assert "A model's opinion: Both pass; future 2 is the shorter one." in after
    assert before.splitlines()[2:7] == after.splitlines()[2:7]


def test_the_table_fits_every_width_and_names_the_check_first() -> None:
    one = FutureChanged(
        "a", "g", 1, "A long name " * 9, "done", check="passed", own_check=("t.py",)
    )
    hostile = replace(
        one, key="b", number=2, name="\x1b[31mred\u202e\nx", model="m" * 300, cost=9e9
    )
    group = FutureGroup((one, hostile))
    for width in (20, 34, 58, 80, 120, 200):
        for row in table_rows(group, "a", width, UNICODE, now=9.0, currency="$"):
            text = "".join(span.text for span in row)
            assert len(text) == width
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert width < 34 or "passed" in text
        rows = detail_rows(hostile, width, 4, ASCII)
        assert all("\x1b" not in span.text for row in rows for span in row)


def test_a_name_is_cut_only_where_the_facts_to_compare_take_the_room() -> None:
    names = ("Change the test", "Strip it", "Use csv")
    group = FutureGroup(
        tuple(
            FutureChanged(
                f"g{n}",
                "g",
                n,
                name,
                "done",
                check="failed",
                check_exit=1,
                own_check=("t.py",),
                files=2,
                added=4,
                removed=1,
                cost=0.0024,
                began_at=1.0,
                ended_at=99.0,
                model="kimi-k3-fast",
                input=9_600,
            )
            for n, name in enumerate(names, 1)
        )
    )
    for width in (80, 100, 120):
        rows = table_rows(group, "g1", width, UNICODE, now=9.0, currency="$")
        for row, name in zip(rows, names, strict=True):
            text = "".join(span.text for span in row)
            assert name in text
            assert "$0.0024" in text


def test_what_does_not_fit_of_a_reason_is_cut_in_the_signs_in_use() -> None:
    one = FutureChanged("a", "g", 1, state="failed", why="The server closed the connection " * 9)
    for rows in (1, 2, 4):
        found = detail_rows(one, 40, rows, ASCII)
        text = ["".join(span.text for span in row) for row in found]
        assert len(text) == min(2, rows)
        assert text[-1].endswith("~")
        assert "".join(text).isascii()


def test_files_that_nobody_knows_of_yet_are_announced() -> None:
    group = FutureGroup((FutureChanged("a", "g", 1, state="running"),))
    model = FilesAcross(group, {})
    (row,) = model.empty(Look(80, UNICODE, range(0), None, focused=True))
    assert "when a future has ended" in row.text


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("theme", "size"),
    [
        ("kimi-dark", (120, 40)),
        ("kimi-light", (120, 40)),
        ("kimi-dark", (80, 24)),
        ("kimi-light", (60, 20)),
        ("kimi-light", (80, 24)),
        ("kimi-dark", (60, 20)),
    ],
)
async def test_pictures(theme: str, size: tuple[int, int], picture: Pictures) -> None:
    app = PageApp(await made(), theme=theme)
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("right")
        await pilot.pause()
        picture(app)
