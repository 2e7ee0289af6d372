"""Searching the chat as a person does it: type, go on, unfold on arrival, end; nothing is interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.chat_app import ChatApp, feed
from support.conversation import Conversation
from textual.pilot import Pilot

from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.transcript.search import Finder

SIZE = (81, 38)


def talk(turns: int = 12) -> Conversation:
    """Turns with a folded output each."""
    made = Conversation(started=0.0)
    for n in range(turns):
        made.user(f"Question {n}")
        made.step(text=f"Answer **{n}** with [red]no markup[/red].")
        made.tool("Shell", {"command": "make"}, "\n".join(f"row {n}-{k}" for k in range(9)))
        made.end()
    return made


def words_of(app: ChatApp) -> str:
    """Return the search bar's words on the search."""
    search = app.transcript._search
    return search.found.words if search is not None else "no search"


async def until(app: ChatApp, pilot: Pilot[None], words: str, query: str = "") -> None:
    """Wait until the search says so, and of the whole query where one is given."""
    for _ in range(2_000):
        search = app.transcript._search
        if words_of(app) == words and (not query or (search and search.found.query == query)):
            await pilot.pause()
            return
        await pilot.pause(0.005)
    raise AssertionError(f"{words_of(app)!r} is not {words!r}")


async def searching(app: ChatApp, pilot: Pilot[None], query: str, words: str) -> None:
    """The chat with a search."""
    await feed(app, pilot, talk())
    app.transcript.begin_search()
    await pilot.pause()
    await pilot.press(*query)
    await until(app, pilot, words, query)


def marked(app: ChatApp) -> Iterator[str]:
    """Yield the pieces of text that are marked as the current match."""
    view = app.transcript
    now = view.get_component_rich_style("transcript--found-now", partial=True)
    for y in range(view.size.height):
        for text, style, _ in view.render_line(y):
            if style is not None and now.bgcolor is not None and style.bgcolor == now.bgcolor:
                yield text


@pytest.mark.exhaustive
async def test_type_go_on_and_end() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "[red]", "9 of 12")
        assert list(marked(app)) == ["[red]"]
        await pilot.press("enter")
        assert words_of(app) == "10 of 12"
        await pilot.press("down", "enter", "enter")
        assert words_of(app) == "1 of 12"
        assert any("Answer 0 with [red]" in row for row in app.rows)
        await pilot.press("shift+enter", "up")
        assert words_of(app) == "11 of 12"
        assert list(marked(app)) == ["[red]"]
        await pilot.press("escape")
        assert not app.transcript.is_searched
        assert not list(marked(app))
        assert len(app.query("SearchBar")) == 0


async def test_n_and_N_go_on_in_the_text() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "answer", "9 of 12")
        await pilot.press("n")
        await until(app, pilot, "none")
        await pilot.press("backspace")
        await until(app, pilot, "9 of 12")
        await pilot.press("tab", "n")
        assert words_of(app) == "10 of 12"
        await pilot.press("N", "N")
        assert words_of(app) == "8 of 12"


async def test_what_is_folded_opens_on_arrival_and_closes_behind() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "-3", "9 of 12")
        assert list(marked(app)) == ["-3"]
        opened = [block for block in app.transcript.blocks if block.unfolded]
        assert len(opened) == 1
        await pilot.press("enter")
        assert [block for block in app.transcript.blocks if block.unfolded] != opened
        assert sum(block.unfolded for block in app.transcript.blocks) == 1
        assert list(marked(app)) == ["-3"]


@pytest.mark.exhaustive
async def test_the_arrows_of_the_bar_are_clicked() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "answer", "9 of 12")
        await pilot.click("SearchArrow:last-of-type", offset=(1, 0))
        assert words_of(app) == "10 of 12"


@pytest.mark.exhaustive
async def test_what_comes_meanwhile_is_counted() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "question", "9 of 12")
        more = talk(13)
        app.transcript.apply(more.records[-5:])
        await until(app, pilot, "9 of 12")
        told = Conversation()
        told.user("Another question")
        app.transcript.apply(told.take())
        await until(app, pilot, "9 of 13")
        # The block of the match stays visible.
        assert list(marked(app)) == ["Question"]


@pytest.mark.exhaustive
async def test_another_conversation_is_searched_before_all_of_it_is_laid_out() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "question", "9 of 12")
        other, told = TranscriptModel(), Conversation()
        told.user("One question")
        told.step(text="Some *words* of it. " * 40_000)
        for record in told.take():
            other.apply(record)
        app.transcript.apply(talk(13).records[-5:])
        await pilot.pause(1 / 30)  # a frame
        app.transcript.show_model(other)
        app.transcript.action_next_match(1)
        await until(app, pilot, "1 of 1")


@pytest.mark.exhaustive
async def test_after_a_fault_what_changes_is_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "question", "9 of 12")
        reported: list[Exception] = []
        monkeypatch.setattr(app, "report", reported.append, raising=False)

        def broken(*_: object) -> Iterator[None]:
            raise RuntimeError("a broken search")

        told = Conversation()
        with monkeypatch.context() as broken_for_once:
            broken_for_once.setattr(Finder, "scan", broken)
            told.user("Another question")
            app.transcript.apply(told.take())
            while not reported:
                await pilot.pause(0.005)
        told.user("One question more")
        app.transcript.apply(told.take())
        await until(app, pilot, "9 of 14")


@pytest.mark.exhaustive
async def test_another_width_keeps_the_match() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await searching(app, pilot, "no markup", "9 of 12")
        await pilot.resize_terminal(40, 30)
        await until(app, pilot, "9 of 12")
        assert list(marked(app)) == ["no", "markup"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("pasted", ["ap\x1b[2Jple", "ap\nple", "\x07"])
async def test_nothing_pasted_reaches_the_terminal(pasted: str) -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.apply(talk(1).take())
        app.transcript.begin_search(pasted)
        await pilot.pause()
        field = app.query_one("SearchField")
        assert str(getattr(field, "value", "?")).isprintable()


@pytest.mark.exhaustive
def test_nothing_of_it_is_imported_before_the_first_search() -> None:
    import subprocess
    import sys

    code = (
        "import sys, kimi_tui.tui.transcript.transcript;"
        "print([n for n in sys.modules if n.endswith('transcript.search')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
