"""The chat as a person meets it: it follows, scrolls, folds, copies and answers to clicks."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time

import pytest
from support.chat_app import ChatApp, drawn, is_drawn, show_history
from support.conversation import LETTER, Conversation, quoted_fields, slow_import
from support.watching import until
from textual import events
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import ModalScreen

from kimi_tui.projection.blocks import AgentBlock
from kimi_tui.tui.glyphs import ASCII
from kimi_tui.tui.transcript.transcript import (
    COVERED_FRAME_S,
    FLOOD,
    FLOODED_FRAME_S,
    Transcript,
)
from kimi_tui.wire.events import (
    ContextReverted,
    EventRecord,
    LineChanged,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolStarted,
    TurnBegin,
)

SIZE = (81, 37)


def long_talk(turns: int = 30) -> Conversation:
    talk = Conversation(started=0.0)
    for n in range(turns):
        talk.user(f"Question {n}")
        talk.step(
            text=f"Answer {n}.\n\n```\n\n```\n- one\n- two\n\nSee https://example.org/{n} for more."
        )
        talk.tool("Shell", {"command": "make"}, "\n".join(f"line {k}" for k in range(9)))
        talk.end()
    return talk


def row_of(app: ChatApp, words: str) -> int:
    """Return the row of the pane, counted from the top of the screen, that holds these words."""
    return next(y for y, row in enumerate(app.rows) if words in row) + 1


async def feed(app: ChatApp, pilot: Pilot[None], talk: Conversation) -> None:
    app.transcript.apply(talk.take())
    while not is_drawn(app.transcript) and not app.transcript.is_moving:
        await pilot.pause()
    await pilot.pause()


@pytest.mark.exhaustive
def test_nothing_heavy_is_imported_before_the_first_event() -> None:
    code = (
        "import sys, kimi_tui.tui.transcript.transcript\n"
        "heavy = ('kimi_tui.wire', 'kimi_tui.soul', 'kimi_tui.llm', 'kimi_tui.session', 'pydantic', 'openai',"
        " 'markdown_it', 'pygments', 'rich.markdown', 'rich.syntax')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_it_looks_like_the_picture() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, quoted_fields())
        rows = app.rows
    assert (
        rows[0] == '▌   Fields with "" inside break the importer. Fix it, with a test.          #11'
    )
    assert "    Thought for 6 s  +12 lines" in rows
    assert "  ✓ Read  src/csv/tokenizer.py                          184 lines   +2.1k   #13" in rows
    assert "      42 −     return self._field(start, i)" in rows
    assert "  × Shell pytest -q tests/csv                      exit 1   2.4 s   +1.2k   #15" in rows
    assert "    One index runs past the end of the last line. I add a▌" in rows


async def test_it_follows_the_end_and_stops_when_scrolled_up() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = long_talk()
        await feed(app, pilot, talk)
        assert "Shell make" in "".join(app.rows[-5:])
        view = app.transcript
        view.focus()
        await pilot.press("pageup")
        top = app.rows[0]
        talk.user("More")
        talk.step(text="word\n\n" * 20)
        await feed(app, pilot, talk)
        assert app.rows[0] == top
        mark = re.search(r"↓ (\d+) new$", app.rows[-1])
        assert mark is not None
        # Out of sight heights are estimates.
        assert 38 <= int(mark[1]) <= 48
        await pilot.press("end")
        assert "word▌" in app.rows[-1]
        talk.tell(TextPart("the end"))
        await feed(app, pilot, talk)
        assert "the end▌" in app.rows[-1]


async def test_a_click_on_the_mark_goes_to_the_end() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = long_talk()
        await feed(app, pilot, talk)
        app.transcript.action_page_up()
        talk.user("More")
        await feed(app, pilot, talk)
        assert "new" in app.rows[-1]
        await pilot.click("#chat", offset=(74, len(app.rows) - 1))
        assert "More" in app.rows[-1]


@pytest.mark.exhaustive
async def test_scrolling_up_through_estimates_shows_each_row_once() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk())
        seen = app.rows
        while app.transcript.scroll_y > 0:
            before = app.rows
            app.transcript.scroll_relative(y=-10)
            await pilot.pause()
            now = app.rows
            shift = next(n for n in range(1, 30) if now[n:] == before[: len(before) - n])
            # Whatever was estimated above, what is looked at moves by what the person scrolled.
            assert shift == 10 or app.transcript.scroll_y == 0
            seen = now[:shift] + seen
        questions = [row for row in seen if "Question" in row]
        assert [re.sub(r"\D+(\d+).*", r"\1", row) for row in questions] == [
            str(n) for n in range(30)
        ]


async def test_clicks() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk(2))
        await pilot.click("#chat", offset=(77, row_of(app, "Question 1") - 1))
        (clicked,) = app.posted
        assert isinstance(clicked, Transcript.CheckpointClicked)
        assert clicked.id == 2
        await pilot.click("#chat", offset=(12, row_of(app, "https://example.org/1") - 1))
        link = app.posted[-1]
        assert isinstance(link, Transcript.LinkClicked)
        assert link.url == "https://example.org/1"
        count = len(app.posted)
        await pilot.click("#chat", offset=(12, row_of(app, "Answer 1") - 1))
        assert len(app.posted) == count


async def test_folding_by_click_and_by_key() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk(1))
        assert "      line 8   +6 lines" in app.rows
        await pilot.click("#chat", offset=(12, row_of(app, "Shell make") - 1))
        assert "      line 0" in app.rows
        app.transcript.focus()
        await pilot.press("k", "space")
        assert "      line 0" not in app.rows
        await pilot.press("enter")
        chosen = app.posted[-1]
        assert isinstance(chosen, Transcript.CheckpointClicked)
        assert chosen.id == 1


async def test_keys_reach_every_block_answers_too() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk(2))
        app.transcript.focus()
        blocks = app.transcript.blocks
        wanted = [(block.uid, block.number) for block in reversed(blocks)]
        assert any(isinstance(block, AgentBlock) for block in blocks)
        for _ in blocks:
            await pilot.press("k", "P")
        asked = [one for one in app.posted if isinstance(one, Transcript.PinToggled)]
        assert [(one.uid, one.number) for one in asked] == wanted
        await pilot.press("j", "j", "k", "k", "k", "P")
        asked = [one for one in app.posted if isinstance(one, Transcript.PinToggled)]
        assert (asked[-1].uid, asked[-1].number) == wanted[-1]


async def test_reading_what_was_unfolded_is_not_disturbed() -> None:
    app = ChatApp()
    async with app.run_test(size=(81, 20)) as pilot:
        talk = long_talk(6)
        await feed(app, pilot, talk)
        await pilot.click("#chat", offset=(12, row_of(app, "Shell make") - 1))
        row = row_of(app, "Shell make")
        talk.user("More")
        talk.step(text="word\n\n" * 20)
        await feed(app, pilot, talk)
        assert row_of(app, "Shell make") == row


async def test_turns_by_key() -> None:
    app = ChatApp()
    async with app.run_test(size=(81, 20)) as pilot:
        await feed(app, pilot, long_talk(9))
        app.transcript.focus()
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert "Question 6" in app.rows[0]
        await pilot.press("right_square_bracket")
        assert "Question 7" in app.rows[0]


async def test_selected_text_is_copied_as_it_was_written() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, quoted_fields())
        first, last = row_of(app, "The tokenizer ends"), row_of(app, "2. Look")
        await pilot.mouse_down("#chat", offset=(4, first - 1))
        await pilot.hover("#chat", offset=(30, first + 2))
        await pilot.hover("#chat", offset=(30, last - 1))
        await pilot.mouse_up("#chat", offset=(30, last - 1))
        assert app.screen.get_selected_text() == (
            "The tokenizer ends a field at the first quote. It never looks at the next character, so an escaped quote"
            " ends the field too early:\n\n"
            'if ch == QUOTE:\n  return self._field(start, i)   # "" is an escape, not the end\n\n'
            '1. Write a test that fails on "a ""quoted"" word"\n2. Look one character ahead'
        )
        assert app.posted == []


async def test_the_end_of_a_selection_is_no_click() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, quoted_fields())
        first, last = row_of(app, "The tokenizer ends"), row_of(app, "Read  src")
        await pilot.mouse_down("#chat", offset=(4, first - 1))
        await pilot.hover("#chat", offset=(30, last - 3))
        await pilot.hover("#chat", offset=(20, last - 1))
        await pilot.mouse_up("#chat", offset=(20, last - 1))
        app.transcript.post_message(click_on(app.transcript, 20, last - 1))
        await pilot.pause()
        assert app.posted == []


async def test_all_text_can_be_selected() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk(40))
        app.transcript.text_select_all()
        await pilot.pause()
        text = app.screen.get_selected_text() or ""
        assert [f"Question {n}" in text for n in range(40)] == [True] * 40


@pytest.mark.exhaustive
async def test_another_width_keeps_the_place() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk())
        app.transcript.focus()
        await pilot.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        top = app.rows[0].split("#")[0].strip()
        assert "Question" in top
        await pilot.resize_terminal(60, 30)
        await pilot.pause()
        assert any(top in row for row in app.rows[:3])
        app.transcript.scroll_to_end()
        await pilot.resize_terminal(100, 25)
        await pilot.pause()
        assert app.transcript.scroll_y == app.transcript.max_scroll_y
        assert "+6 lines" in app.rows[-1]


async def test_history_moves_nothing_and_replaces() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        old = slow_import()
        for n, record in enumerate(old.records):
            old.records[n] = EventRecord(record.seq, 1_000.0 + n, record.event)
        old.now = 2_000.0
        old.letter(8, LETTER)
        await feed(app, pilot, old)
        assert not app.transcript.is_moving
        assert any("D-Mail  from #11 to #8" in row for row in app.rows)
        show_history(app.transcript, quoted_fields().records)
        await pilot.pause()
        assert not any("D-Mail" in row for row in app.rows)
        assert app.rows[0].startswith("▌   Fields")


async def with_letter(app: ChatApp, pilot: Pilot[None]) -> Conversation:
    talk = slow_import()
    talk.step()
    talk.tool("SendDMail", {"message": LETTER, "checkpoint_id": 8}, "not sent")
    await feed(app, pilot, talk)
    talk.now = time.time()
    talk.letter(8, LETTER)
    app.transcript.apply(talk.take())
    return talk


@pytest.mark.exhaustive
async def test_a_fold_moves_and_is_over_in_the_final_state() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        view = app.transcript
        await with_letter(app, pilot)
        assert view.is_moving
        assert any("Read  import.log" in row for row in app.rows)
        await pilot.wait_for_animation()
        await pilot.pause()
        assert not view.is_moving
        assert any("from #12 to #8" in row for row in app.rows)
        assert not any("Read  import.log" in row for row in app.rows)


@pytest.mark.parametrize("how", ["text", "click", "call"])
async def test_a_fold_can_be_cut_short(how: str) -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        view = app.transcript
        talk = await with_letter(app, pilot)
        assert view.is_moving
        if how == "text":
            talk.tell(ThinkPart("So"))
            app.transcript.apply(talk.take())
        elif how == "click":
            view.post_message(click_on(view))
            await pilot.pause()
        else:
            view.finish_motion()
        assert not view.is_moving
        await pilot.pause()
        assert any("from #12 to #8" in row for row in app.rows)
        assert app.posted == []


def click_on(view: Transcript, x: int = 77, y: int = 10) -> events.Click:
    return events.Click(view, x, y, 0, 0, 1, False, False, False)


async def test_no_motion_where_none_is_wanted() -> None:
    app = ChatApp()
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        await with_letter(app, pilot)
        assert not app.transcript.is_moving
        assert await until(lambda: any("from #12 to #8" in row for row in app.rows))


async def test_a_rewind_ends_with_what_stays() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = quoted_fields()
        await feed(app, pilot, talk)
        talk.now = time.time()
        talk.tell(ContextReverted("rewind", 13, "u", 16, 2, 4, 2, 58_000, 56_000))
        await feed(app, pilot, talk)
        app.transcript.finish_motion()
        await pilot.pause()
        rows = [row for row in app.rows if row]
        assert rows[-1] == "      · Run the whole suite"


async def test_a_letter_unfolds_to_what_it_undid() -> None:
    app = ChatApp()
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        await with_letter(app, pilot)
        assert await until(lambda: any("removed from the context" in row for row in app.rows))
        await pilot.click("#chat", offset=(12, row_of(app, "removed from the context") - 1))
        lost = [row for row in app.rows if row.startswith("▌ ✓")]
        assert len(lost) == 4
        count = len(app.posted)
        # The card can only be read.
        await pilot.click("#chat", offset=(77, row_of(app, "Read  import.log") - 1))
        assert len(app.posted) == count


async def test_a_retry_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Hi")
        talk.tell(StepRetry(1, 2, 3, 4.0, "the server is overloaded (529)", 529))
        await feed(app, pilot, talk)
        assert any("Retrying in 4 s" in row and "2 of 3" in row for row in app.rows)
        due = talk.now + 4.0
        monkeypatch.setattr(time, "time", lambda: due - 2.0)
        app.transcript._tick_down()
        await pilot.pause()
        assert any("Retrying in 2 s" in row for row in app.rows)
        talk.tell(TextPart("Here"))
        await feed(app, pilot, talk)
        assert not any("Retrying" in row for row in app.rows)
        assert app.transcript._tick is None


HOSTILE = [
    "\x1b]52;c;aGk=\x07", "\x1b]8;;http://a\x1b\\x\x1b]8;;\x1b\\", "\x1b[6n", "\x9b6n", "\x9d0;t\x9c", "\x07", "\x7f",
    "\x1bP+q\x1b\\", "\u202e", "\ud800", "[@click=app.quit]", "[/]", "a [/] b", "\x00", "\r\n", "\t", "&#27;[2J", "\x85",
]  # fmt: skip


async def test_hostile_text_is_only_text_everywhere() -> None:
    text = "".join(HOSTILE)
    app = ChatApp()
    app.animation_level = "none"
    async with app.run_test(size=(120, 60)) as pilot:
        talk = Conversation()
        talk.user(text)
        talk.step(
            think=text,
            text=f"{text}\n\n```{text}\n{text}\n```\n| {text} |\n|---|\n| {text} |\n\n- {text}",
        )
        talk.tool(f"T{text}", {"path": text}, text, error=True)
        talk.tool("Shell", {"command": text}, text, error=True)
        talk.tell(ToolStarted("x", "Shell", text))
        talk.tell(StepRetry(1, 2, 3, 60.0, text))
        talk.end("error", error=text, advice=text)
        talk.letter(0, text)
        await feed(app, pilot, talk)
        for block in [*app.transcript.blocks]:
            if not block.unfolded:
                app.transcript.toggle_fold(block)
        await pilot.pause()
        shown = "\n".join(app.rows)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", shown)
        assert "[@click=app.quit]" in shown
        assert app.is_running


async def test_ascii_signs() -> None:
    app = ChatApp(glyphs=ASCII)
    async with app.run_test(size=(81, 24)) as pilot:
        talk = quoted_fields()
        await feed(app, pilot, talk)
        assert "".join(app.rows).isascii()
        bar = app.transcript.vertical_scrollbar
        assert {segment.text for segment in bar.render_line(0)} <= {" ", "|"}


async def test_behind_a_dialog_it_is_drawn_seldom() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        loop, chat = asyncio.get_running_loop(), app.transcript
        talk = Conversation()
        talk.user("Count")
        talk.tell(TextPart("One"))
        chat.apply(talk.take())
        await app.push_screen(ModalScreen[None]())
        await pilot.pause()

        n_drawn = 0
        began = loop.time()
        while (took := loop.time() - began) < 3 * COVERED_FRAME_S:
            talk.tell(TextPart(" two"))
            chat.apply(talk.take())
            await asyncio.sleep(0.005)
            n_drawn += is_drawn(chat)
        assert 1 <= n_drawn <= took / COVERED_FRAME_S + 1
        talk.tell(TextPart(" END"))
        chat.apply(talk.take())
        app.pop_screen()
        chat.uncovered()
        assert is_drawn(chat)
        await pilot.pause()
        assert "END" in "".join(app.rows)


@pytest.mark.exhaustive
async def test_what_nobody_can_read_is_drawn_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        loop, chat = asyncio.get_running_loop(), app.transcript
        talk = Conversation()
        talk.user("Count")
        talk.tell(TextPart("One"))
        chat.apply(talk.take())
        # The first word comes at once.
        assert is_drawn(chat)
        await pilot.pause()
        assert "One" in "".join(app.rows)

        painted = 0
        refresh_rows = chat.refresh_rows

        def count() -> None:
            nonlocal painted
            painted += 1
            refresh_rows()

        monkeypatch.setattr(chat, "refresh_rows", count)
        began = loop.time()
        while (took := loop.time() - began) < 4 * FLOODED_FRAME_S:
            talk.tell(TextPart("two\n\n" * FLOOD))
            chat.apply(talk.take())
            await pilot.pause()
        assert painted <= took / FLOODED_FRAME_S + 2
        talk.tell(TextPart("END"))
        talk.end()
        chat.apply(talk.take())
        while not is_drawn(chat):
            await pilot.pause()
        await pilot.pause()
        assert "END" in "".join(app.rows)


async def test_the_scrollbar_has_no_track() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk())
        bar = app.transcript.vertical_scrollbar
        cells = [bar.render_line(y).text for y in range(bar.size.height)]
        assert set(cells) == {" ", "▐"}
        assert cells[-1] == "▐"
        app.transcript.action_page_up()
        await pilot.pause()
        assert bar.render_line(bar.size.height - 1).text == " "


async def test_no_scrollbar_where_all_is_visible() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, long_talk(1))
        assert not app.transcript.show_vertical_scrollbar


async def test_an_empty_chat_asks_and_hints() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        rows = app.rows
        assert "          What shall we work on?" in rows
        talk = Conversation()
        talk.tell(TurnBegin("Hi"))
        await feed(app, pilot, talk)
        assert app.rows[0].startswith("▌   Hi")
        assert not any("What shall" in row for row in app.rows)


async def test_an_unknown_line_asks_for_the_history() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = quoted_fields()
        talk.tell(LineChanged("undo", 8, 9, "u"))
        await feed(app, pilot, talk)
        assert any(isinstance(message, Transcript.RebuildNeeded) for message in app.posted)


async def test_finished_rows_keep_their_strips_while_text_streams() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = quoted_fields()
        await feed(app, pilot, talk)
        flow = app.transcript.flow
        assert flow is not None
        before = [view.strips[:] for view in flow.views[:-1]]
        talk.tell(TextPart(" check at the end."))
        await feed(app, pilot, talk)
        after = [view.strips for view in flow.views[:-1]]
        assert all(
            a is b
            for old, new in zip(before, after, strict=True)
            for a, b in zip(old, new, strict=True)
        )


@pytest.mark.exhaustive
async def test_other_colours_repaint() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        await feed(app, pilot, quoted_fields())
        dark = app.export_screenshot()
        app.theme = "kimi-light"
        await pilot.pause()
        light = app.export_screenshot()
        assert "#fbfaf7" in light.lower()
        assert "#101318" not in light.lower()
        app.theme = "kimi-dark"
        await pilot.pause()
        assert re.sub(r"terminal-\d+", "", app.export_screenshot()) == re.sub(
            r"terminal-\d+", "", dark
        )


@pytest.mark.exhaustive
async def test_what_is_unfolded_is_not_new_and_folded_again_it_follows_the_end() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = long_talk()
        await feed(app, pilot, talk)

        async def click_last(words: str) -> None:
            (*_, y) = (y for y, row in enumerate(app.rows) if words in row)
            await pilot.click("#chat", offset=(20, y))

        await click_last("+6 lines")
        assert "line 0" in "".join(app.rows)
        assert " new" not in app.rows[-1]
        await click_last("Shell make")
        while "+6 lines" not in app.rows[-1]:
            await click_last("Shell make")
        talk.user("More")
        await feed(app, pilot, talk)
        assert "More" in app.rows[-1]


async def test_an_empty_chat_behind_a_pane_is_drawn_anew_for_a_preview(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = ChatApp()
    async with app.run_test(size=(60, 20)) as pilot:
        await drawn(app, pilot)
        chat, regions = app.transcript, list[Region]()
        chat.behind = True
        await drawn(app, pilot)
        monkeypatch.setattr(chat, "refresh", lambda *some: regions.extend(some))
        for previewed in (0, None):
            regions.clear()
            chat.show_dropped(previewed)
            assert {y for region in regions for y in region.line_range} >= {
                *range(chat.size.height)
            }
