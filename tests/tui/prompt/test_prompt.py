"""The prompt: what the keys do in its field, its history, and the row around it."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.foreign_text import clean_source
from kimi_tui.projection.session_state import SessionState
from kimi_tui.session.prompt_history import append_history, history_file, read_history
from kimi_tui.tui.first_page import IDLE_WORDS
from kimi_tui.tui.prompt.area import HELD_S, LONGEST, PromptArea
from kimi_tui.tui.prompt.bar import RESUME_WORDS, STEER_WORDS, PromptBar
from kimi_tui.tui.prompt.history import PromptHistory
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK


class Desk(App[None]):
    """A prompt alone, and what it told."""

    CSS_PATH = sheets("app", "prompt")

    def __init__(self) -> None:
        super().__init__()
        self.register_theme(KIMI_DARK)
        self.theme = "kimi-dark"
        self.bar = PromptBar()
        self.sent: list[str] = []
        self.told: list[str] = []

    @property
    def area(self) -> PromptArea:
        """The field."""
        return self.bar.area

    def compose(self) -> ComposeResult:
        """Return the row."""
        yield self.bar

    def on_mount(self) -> None:
        """Set the state as the main screen does."""
        self.area.past = PromptHistory(["first", "second"])
        self.area.focus()

    def on_prompt_area_sent(self, event: PromptArea.Sent) -> None:
        """Take it."""
        self.sent.append(event.text)
        self.area.take()

    def on_prompt_area_recall_pressed(self) -> None:
        """Nothing is queued here."""
        self.told.append("queued")
        self.area.recall()

    def on_prompt_area_exit_pressed(self, event: PromptArea.ExitPressed) -> None:
        """Note it."""
        self.told.append(f"leave by {event.key}")

    def on_prompt_area_paged(self, event: PromptArea.Paged) -> None:
        """Note it."""
        self.told.append(f"page {event.direction}")


async def test_enter_sends_and_other_keys_make_lines() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("a", "shift+enter", "b", "ctrl+j", "c", "alt+enter", "d", "enter")
        await pilot.pause()
        assert desk.sent == ["a\nb\nc\nd"]
        assert desk.area.text == ""


@pytest.mark.exhaustive
async def test_every_enter_with_a_modifier_breaks_the_line() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        for key in DEFAULT_KEYS["newline"].split(","):
            desk.area.put("")
            await pilot.press("a", key, "b")
            await pilot.pause()
            assert (desk.area.text, desk.sent) == ("a\nb", []), key


async def edited(text: str, *keys: str) -> str:
    """Return a text after these keys, `|` where the cursor stands."""
    desk = Desk()
    async with desk.run_test() as pilot:
        desk.area.put(text)
        await pilot.press(*keys)
        await pilot.pause()
        desk.area.insert("|")
        return desk.area.text


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (["alt+b"], "one two |three"),
        (["alt+left", "alt+left"], "one |two three"),
        (["ctrl+left", "alt+f"], "one two three|"),
        (["home", "alt+right"], "one| two three"),
        (["home", "ctrl+right"], "one| two three"),
        (["home", "alt+d"], "| two three"),
        (["home", "alt+d", "alt+d"], "| three"),
        (["ctrl+w"], "one two |"),
        (["alt+backspace", "ctrl+backspace"], "one |"),
        # Cut text can be inserted elsewhere, and successive cuts are one text.
        (["ctrl+w", "ctrl+w", "ctrl+a", "ctrl+y"], "two three|one "),
        (["ctrl+a", "alt+d", "alt+d", "ctrl+e", "ctrl+y"], " threeone two|"),
        (["ctrl+w", "home", "alt+d", "end", "ctrl+y"], " two one|"),
        (["ctrl+u", "ctrl+y", "ctrl+y"], "one two threeone two three|"),
        (["alt+b", "ctrl+k", "home", "ctrl+y"], "three|one two "),
        (["ctrl+w", "ctrl+underscore"], "one two three|"),
        (["ctrl+w", "ctrl+underscore", "alt+e"], "one two |"),
        (["ctrl+y"], "one two three|"),
        # With Alt or Ctrl a letter is never typed.
        (["alt+x", "alt+q", "ctrl+g"], "one two three|"),
    ],
)
@pytest.mark.sample(3)
async def test_words_are_gone_by_and_cut_as_readline_does(keys: list[str], left: str) -> None:
    assert await edited("one two three", *keys) == left


async def test_a_cut_reaches_over_the_end_of_a_line() -> None:
    assert await edited("one\ntwo", "up", "ctrl+e", "ctrl+k") == "one|two"
    assert await edited("one\ntwo", "ctrl+a", "ctrl+u") == "one|two"
    assert await edited("one\ntwo", "up", "ctrl+e", "alt+d") == "one|two"
    assert await edited("one\ntwo", "ctrl+u", "ctrl+u", "ctrl+y") == "one\ntwo|"


@pytest.mark.exhaustive
async def test_it_grows_to_eight_rows_and_then_scrolls() -> None:
    desk = Desk()
    async with desk.run_test(size=(60, 20)) as pilot:
        heights: list[int] = []
        for _ in range(12):
            heights.append(desk.area.size.height)
            await pilot.press("ctrl+j")
            await pilot.pause()
        assert heights[0] == 1
        assert heights == sorted(heights)
        assert heights[-1] == 8


async def test_a_long_line_wraps_and_grows_too() -> None:
    desk = Desk()
    async with desk.run_test(size=(40, 20)) as pilot:
        desk.area.put("word " * 30)
        await pilot.pause()
        assert desk.area.size.height > 3


async def test_the_arrows_walk_the_history_and_keep_the_draft() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press(*"draft", "up")
        assert desk.area.text == "second"
        await pilot.press("up", "up")
        assert desk.area.text == "first"
        await pilot.press("down", "down")
        assert desk.area.text == "draft"
        await pilot.press("down")
        assert desk.area.text == "draft"


async def test_in_several_lines_the_arrows_move_first() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "up")
        assert desk.area.text == "a\nb"
        await pilot.press("up")
        assert desk.area.text == "second"


async def test_up_in_the_empty_field_asks_for_what_is_queued() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("up")
        await pilot.pause()
        assert desk.told == ["queued"]
        assert desk.area.text == "second"
        await pilot.press("up")
        await pilot.pause()
        assert desk.told == ["queued"]
        assert desk.area.text == "first"


async def test_pasted_text_is_cleaned() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        from textual import events

        desk.area.post_message(events.Paste("one\r\ntwo\x1b[2J\x1b]52;c;AAAA\x07\rthree\u202e"))
        await pilot.pause()
        assert desk.area.text == "one\ntwo\nthree<U+202E>"


async def test_joiners_that_belong_to_a_script_can_be_typed_and_pasted() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        from textual import events

        for char in "می\u200cروم a\u200cb":
            desk.area.post_message(events.Key("zero_width" if char == "\u200c" else char, char))
        desk.area.post_message(events.Paste(" خانه\u200cها"))
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert desk.sent == ["می\u200cروم ab خانه\u200cها"]


async def test_ctrl_c_copies_what_is_selected_and_else_is_about_leaving() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press(*"abc", "shift+left", "shift+left", "ctrl+c")
        await pilot.pause()
        assert desk.clipboard == "bc"
        assert desk.told == []
        await pilot.press("end", "ctrl+c")
        await pilot.pause()
        assert desk.told == ["leave by Ctrl+C"]


async def test_ctrl_d_deletes_and_else_is_about_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("kimi_tui.tui.prompt.area.monotonic", lambda: clock[0])
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("a", "b", "home", "ctrl+d")
        assert desk.area.text == "b"
        # Held down: what it deletes runs out, and that is no wish to leave.
        await pilot.press("ctrl+d", "ctrl+d", "ctrl+d")
        await pilot.pause()
        assert (desk.area.text, desk.told) == ("", [])
        clock[0] += HELD_S + 0.1
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert desk.told == ["leave by Ctrl+D"]


async def test_typing_is_undone_and_done_again() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("a", "space", "b", "ctrl+u")
        assert desk.area.text == ""
        await pilot.press("ctrl+underscore")
        assert desk.area.text == "a b"
        await pilot.press("alt+e")
        assert desk.area.text == ""


async def test_undone_lines_take_the_scrollbar_with_them() -> None:
    desk = Desk()
    lines = "\n".join("abcdefghijklmnop")
    async with desk.run_test(size=(40, 12)) as pilot:
        for key, text in (
            *(("", lines), ("ctrl+underscore", ""), ("alt+e", lines), ("ctrl+underscore", "")),
            *(("", lines), ("shift+up", lines), ("backspace", lines[:-2])),
            *(("ctrl+underscore", lines), ("alt+e", lines[:-2])),
        ):
            if key:
                await pilot.press(key)
            else:
                desk.area.post_message(events.Paste(lines))
            await pilot.pause()
            await pilot.pause()
            assert desk.area.text == text
            assert desk.area.show_vertical_scrollbar == bool(text)
        # Deleting all of it is done again with the cursor behind what is deleted.
        desk.area.select_all()
        await pilot.press("backspace", "ctrl+underscore")
        desk.area.move_cursor(desk.area.document.end)
        await pilot.pause()
        await pilot.press("alt+e")
        await pilot.pause()
        assert desk.area.text == ""
        assert not desk.area.show_vertical_scrollbar


async def test_page_keys_are_for_the_chat() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.press("pageup", "pagedown")
        await pilot.pause()
        assert desk.told == ["page -1", "page 1"]


async def test_keys_can_be_given_other_meanings() -> None:
    desk = Desk()
    desk.set_keymap({"send": "ctrl+s", "newline": "enter"})
    async with desk.run_test() as pilot:
        await pilot.press("a", "enter", "b", "ctrl+s")
        await pilot.pause()
        assert desk.sent == ["a\nb"]


async def test_nothing_moves_while_nothing_happens() -> None:
    desk = Desk()
    async with desk.run_test() as pilot:
        await pilot.pause()
        assert not desk.area.cursor_blink
        assert desk.bar._timer is None  # pyright: ignore[reportPrivateUsage]


async def test_the_row_tells_what_the_agent_does() -> None:
    desk = Desk()
    async with desk.run_test(size=(80, 10)) as pilot:
        assert desk.area.placeholder == IDLE_WORDS
        desk.bar.state = SessionState(running=True, turn_at=0.0, step=5)
        await pilot.pause()
        assert desk.area.placeholder == STEER_WORDS[0]
        assert desk.area.render_line(0).text.endswith("step 5")
        # Steps may follow one another many times a second: the next beat shows how far they are.
        desk.bar.state = SessionState(running=True, turn_at=0.0, step=6)
        assert desk.area.render_line(0).text.endswith("step 5")
        async with asyncio.timeout(30):
            while not desk.area.render_line(0).text.endswith("step 6"):
                await pilot.pause(0.05)
        desk.bar.state = SessionState(running=True, compacting=True)
        assert "compacting" in desk.area.render_line(0).text
        desk.bar.state = SessionState(can_resume=True)
        await pilot.pause()
        assert desk.area.placeholder == RESUME_WORDS.format(send="Enter")
        assert desk.bar._timer is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("width", "ago_s", "read", "words"),
    [
        (80, 80, -1.0, "waiting for the first token 1:20"),
        (60, 80, -1.0, "waiting for first token 1:20"),
        (80, 80, 0.31, "processing the prompt 31%"),
        (60, 80, 0.31, "processing 31%"),
        (80, 80, 1.0, "waiting for the first token 1:20"),
        (80, 2, -1.0, ""),
    ],
)
async def test_the_row_tells_what_of_the_answer_is_waited_for(
    width: int, ago_s: float, read: float, words: str
) -> None:
    desk = Desk()
    async with desk.run_test(size=(width, 10)) as pilot:
        asked_at = time.time() - ago_s - 0.2
        desk.bar.state = SessionState(
            running=True, turn_at=asked_at - 60, step=12, asked_at=asked_at, prompt_read=read
        )
        await pilot.pause()
        shown = desk.area.render_line(0).text
        assert words in shown
        assert shown.startswith(f"{desk.area.placeholder} "), "the placeholder is not cut"
        assert ("token" in shown or "%" in shown) == bool(words)
        assert shown.rstrip().endswith("step 12")
        desk.bar.state = desk.bar.state._replace(asked_at=0.0, prompt_read=-1.0)
        await pilot.pause()
        assert "token" not in desk.area.render_line(0).text


# --- the history


@pytest.mark.exhaustive
@given(st.lists(st.text(min_size=1), max_size=20), st.text())
def test_a_walk_goes_back_and_returns_to_the_draft(entries: list[str], draft: str) -> None:
    history = PromptHistory(list(entries))
    back = []
    while (text := history.earlier(draft)) is not None:
        back.append(text)
    assert back == entries[::-1]
    forth = []
    while (text := history.later()) is not None:
        forth.append(text)
    assert forth == ([*entries[1:], draft] if entries else [])


@pytest.mark.exhaustive
@given(st.lists(st.text(min_size=1), max_size=20))
def test_what_is_kept_is_read_again(texts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history" / "x.jsonl"
        for text in texts:
            append_history(path, text)
        assert read_history(path) == [kept for text in texts if (kept := clean_source(text))]
        if texts:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'"one"\n{"a": 1}\nnonsense\n\xff\n3\n""\n"two"\n"torn')
    assert read_history(path) == ["one", "two"]
    # The file has an entry nested deeper than Python allows, one that no terminal should get, and more than is ever used.
    deep = b"[" * 100_000
    path.write_bytes(
        b'"old"\n' + b'"%s"\n' % (b"x" * 9_000_000) + deep + b'\n"a\\u001b[31mb"\n"new"\n'
    )
    assert read_history(path) == ["ab", "new"]


def test_a_disk_that_refuses_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    append_history(tmp_path / "file" / "x", "text")
    assert read_history(tmp_path / "file" / "x") == []


def test_the_same_twice_is_kept_once() -> None:
    history = PromptHistory(["a"])
    history.add("a")
    history.add("b")
    assert history.earlier("") == "b"
    assert history.earlier("") == "a"
    assert history.earlier("") is None


def test_each_folder_has_a_history_of_its_own(tmp_path: Path) -> None:
    one, two = (history_file(tmp_path, Path(name)) for name in ("/a", "/b"))
    assert one != two
    assert json.dumps(str(one))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
async def test_the_clock_never_stands_over_the_text(size: tuple[int, int]) -> None:
    desk = Desk()
    async with desk.run_test(size=size) as pilot:
        desk.area.put("w" * 200)
        await pilot.pause()
        rows = desk.area.wrapped_document.height
        desk.bar.state = SessionState(running=True, turn_at=time.time(), step=1234)
        await pilot.pause()
        written, clock = desk.area.render_line(0).text.split("  ", 1)
        assert set(written) == {"w"}
        assert clock.endswith("step 1234")
        assert desk.area.wrapped_document.height > rows
        desk.bar.state = SessionState()
        await pilot.pause()
        assert desk.area.wrapped_document.height == rows
        assert desk.area.render_line(0).text.rstrip().strip("w") == ""
        # The same holds if the text is typed while the clock runs.
        desk.area.put("w" * (size[0] - 40))
        desk.bar.state = SessionState(running=True, turn_at=time.time(), step=1234)
        await pilot.pause()
        assert desk.area.wrapped_document.height == 1
        await pilot.press(*("w" * 28))
        assert desk.area.wrapped_document.height == 2


async def test_a_long_paste_is_a_chip_that_opens_and_is_sent_whole() -> None:
    long = "".join(f"line {n}\n" for n in range(43))
    desk = Desk()
    async with desk.run_test() as pilot:
        area = desk.area

        async def paste(text: str) -> None:
            area.post_message(events.Paste(text))
            await pilot.pause()

        await pilot.press(*"see ")
        await paste(long)
        await paste(long)
        assert area.text == "see [Pasted 43 lines][Pasted 43 lines, 2]"
        await pilot.press("backspace", "x", "enter")
        await pilot.pause()
        assert desk.sent == [f"see {long}x"]
        # A space in it opens it; any other text that is typed there goes after it.
        await paste(long)
        await pilot.press("left", "left", "y")
        assert area.text == "[Pasted 43 lines]y"
        await pilot.press("left", "left", "space")
        assert area.text == f"{long}y"
        # A text that is given back and would take seconds to draw becomes a chip as well.
        area.put("b\n" * LONGEST)
        assert area.text == "[Pasted 50,000 lines]"
        assert area.message == "b\n" * LONGEST
        area.put("")
        await paste("a\n" * 20)
        assert area.text == "a\n" * 20
        # A draft that comes back after a look at what was sent stands for the same, also where that looks like a chip.
        area.put("")
        await paste(f"[Pasted 43 lines, 2]\n{long}")
        await paste(long)
        await pilot.press("up", "down")
        assert area.text == "[Pasted 44 lines][Pasted 43 lines, 2]"
        await paste(long)
        await pilot.press("enter")
        await pilot.pause()
        assert desk.sent[-1] == f"[Pasted 43 lines, 2]\n{long}{long}{long}"


async def test_a_text_that_breaks_elsewhere_in_as_many_rows_is_drawn_anew() -> None:
    desk = Desk()
    async with desk.run_test(size=(80, 24)) as pilot:
        desk.area.put(
            "Rows with quotes inside a quoted field are skipped. Find out why and mend it, with a test."
        )
        await pilot.pause()
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert desk.area.wrapped_document.height == 2
        strips = desk.screen._compositor.render_strips(desk.size)  # pyright: ignore[reportPrivateUsage]
        shown = " ".join("".join(segment.text for segment in strip) for strip in strips)
        assert "Find out why and mend it, with a test." in " ".join(shown.split())


@pytest.mark.exhaustive
async def test_keys_take_a_character_as_it_is_seen() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        area = app.area
        for one in ("👍🏽", "🇩🇪", "e\u0301"):
            area.put(f"x{one}")
            await pilot.press("backspace")
            assert area.text == "x"
            area.put(f"{one}x")
            await pilot.press("home", "right", "y", "left", "left", "z")
            assert area.text == f"z{one}yx"
            await pilot.press("delete")
            assert area.text == "zyx"


async def test_what_stands_beside_the_text_is_cut_at_the_same_end_in_each_update() -> None:
    desk = Desk()
    async with desk.run_test(size=(20, 5)) as pilot:
        await pilot.pause()
        desk.area.show_beside(Strip([Segment("0123456789" * 3)]), 4)
        await pilot.pause()
        row = desk.area.render_line(0).text
        parts = [desk.area.render_lines(Region(x, 0, 1, 1)) for x in range(desk.area.size.width)]
        assert "".join(part.text for (part,) in parts) == row[: len(parts)]
