"""The destination of typed text: the prompt, whatever was clicked, unless something was opened for its letters."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, call, say, stall
from support.screens import Desk, desk, talk
from textual import events
from textual.keys import _character_to_key  # pyright: ignore[reportPrivateUsage]

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.main.commands import rewind
from kimi_tui.tui.main.commands.rewind import name_of, preview
from kimi_tui.tui.main.commands.world_lines import compare_with_live, open_line
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.replay.scrubber import Scrubber
from kimi_tui.tui.terminal_input import InputResumed

FOR_EVER_S = 1e9
"""No keyboard of these tests is ever quiet for so long."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def a_conversation(one: Desk, server: ChatServer) -> None:
    """Two turns with a tool card, and a world line beside them."""
    (one.app.launch.work_dir / "a.txt").write_text("line\n" * 30)
    server.script(
        say("# Apples\n\nThey are **red**.", think="Let me think of apples."),
        call("ReadFile", {"path": "a.txt"}),
        say("Thirty lines."),
        say("Plums are blue."),
    )
    await one.ready()
    for text, answer in (("Tell me of apples", "They are red."), ("Read a.txt", "Thirty lines.")):
        await one.say(text)
        await one.sees(answer)
        await one.idle()
    soul = one.screen.conversation.soul
    assert soul is not None
    await soul.travel.rewind(Target(2))
    await one.until(lambda: "Thirty lines." not in one.text())
    await one.say("Tell me of plums")
    await one.sees("Plums are blue.")
    await one.idle()
    one.screen.bench.chat_pane.dismiss()


def facts(one: Desk, server: ChatServer) -> tuple[object, ...]:
    """Return the facts that must not change by typing."""
    screen = one.screen
    soul = screen.conversation.soul
    model = screen.bench.views.timeline.model
    assert soul is not None
    assert model is not None
    return (
        len(server.requests),
        [point.uid for point in model.tree.live],
        dict(soul.marks.bookmarks),
        soul.marks.pins,
        screen.conversation.state.mode,
        one.app.theme,
    )


async def home_again(one: Desk) -> None:
    """Leave what a click opened, and empty the prompt."""
    while one.app.screen is not one.screen:
        await one.pilot.press("escape")
    if one.screen.bench.reading:
        one.screen.viewer.leave()
        await one.until(lambda: not one.screen.bench.reading)
    one.screen.bench.return_to_prompt()
    one.screen.prompt.area.put("")
    await one.pilot.pause()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("size", "seed"), first_only([((80, 24), 2), ((120, 40), 1)], 2))
async def test_what_is_typed_after_any_click_lands_in_the_prompt(
    home: Path, size: tuple[int, int], seed: int
) -> None:
    text = "uf rJoPwU"  # keys of the chat, the timeline, the preview and a world line
    async with talk(home, a_conversation, size=size, quiet_s=FOR_EVER_S) as (one, server):
        await home_again(one)
        before = facts(one, server)
        chance = random.Random(seed)
        rows = one.text().split("\n")
        # These are all places where a click has an effect, and some others.
        marks = [
            (x, y) for y, row in enumerate(rows) for x, sign in enumerate(row) if sign in "#◊▸⌄●•✓"
        ]
        places = chance.sample(marks, min(len(marks), 6))
        # The first and the last row have words that are keys to click on.
        places += [(chance.randrange(size[0]), 1 + chance.randrange(size[1] - 2)) for _ in range(4)]
        for place in places:
            await one.pilot.click(offset=place)
            await one.pilot.pause()
            await one.pilot.press(*text)
            await one.until(lambda: one.screen.prompt.area.text == text)
            assert facts(one, server) == before, place
            await home_again(one)


@pytest.mark.exhaustive
async def test_a_click_leaves_the_keys_and_the_footer_where_they_are(home: Path) -> None:
    async with talk(home, a_conversation) as (one, server):
        await one.pilot.click(offset=(20, 8))
        assert one.screen.prompt.area.has_focus
        server.script(say("Done it."))
        await one.pilot.press(*"just do it", "enter", *"for all")
        await one.sees("Done it.")
        assert one.screen.prompt.area.text == "for all"
        assert "just do it" in str(server.requests[-1].body["messages"][-1])
        assert one.app.screen is one.screen


@pytest.mark.exhaustive
async def test_the_chat_is_entered_on_purpose_and_says_so(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, _):
        area, chat = one.screen.prompt.area, one.screen.transcript
        assert "Enter send" in one.text()
        await one.pilot.press("tab")
        await one.until(lambda: chat.has_focus)
        shown = await one.sees("Esc back")
        assert "Enter send" not in shown
        assert "Space unfold" in shown
        await one.pilot.press("k", "k", "j")
        assert chat.has_focus
        # A single letter that is no key of the chat does nothing; with others after it, it begins a word.
        typed(one, "h")
        await one.sees('"h" does nothing here.')
        assert area.text == ""
        assert chat.has_focus
        typed(one, "hjk", gap_s=0.001)
        await one.until(lambda: area.text == "hjk")
        assert area.has_focus
        await one.sees("Enter send")
        # Tab completes where something stands in the prompt; the command goes there as well.
        await one.pilot.press("tab")
        assert area.has_focus
        await one.say("/chat")
        await one.until(lambda: chat.has_focus)
        await one.pilot.press("escape")
        await one.until(lambda: area.has_focus)
        # Tab goes round what is on the screen, Shift+Tab the other way, and Escape back to where one came from.
        timeline, mode = one.screen.bench.views.timeline, one.screen.conversation.state.mode
        for key, focused in (
            *(("tab", chat), ("tab", timeline), ("tab", area)),
            *(("tab", chat), ("tab", timeline), ("shift+tab", chat), ("shift+tab", area)),
            *(("tab", chat), ("ctrl+t", timeline), ("escape", chat)),
            *(("ctrl+f", None), ("escape", chat), ("ctrl+t", timeline)),
            *(("ctrl+f", None), ("escape", timeline), ("escape", chat), ("escape", area)),
        ):
            await one.pilot.press(key)
            if focused is None:
                await one.until(lambda: one.screen.bench.on_view.is_searched)
            else:
                await one.until(lambda focused=focused: focused.has_focus)
        assert one.screen.conversation.state.mode == mode
        await one.pilot.resize_terminal(80, 24)
        for key, focused in (("tab", chat), ("tab", area)):
            await one.pilot.press(key)
            await one.until(lambda focused=focused: focused.has_focus)


@pytest.mark.exhaustive
async def test_what_the_keys_of_the_chat_do_commands_do_as_well(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        opened: list[str] = []
        monkeypatch.setattr(one.app, "open_url", opened.append)
        server.script(
            call("WriteFile", {"path": "a.txt", "content": "x\n" * 40}),
            say("See [it](https://example.org/a).\n\n" + "More.\n\n" * 60),
        )
        await one.ready()
        await one.say("/mode all")
        await one.say("Write it")
        await one.sees("More.")
        await one.idle()
        chat = one.screen.transcript
        await one.say("/link")
        # Nothing is chosen yet: it is the last block on view.
        await one.until(lambda: opened == ["https://example.org/a"])
        assert chat.has_focus
        one.screen.bench.focus_prompt()
        await one.say("/turn")
        assert "Write it" in await one.sees("a.txt")
        await one.say("/turn that")
        await one.sees("is not an argument of /turn")
        card = next(block for block in chat.blocks if isinstance(block, ToolBlock))
        assert not card.unfolded
        chat.action_choose(-1)
        while chat.chosen is not card:
            chat.action_choose(-1)
        await one.say("/fold")
        await one.until(lambda: card.unfolded)
        assert chat.has_focus
        one.screen.bench.focus_prompt()
        await one.say("/select")
        await one.until(lambda: chat.selected_positions is not None)


@pytest.mark.exhaustive
async def test_escape_in_the_chat_goes_back_and_stops_nothing(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        await one.say("Work")
        await one.until(lambda: one.screen.conversation.state.running)
        await one.pilot.press("tab")
        await one.until(lambda: one.screen.transcript.has_focus)
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.prompt.area.has_focus)
        assert one.screen.conversation.state.running
        await one.pilot.press("escape")
        await one.idle()


@pytest.mark.exhaustive
async def test_a_click_in_the_chat_leaves_the_timeline(home: Path) -> None:
    async with talk(home, a_conversation) as (one, _):
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        await one.pilot.click(offset=(20, 30))
        await one.until(lambda: one.screen.prompt.area.has_focus)
        await one.pilot.press("u")
        assert one.screen.prompt.area.text == "u"


@pytest.mark.exhaustive
async def test_keys_without_anyone_to_have_them_are_the_prompts(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        one.screen.set_focus(None)
        await one.pilot.press(*"abc")
        assert one.screen.prompt.area.text == "abc"


async def a_preview(one: Desk) -> RewindScreen:
    """Return the preview of a rewind to the newest turn, from the timeline."""
    await one.pilot.press("escape")
    one.screen.bench.return_to_prompt()
    one.screen.prompt.area.put("")
    one.screen.bench.focus_timeline()
    await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
    one.screen.bench.start(preview(one.screen.parts, Target(2)))
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    shown = one.app.screen
    assert isinstance(shown, RewindScreen)
    return shown


def typed(one: Desk, text: str, *, gap_s: float = 0.05, before_s: float = 0.0) -> None:
    """Keys that were read one after the other, the last of them so long ago."""
    # A busy machine may stop this process between two letters.
    now = time.monotonic()
    for place, letter in enumerate(text):
        event = events.Key(_character_to_key(letter), letter)
        event.time = now - before_s - gap_s * (len(text) - 1 - place)
        event.set_sender(one.app)
        one.app.post_message(event)


@pytest.mark.exhaustive
async def test_prose_over_a_preview_goes_to_the_prompt(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        before = facts(one, server)
        for words in ("for real now", "do it", "/help", "just do it", "Rd"):
            shown = await a_preview(one)
            await one.until(lambda shown=shown: shown.accepts_keys)
            # The keys were read close after one another, and are handled late.
            typed(one, words, before_s=5.0)
            await one.until(lambda words=words: one.screen.prompt.area.text == words)
            assert one.app.screen is one.screen
            assert one.screen.prompt.area.has_focus
            assert facts(one, server) == before
            await one.sees("Your text")


@pytest.mark.exhaustive
async def test_prose_on_the_timeline_goes_to_the_prompt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        before, area, pane = (
            facts(one, server),
            one.screen.prompt.area,
            one.screen.bench.timeline_pane,
        )

        async def on_timeline() -> None:
            area.put("")
            pane.open()
            await one.until(lambda: pane.has_keys)

        for words in ("put it back", "just u", "what is p", "book U", "a  b", "P u", "Undo it"):
            await on_timeline()
            typed(one, words, before_s=5.0)
            await one.until(lambda words=words: area.text == words)
            assert area.has_focus
            assert one.app.screen is one.screen
            assert facts(one, server) == before
            await one.sees("Your text")
        await on_timeline()
        one.app.post_message(events.Paste("up\r\nto"))
        await one.until(lambda: area.text == "up\nto")
        # Twice the same letter is that twice, and a held key acts while it is held; what only moves acts at once.
        acted: list[str] = []

        def act(name: str) -> None:
            acted.append(name)

        monkeypatch.setattr(one.screen, "action_command", act)
        await on_timeline()
        chosen = one.screen.bench.views.timeline._view.selected
        typed(one, "jkj", before_s=2.0)
        await one.until(lambda: one.screen.bench.views.timeline._view.selected != chosen)
        typed(one, "uu", before_s=1.0)
        await one.until(lambda: acted == ["undo"] * 2)
        typed(one, "U" * 7, gap_s=0.001)
        await one.until(lambda: acted[2:] == ["redo"] * 7)
        # Another key lets it act first; of two letters that are far from one another, each does.
        typed(one, "u")
        await one.pilot.press("escape")
        await one.until(lambda: acted[9:] == ["undo"] and not pane.has_keys)
        await on_timeline()
        typed(one, "uU", gap_s=0.4)
        await one.until(lambda: acted[10:] == ["undo", "redo"])
        # A single letter that is no key does nothing, and is in no command that is typed later; a sign begins a command.
        typed(one, "g")
        await one.sees('"g" does nothing here.')
        assert pane.has_keys
        assert area.text == ""
        typed(one, ".")
        await one.until(lambda: area.text == ".")


async def test_a_key_acts_only_by_what_it_is_bound_to_where_it_was_pressed(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, _):
        area = one.screen.prompt.area
        await one.pilot.press(*"kept", "space")
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        # These are no keys of the timeline: they are on their way up when the word after them gives the keys to the prompt.
        for name, character in (("ctrl+u", None), *((letter, letter) for letter in "word")):
            event = events.Key(name, character)
            event.set_sender(one.app)
            one.app.post_message(event)
        await one.until(lambda: area.text.endswith("word"))
        await one.pilot.pause()
        assert area.text == "kept word"
        await one.pilot.press("ctrl+u")
        assert not area.text


async def test_prose_over_what_is_read_goes_to_the_prompt(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        before, screen = facts(one, server), one.screen
        area = screen.prompt.area

        async def written(words: str) -> None:
            typed(one, words, gap_s=0.001)
            await one.until(lambda: area.text == words)
            await one.until(lambda: area.has_focus)
            assert one.app.screen is screen
            assert not screen.bench.reading
            assert facts(one, server) == before
            area.put("")

        screen.bench.focus_chat()
        await one.until(lambda: screen.transcript.has_focus)
        await written("Pin you just")
        screen.bench.start(open_line(screen.parts, 1))
        await one.until(lambda: screen.viewer.has_keys)
        await asyncio.sleep(0.05)  # the keyboard is to be quiet for a moment
        await written("send it")
        screen.bench.start(compare_with_live(screen.parts, 1))
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await written("just do it")
        screen.action_command("replay")
        await one.until(lambda: isinstance(one.app.screen.focused, Scrubber))
        await written("continue")


async def test_what_is_written_while_a_question_waits_answers_nothing(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("WriteFile", {"path": "b.txt", "content": "b\n"}), say("Written."))
        await one.say("Write it")
        await one.until(lambda: bool(one.screen.conversation.state.approvals))
        area, before = one.screen.prompt.area, facts(one, server)
        one.screen.bench.start(preview(one.screen.parts, Target(2)))
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        shown = one.app.screen
        assert isinstance(shown, RewindScreen)
        await one.until(lambda: shown.accepts_keys)
        typed(one, "yes, do")
        await one.until(lambda: area.text == "yes, do")
        await one.until(lambda: one.app.screen is one.screen)
        await one.sees("In the prompt: yes, do")
        await one.pilot.pause()
        # Letters after a while are another word.
        one.screen.keystrokes.written_at -= 1.0
        typed(one, "yay")
        await one.until(lambda: area.text == "yes, do yay")
        one.app.post_message(events.Paste(" \r\ny"))
        await one.until(lambda: area.text == "yes, do yay \ny")
        assert one.screen.conversation.state.approvals
        assert facts(one, server) == before
        # The question keeps the keys; Enter after it sends and opens nothing, and gives the keys back to the answers.
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        await one.pilot.press("enter")
        await one.sees("stays in the prompt. Answer first")
        # The other answers are tested with the panel alone.
        for words in ("yes but", "y "):
            area.put("")
            await one.until(lambda: panel.accepts_keys)
            # However late that was seen, the last letter comes too early for an answer.
            quiet_since = panel._quiet._last  # pyright: ignore[reportPrivateUsage]
            typed(one, words, before_s=time.monotonic() - quiet_since - 0.3)
            await one.until(lambda words=words: area.text == words)
            # However slowly the text continues, none of its letters answers.
            await one.until(lambda: panel.accepts_keys)
            # The same word continues, however long that took.
            one.screen.keystrokes.written_at = time.monotonic()
            await one.pilot.press("a", "backspace", "enter")
            assert area.text == words
            assert panel.has_focus
            assert one.app.screen is one.screen
            assert one.screen.conversation.state.approvals
        # The paste goes there however late it comes, although a block of the chat is chosen that it would open.
        one.screen.bench.focus_chat()
        one.app.post_message(events.Paste("late"))
        await one.until(lambda: area.text == "y late")
        event = events.Key("enter", "\r")
        event.time += 60.0
        event.set_sender(one.app)
        one.app.post_message(event)
        await one.pilot.pause()
        assert one.app.screen is one.screen
        area.put("y ")
        one.screen.bench.focus_prompt()
        await one.until(lambda: panel.accepts_keys)
        one.app.post_message(events.Paste("yes"))
        await one.until(lambda: area.text == "y yes")
        assert one.screen.conversation.state.approvals
        assert facts(one, server) == before
        # A word that was not all that is there answers nothing.
        await one.pilot.press("enter")
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("Written.")
        assert area.text == "y yes"


@pytest.mark.sample
@pytest.mark.parametrize(
    ("word", "shown"), [("yes", "Written."), ("OK", "Written."), ("no", "Enter send")]
)
async def test_a_whole_word_and_enter_answer(home: Path, word: str, shown: str) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("WriteFile", {"path": "b.txt", "content": "b\n"}), say("Written."))
        await one.say("Write it")
        await one.until(lambda: one.screen.bench.question is not None)
        panel, area = one.screen.bench.question, one.screen.prompt.area
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        typed(one, word, before_s=-1.0)
        await one.sees(f"In the prompt: {word}")
        await one.sees("Enter give this answer")
        await one.pilot.press("enter")
        await one.sees(shown)
        assert area.text == ""
        assert (home / "app" / "b.txt").exists() is (word != "no")


@pytest.mark.parametrize(
    ("words", "then", "said"),
    [
        ("both of them", "Send this answer", "both of them"),
        pytest.param(*("in the config", "Asked.", "In the `config`"), marks=pytest.mark.exhaustive),
        ("", "No answer is selected", ""),
    ],
)
async def test_words_and_enter_answer_a_question_of_the_agent(
    home: Path, words: str, then: str, said: str
) -> None:
    question = {"question": "**Where**?", "options": [{"label": "In the `config`"}, {"label": "b"}]}
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("AskUserQuestion", {"questions": [question]}), say("Asked."))
        await one.say("Ask")
        await one.until(lambda: one.screen.bench.question is not None)
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        typed(one, words, before_s=-1.0)
        if words:
            await one.sees(f"In the prompt: {words}")
        await one.pilot.press("enter")
        await one.sees(then)
        if not said:
            return
        if then != "Asked.":
            # Esc gives the words back to the prompt.
            await one.pilot.press("escape")
            await one.until(lambda: one.screen.prompt.area.text == words)
            await one.until(lambda: panel.accepts_keys)
            one.screen.prompt.area.put("")
            typed(one, words, before_s=-1.0)
            await one.sees(f"In the prompt: {words}")
            await one.pilot.press("enter")
            await one.sees(then)
            await one.pilot.pause(0.2)
            await one.pilot.press("enter")
            await one.sees("Asked.")
        assert said in str(server.requests[-1].messages[-1])
        # The question is drawn from its Markdown, in the row of the card and in the timeline.
        await one.sees("    Where? ")
        assert one.screen.prompt.area.text == ""


@pytest.mark.exhaustive
async def test_an_arrow_leads_back_to_the_answers_and_the_text_stays(home: Path) -> None:
    question = {"question": "Where?", "options": [{"label": "a"}, {"label": "b"}]}
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("AskUserQuestion", {"questions": [question]}), say("Asked."))
        await one.say("Ask")
        await one.until(lambda: one.screen.bench.question is not None)
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        typed(one, "both of them", before_s=-1.0)
        await one.sees("In the prompt: both of them")
        await one.sees("Enter answer in your own words")
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("down")
        await one.sees("Your text stays in the prompt")
        await one.until(lambda: "in your own words" not in one.text())


@pytest.mark.parametrize("words", ["h", "hello"])
async def test_esc_and_text_right_behind_it_stop_the_turn_and_keep_the_text(
    home: Path, words: str
) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("WriteFile", {"path": "b.txt", "content": "b\n"}), say("Written."))
        await one.say("Write it")
        await one.until(lambda: one.screen.bench.question is not None)
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        escape = events.Key("escape", "\x1b")
        escape.set_sender(one.app)
        one.app.post_message(escape)
        typed(one, words)
        await one.until(lambda: one.screen.bench.question is None)
        await one.idle()
        await one.until(lambda: one.screen.prompt.area.text == words)


async def test_the_menu_of_a_command_is_hidden_while_a_question_has_the_keys(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        server.script(call("WriteFile", {"path": "b.txt", "content": "b\n"}), say("Written."))
        await one.say("Write it")
        await one.until(lambda: one.screen.bench.question is not None)
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        typed(one, "/undo", before_s=-1.0)
        await one.sees("In the prompt: /undo")
        await one.pilot.pause()
        assert "Undo the last rewind" not in one.text()
        await one.pilot.press("enter")
        await one.sees("stays in the prompt. Answer first")
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("down", "up", "enter")
        await one.sees("Written.")
        await one.sees("Undo the last rewind")


async def test_a_word_that_was_typed_before_the_question_could_be_seen_answers_nothing(
    home: Path,
) -> None:
    async with talk(home, a_conversation, quiet_s=FOR_EVER_S) as (one, server):
        server.script(call("WriteFile", {"path": "b.txt", "content": "b\n"}))
        await one.say("Write it")
        await one.until(lambda: one.screen.bench.question is not None)
        typed(one, "yes")
        await one.sees("In the prompt: yes")
        await one.pilot.press("enter")
        await one.sees("stays in the prompt. Answer first")
        assert one.screen.prompt.area.text == "yes"
        assert one.screen.conversation.state.approvals


@pytest.mark.exhaustive
async def test_an_enter_that_ends_prose_sends_no_dmail(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=FOR_EVER_S) as (one, server):
        before = facts(one, server)
        one.screen.bench.start(rewind.dmail(one.screen.parts, "2"))
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press(*"o rename", "enter")
        await one.sees("Press Enter again to send this text.")
        assert facts(one, server) == before
        await one.pilot.press("enter")
        await one.sees("The key was pressed too early")
        assert facts(one, server) == before
        TextDialog.QUIET_S = 0.0
        await one.pilot.press("enter")
        await one.sees("Your D-Mail is at #2")


@pytest.mark.exhaustive
async def test_a_row_of_the_chat_is_read_there(home: Path) -> None:
    async with talk(home, a_conversation, size=(120, 24)) as (one, server):
        server.script(say("More.\n\n" * 40))
        await one.say("Tell me more")
        await one.sees("More.")
        await one.idle()
        timeline, chat = one.screen.bench.views.timeline, one.screen.transcript
        await one.pilot.press("ctrl+t", "end", "w")
        await one.until(lambda: chat.has_focus)
        assert chat.chosen is not None
        assert chat.chosen.checkpoint == 0
        assert "Tell me of apples" in one.text()
        await one.pilot.press("escape")
        await one.until(lambda: timeline.has_focus)
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.prompt.area.has_focus)
        # A user who leaves the timeline as they came finds its newest turn again.
        await one.pilot.press("ctrl+t", "end", "ctrl+t", "ctrl+t")
        await one.until(lambda: timeline.has_focus)
        row = timeline._view.selected_row()  # pyright: ignore[reportPrivateUsage]
        assert row is not None
        assert row.checkpoint is not None
        assert row.checkpoint.words == "Tell me more"


async def test_a_name_without_a_number_stays_in_the_prompt(home: Path) -> None:
    async with talk(home, a_conversation) as (one, _):
        await one.say("/name fine apples")
        await one.sees("/name 1 fine apples names world line 1.")
        assert one.screen.prompt.area.text == "/name fine apples"


@pytest.mark.exhaustive
async def test_a_letter_answers_a_preview_once_it_has_settled(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=0.01) as (one, server):
        before = facts(one, server)
        shown = await a_preview(one)
        # The letter was typed after the key that opened the preview, before it could be seen: it chooses its row, and answers
        # nothing.
        typed(one, "d", before_s=1.0)
        await one.sees("The key was pressed too early; press it again")
        await one.sees("▌ d  Send a D-Mail here")
        # Nor does one that is held down since.
        watch = shown._paint  # pyright: ignore[reportPrivateUsage]
        await one.until(lambda: not watch.waits)
        typed(one, "rr", gap_s=0.2, before_s=time.monotonic() - watch.seen_at - 0.1)
        await one.sees("▌ r  Rewind the conversation")
        await one.sees("The key was pressed too early; press it again")
        assert one.app.screen is shown
        assert facts(one, server) == before
        typed(one, "d")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press("escape")
        # A held key is one letter; Enter after a letter waits for another Enter.
        shown = await a_preview(one)
        await one.until(lambda: shown.accepts_keys)
        # All of them were read at once, however late the app handles them.
        typed(one, "nn")
        enter = events.Key("enter", "\r")
        enter.set_sender(one.app)
        one.app.post_message(enter)
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert facts(one, server) == before
        # Text that continues the prompt is no answer either.
        shown = await a_preview(one)
        await one.pilot.press("escape")
        one.screen.bench.focus_prompt()
        one.screen.prompt.area.put("fo")
        await one.until(lambda: one.screen.keystrokes.written_at > 0)
        one.screen.bench.start(preview(one.screen.parts, Target(2)))
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        typed(one, "r", before_s=time.monotonic() - one.screen.keystrokes.written_at - 0.05)
        await one.until(lambda: one.screen.prompt.area.text == "for")
        assert facts(one, server) == before
        shown = await a_preview(one)
        await one.until(lambda: shown.accepts_keys)
        typed(one, "r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of plums")


@pytest.mark.exhaustive
async def test_enter_answers_a_preview_that_was_looked_at(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=FOR_EVER_S) as (one, server):
        before = facts(one, server)
        shown = await a_preview(one)
        await one.pilot.press("enter")
        assert one.app.screen is shown
        await one.sees("Enter was pressed too early; press it again")
        assert facts(one, server) == before

        def can_be_seen() -> bool:
            return shown._quiet is not None  # pyright: ignore[reportPrivateUsage]

        await one.until(can_be_seen)
        # A user who was away has to look again, whatever they saw before.
        await one.pilot.press("down", "up")
        for back in (InputResumed(), events.AppFocus()):
            one.app.post_message(back)
            await one.pilot.press("enter")
            assert one.app.screen is shown
            await one.until(can_be_seen)
        assert facts(one, server) == before
        # A user who has moved about in it has seen it, but not by keys that were read before it could be seen.
        early = events.Key("down", None)
        one.app.post_message(InputResumed())
        watch = shown._paint  # pyright: ignore[reportPrivateUsage]
        await one.until(lambda: not watch.waits and watch.seen_at > early.time)
        one.app.post_message(early)
        await one.sees("▌ n  Fork into a new session")
        await one.pilot.press("enter")
        assert one.app.screen is shown
        assert facts(one, server) == before
        await one.pilot.press("up")
        await one.pilot.press("down", "up", "enter")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of plums")


@pytest.mark.exhaustive
async def test_a_world_line_takes_letters_once_the_keyboard_was_quiet(home: Path) -> None:
    async with talk(home, a_conversation, quiet_s=FOR_EVER_S) as (one, server):
        before = facts(one, server)
        await one.say("/worldline 1")
        # Esc would drop what still waits for the line to be open.
        await one.until(
            lambda: one.screen.viewer.has_keys and not one.screen.bench.type_ahead.is_holding
        )
        await one.pilot.press(*"just")
        assert one.screen.bench.reading == 1
        assert facts(one, server) == before
        await one.pilot.press("escape")
        await one.until(lambda: not one.screen.bench.reading)
        assert one.screen.prompt.area.text == "just"
        one.screen.prompt.area.put("")
        # The line has its name wherever it is mentioned.
        await one.say("/worldline 1")
        await one.sees(
            "Reading world line 1 (Read a.txt). Esc returns to the current conversation."
        )
        assert name_of(one.screen.parts, Target(0, 1)) == "#0 of world line 1 (Read a.txt)"


@pytest.mark.exhaustive
async def test_escape_from_a_world_line_goes_back_to_where_it_was_opened(home: Path) -> None:
    async with talk(home, a_conversation) as (one, _):
        pane = one.screen.bench.timeline_pane
        await one.pilot.press("ctrl+t")
        await one.until(lambda: pane.has_keys)
        one.screen.bench.start(open_line(one.screen.parts, 1))
        await one.until(lambda: one.screen.viewer.has_keys)
        await one.pilot.press("escape")
        await one.until(lambda: pane.has_keys)
        assert not one.screen.bench.reading
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.prompt.area.has_focus)
        await one.say("/worldline 1")
        await one.until(lambda: one.screen.viewer.has_keys)
        await one.pilot.press("escape")
        await one.until(lambda: one.screen.prompt.area.has_focus)
