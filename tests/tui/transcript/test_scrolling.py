"""The visible text stays in place while something around it or inside it grows, folds, disappears or is wrapped again."""

from __future__ import annotations

import json
import random
import re

import pytest
from support.cases import first_only
from support.chat_app import ChatApp, drawn, feed, is_drawn
from support.conversation import Conversation

from kimi_tui.projection.blocks import Block, ToolBlock
from kimi_tui.tui.transcript.viewport import Flow
from kimi_tui.wire.events import TextPart, ToolOutput, ToolStarted

SIZE = (81, 24)
WORD = re.compile(r"\bw\d+\b")


def started(talk: Conversation, command: str) -> str:
    """Begin a command that does not end; return the key of its call."""
    key = talk.call("Shell", {"command": command})
    talk.tell(ToolStarted(key, "Shell", json.dumps({"command": command})))
    return key


class Words:
    """Words that each stand only once in a conversation."""

    def __init__(self) -> None:
        self._count = 0

    def some(self, count: int) -> str:
        """Return the next words."""
        first = self._count
        self._count += count
        return " ".join(f"w{n}" for n in range(first, self._count))

    def lines(self, count: int) -> str:
        """Return the next words, a few in each line."""
        return "\n".join(self.some(4) for _ in range(count))

    def paragraphs(self, count: int) -> str:
        """Return the next words, a few in each paragraph."""
        return self.lines(count).replace("\n", "\n\n")


def seen(app: ChatApp) -> dict[str, int]:
    """In which row of the pane each word stands."""
    return {word: y for y, row in enumerate(app.rows) for word in WORD.findall(row)}


@pytest.mark.exhaustive
async def test_an_answer_that_streams_stands_still_when_scrolled_up() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        talk.user("Go on")
        talk.step(text=words.paragraphs(20) + "\n\n" + words.some(300))
        await feed(app, pilot, talk)
        app.transcript.scroll_relative(y=-9)
        await pilot.pause()
        before = app.rows[:-1]
        for _ in range(20):
            talk.tell(
                TextPart(f" {words.some(9)}\n\n```\n{words.lines(3)}\n```\n- {words.some(3)}")
            )
            await feed(app, pilot, talk)
            assert app.rows[:-1] == before
        assert re.search(r"\d+ new", app.rows[-1])


async def test_it_stands_still_while_the_open_end_below_it_is_read_anew() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        talk.user("Go on")
        # This is one paragraph: every row of it belongs to the open end, and its marks close late.
        talk.step(text=words.some(500) + " **" + words.some(80))
        await feed(app, pilot, talk)
        app.transcript.scroll_relative(y=-16)
        await pilot.pause()
        before = app.rows[:-1]
        talk.tell(TextPart(f"** `{words.some(40)}` [{words.some(2)}](https://example.org)"))
        await feed(app, pilot, talk)
        assert app.rows[:6] == before[:6]


async def test_rows_that_grow_above_push_nothing_down() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        talk.user("Go on")
        talk.step()
        call = started(talk, "make")
        talk.step(text=words.paragraphs(60))
        await feed(app, pilot, talk)
        app.transcript.scroll_relative(y=-5)
        await pilot.pause()
        before = app.rows[:-1]
        for _ in range(3):
            talk.tell(ToolOutput(call, words.lines(2)))
            await feed(app, pilot, talk)
            assert app.rows[:-1] == before


async def test_scrolling_by_parts_of_rows_adds_up() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="\n\n".join(f"w{n}" for n in range(99)))
        await feed(app, pilot, talk)
        view = app.transcript
        start = view.top
        for _ in range(40):
            view.scroll_y -= 0.25
        await pilot.pause()
        assert view.top == start - 10


@pytest.mark.exhaustive
async def test_another_width_and_back_is_where_it_was() -> None:
    app = ChatApp()
    async with app.run_test(size=(120, 40)) as pilot:
        words, talk = Words(), Conversation()
        for _ in range(9):
            talk.user(words.some(30))
            talk.step(text=f"{words.some(200)}\n\n- {words.some(60)}\n\n```\n{words.lines(9)}\n```")
            # If the terminal is low, fewer of the lines are shown.
            talk.tool("Shell", {"command": "make"}, words.lines(1))
            talk.end()
        await feed(app, pilot, talk)
        for up in (7, 31, 3, 18):
            app.transcript.scroll_relative(y=-up)
            await pilot.pause()
            before, first = app.rows, min(seen(app).items(), key=lambda item: item[1])
            for width, height in ((60, 20), (80, 24), (33, 12), (120, 40)):
                await pilot.resize_terminal(width, height)
                await drawn(app, pilot)
                if width != 120:
                    assert abs(seen(app)[first[0]] - first[1]) <= 2
            assert app.rows[:-1] == before[:-1]


async def test_a_pane_that_was_hidden_comes_back_as_it_went() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        talk.user("Go on")
        talk.step(text=words.paragraphs(40) + "\n\n" + words.some(300))
        await feed(app, pilot, talk)
        app.transcript.scroll_relative(y=-20)
        await pilot.pause()
        before = app.rows[:-1]
        app.transcript.display = False
        await pilot.pause()
        talk.tell(TextPart(words.lines(9)))
        app.transcript.apply(talk.take())
        await pilot.pause()
        app.transcript.display = True
        await drawn(app, pilot)
        assert app.rows[:-1] == before


async def test_a_pane_that_is_shown_again_without_being_told_its_size_is_drawn() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        await feed(app, pilot, talk)
        app.transcript.display = False
        await pilot.pause()
        assert not app.transcript.is_ready
        talk.tell(TextPart("What came meanwhile"))
        app.transcript.apply(talk.take())
        app.transcript.display = True
        # A request for a position makes a new map of the screen, and the next layout finds nothing changed.
        app.screen._compositor._full_map_invalidated = True
        assert app.transcript.is_ready
        assert not is_drawn(app.transcript)
        await drawn(app, pilot)
        assert any("What came meanwhile" in row for row in app.rows)


async def test_folding_what_is_read_brings_its_first_row_into_view() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        talk.user("Go on")
        talk.tool("Shell", {"command": "make all"}, words.lines(90))
        talk.step(text=words.paragraphs(40))
        await feed(app, pilot, talk)
        view = app.transcript
        card = next(block for block in view.blocks if isinstance(block, ToolBlock))
        view.toggle_fold(card)
        await drawn(app, pilot)
        view.scroll_to(y=40)
        await pilot.pause()
        assert not any("make all" in row for row in app.rows)
        view.toggle_fold(card)
        await drawn(app, pilot)
        assert "make all" in app.rows[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, *first_only(range(1, 5))])
async def test_the_first_visible_text_never_moves(seed: int) -> None:
    chance = random.Random(seed)
    app = ChatApp()
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        words, talk = Words(), Conversation()
        running: list[str] = []
        for _ in range(6):
            talk.user(words.some(chance.randrange(3, 90)))
            talk.step(text=f"{words.some(chance.randrange(5, 200))}\n\n- {words.some(30)}")
            talk.tool("Shell", {"command": "make"}, words.lines(chance.randrange(1, 30)))
            talk.step(text=words.paragraphs(chance.randrange(1, 30)))
        running.append(started(talk, "wait"))
        talk.step(text=words.some(200))
        await feed(app, pilot, talk)
        view = app.transcript
        view.scroll_relative(y=-chance.randrange(3, 60))
        await pilot.pause()
        for _ in range(25):
            places = seen(app)
            row = min(places.values())
            first = [word for word, y in places.items() if y == row]
            change = chance.choice(
                ("stream", "mark", "block", "output", "fold", "scroll", "resize")
            )
            moved = 0
            slack = 0
            if change == "stream":
                talk.tell(TextPart(f" {words.some(chance.randrange(1, 60))}"))
            elif change == "mark":
                talk.tell(
                    TextPart(f"\n\n**{words.some(5)}** `{words.some(2)}`\n\n1. {words.some(9)}\n")
                )
            elif change == "block":
                talk.tool("Shell", {"command": "ls"}, words.lines(3))
                talk.step(text=words.some(20))
            elif change == "output":
                talk.tell(ToolOutput(running[0], words.lines(2) + "\n"))
            elif change == "fold":
                flow = view.flow
                assert flow is not None
                below = [
                    b
                    for b in view.blocks
                    if isinstance(b, ToolBlock) and is_below(flow, b, view.top + 4)
                ]
                if below:
                    view.toggle_fold(chance.choice(below))
            elif change == "scroll":
                moved = chance.choice((-4, -1, 2, 5))
                limit = view.max_scroll_y
                moved = max(-view.top, min(moved, limit - view.top - 1))
                view.scroll_relative(y=moved)
            else:
                await pilot.resize_terminal(chance.choice((50, 70, 81, 120)), 24)
                slack = 1
            await feed(app, pilot, talk)
            if not view.follows and 0 < view.top < view.max_scroll_y:
                now = seen(app)
                at = [now[word] for word in (first if slack else first[:1]) if word in now]
                if row - moved >= 0:
                    assert at, change
                    assert any(abs(y - (row - moved)) <= slack for y in at), change


def is_below(flow: Flow, block: Block, row: int) -> bool:
    """Return whether a block begins below a row: one that is folded itself comes into view."""
    index = next(at for at, one in enumerate(flow.views) if one.block is block)
    return flow.start(index) > row
