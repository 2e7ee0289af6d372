"""Selecting in the chat with a cursor that keys move."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.chat_app import ChatApp, is_drawn
from support.chat_server import ChatServer, gate, say
from support.conversation import Conversation
from support.pictures import Pictures
from support.screens import Desk, desk
from textual import events

from kimi_tui.projection.blocks import AgentBlock
from kimi_tui.tui.rows import LayoutRoom
from kimi_tui.tui.transcript.copy_mode import CopyMode
from kimi_tui.tui.transcript.selection import TextSelection
from kimi_tui.tui.transcript.viewport import Flow


def talk() -> Conversation:
    """Return a message, an answer with code and another message."""
    made = Conversation()
    made.user("Where is it?")
    made.step(
        text="It is in `parse`, here:\n\n```python\ndef parse(text):\n    return text\n```\n\nDone: 日本 it is."
    )
    made.end()
    made.user("Thanks.")
    made.step(text="You are welcome.")
    made.end()
    return made


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        ("v y", "W"),
        ("v e y", "Where"),
        ("v w w y", "Where is i"),
        ("v $ y", "Where is it?"),
        ("v $ b y", "Where is i"),
        ("v v w v e y", "is"),
        ("v v w V y", "Where is it?"),
        ("v V j j y", "Where is it?\n\nIt is in parse, here:"),
        ("v ] e y", None),
        ("v G 0 o e o $ enter", None),
        ("v w q", ""),
        ("v w escape", ""),
    ],
)
async def test_what_the_cursor_passes_is_copied(keys: str, copied: str | None) -> None:
    app = ChatApp()
    async with app.run_test(size=(81, 37)) as pilot:
        app.transcript.apply(talk().records)
        await app.transcript.draw_all()
        app.transcript.focus()
        app.transcript.action_choose(-1)
        for _ in range(9):
            app.transcript.action_choose(-1)
        await pilot.press("v")
        assert app.transcript.is_copying
        names = {"$": "dollar_sign", "]": "right_square_bracket"}
        await pilot.press(*(names.get(key, key) for key in keys.split(" ")[1:]))
        await pilot.pause()
        texts = [text for text, _ in app.copied]
        if copied is None:
            (text,) = texts
            assert text.startswith(("Where is it?", "e is it?"))
            assert text.endswith(("Thanks.", "You are welcome."))
        else:
            assert texts == ([copied] if copied else [])
        assert not app.transcript.is_copying
        assert app.transcript.selected_positions is None


def test_words_lines_and_wide_characters() -> None:
    flow = Flow(LayoutRoom(40))
    from kimi_tui.projection.transcript import TranscriptModel

    model = TranscriptModel()
    for record in talk().records:
        model.apply(record)
    flow.update(model.blocks, 0)
    for index in range(len(flow.views)):
        flow.lay_out(index)
    wide = next(row for row in range(flow.height) if "日本" in flow.line(row)[2].text)
    mode = CopyMode(flow, TextSelection(flow), wide)
    text = flow.line(wide)[2].text

    def under(*actions: str) -> str:
        for action in actions:
            assert mode.act(action, 5) == "moved"
        assert mode.place is not None
        row, column = mode.place
        return flow.line(row)[2].text[column:][:2]

    assert under("word") == ": "
    assert under("word") == "日本"
    assert under("right", "right") == " i"
    assert under("end") == "."
    assert under("back", "back") == "it"
    assert under("start") == text.strip()[:2]
    assert under("top") == "Wh"
    assert under("left", "up") == "Wh", "there is nothing before"
    assert under("turn_after") == "Th"
    assert under("turn_before") == "Wh"
    assert under("bottom", "word", "word_end") != ""
    for action in ("page_up", "page_down", "text", "word_end", "down", "up"):
        under(*[action] * 40)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("size", "theme"), [((80, 24), "kimi-dark"), ((60, 20), "kimi-light"), ((60, 20), "kimi-16")]
)
async def test_looks(size: tuple[int, int], theme: str, picture: Pictures) -> None:
    app = ChatApp(theme=theme, ansi=theme == "kimi-16")
    async with app.run_test(size=size) as pilot:
        app.transcript.apply(talk().records)
        await app.transcript.draw_all()
        app.transcript.focus()
        await pilot.press("k", "k", "k", "v", "j", "j", "j", "w", "w")
        await pilot.pause()
        picture(app)


async def test_it_stays_with_its_text_while_more_comes(home: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} of it." for n in range(60))
    async with (
        ChatServer() as server,
        desk(home, server.base_url, size=(80, 24), quiet_s=0.25) as one,
    ):
        server.script(gate(60, say(long)))
        await one.ready()
        await one.say("Tell")
        await server.at_gate.wait()
        view = one.screen.transcript
        one.screen.bench.focus_chat()
        await one.until(lambda: any(isinstance(b, AgentBlock) for b in view.blocks))
        # Pressed right after one another, these keys are no word.
        typed(one, "vVj")
        await one.until(lambda: view.is_copying)
        await one.sees("select characters, lines")
        first = view.selected_positions
        server.release()
        await one.idle()
        await one.until(lambda: is_drawn(view))
        assert view.selected_positions == first
        await one.pilot.press("pagedown", "pagedown")
        assert not view.follows
        await one.pilot.press("y")
        await one.sees("Copied")
        assert not view.is_copying
        assert one.screen.focused is view


@pytest.mark.exhaustive
@pytest.mark.parametrize(("keys", "written"), [("very good", "very good"), ("vVk", "")])
async def test_what_is_typed_right_behind_the_key_that_leads_to_the_chat(
    home: Path, keys: str, written: str
) -> None:
    async with (
        ChatServer() as server,
        desk(home, server.base_url, size=(80, 24), quiet_s=0.25) as one,
    ):
        server.script(say("There it is."))
        await one.ready()
        await one.say("Tell")
        await one.idle()
        # They are held back until the chat has the keys: a word is one all the same.
        typed(one, f"\t{keys}")
        await one.until(
            lambda: bool(one.screen.prompt.area.text) or one.screen.transcript.is_copying
        )
        await one.until(lambda: one.screen.prompt.area.text == written)
        assert one.screen.transcript.is_copying == (not written)


@pytest.mark.exhaustive
async def test_prose_typed_over_the_cursor_goes_into_the_prompt(home: Path) -> None:
    async with (
        ChatServer() as server,
        desk(home, server.base_url, size=(80, 24), quiet_s=0.25) as one,
    ):
        server.script(
            say("There it is, in two lines of words that are wrapped behind one another here.")
        )
        await one.ready()
        await one.say("Tell")
        await one.idle()
        view, prompt = one.screen.transcript, one.screen.prompt.area
        one.screen.bench.focus_chat()
        view.action_copy_mode()
        # A letter that is no key says so, even after letters that move the cursor.
        typed(one, "wwf")
        await one.sees('"f" does nothing here.')
        assert view.is_copying
        # Moves act at once; what copies and ends may follow them at once.
        typed(one, "0wy")
        await one.until(lambda: not view.is_copying)
        await one.sees("Copied")
        assert not prompt.text
        # Words are words, though most of their letters are keys.
        view.action_copy_mode()
        typed(one, "hey, what is it")
        await one.until(lambda: prompt.text == "hey, what is it")
        assert not view.is_copying
        assert not view.selected_positions
        await one.sees("Your text")


def typed(one: Desk, text: str) -> None:
    """Press keys that were read close after one another, however busy the machine is."""
    now = time.monotonic()
    for place, letter in enumerate(text):
        event = events.Key({" ": "space", "\t": "tab"}.get(letter, letter), letter)
        event.time = now - 0.02 * (len(text) - place)
        event.set_sender(one.app)
        one.app.post_message(event)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path
