"""A selected text stays selected, and a copy is the text as it was written."""

from __future__ import annotations

import pytest
from support.cases import each
from support.chat_app import ChatApp, drawn, feed, is_drawn, show_history
from support.conversation import Conversation
from support.effort import n_calls
from textual.pilot import Pilot

from kimi_tui.foreign_text import clean, clean_source
from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    StreamedText,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.tool_cards import DiffBlock, DiffLine
from kimi_tui.tui.desktop import text_amount
from kimi_tui.tui.rows import LayoutRoom, Line
from kimi_tui.tui.transcript.copied_text import RowPosition, code_of, part_of, source_of
from kimi_tui.tui.transcript.layout import rows_of
from kimi_tui.tui.transcript.selection import extent_of
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import TextPart, ToolOutput, ToolStarted

SIZE = (81, 37)
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
HEART = "\u2764\ufe0f"
MAKEFILE = "all:\n\tcc -o a a.c\n\n\t\tdeep  \n"
WIDTHS = (24, 40, 81, 120)


def agent(text: str) -> AgentBlock:
    stream = StreamedText()
    for at in range(0, len(text), 7):
        stream.add(text[at : at + 7])
    stream.end()
    return AgentBlock(1, stream=stream, open=False)


def user(text: str) -> UserBlock:
    return UserBlock(1, 0, "u", unfolded=True, text=clean(text), written=clean_source(text))


def shell(output: str, **more: object) -> ToolBlock:
    block = ToolBlock(1, tool="Shell", name="Shell", target="make", state="done", unfolded=True)
    block.output = output
    for name, value in more.items():
        setattr(block, name, value)
    return block


def rows_between(
    block: Block, width: int, first: str, last: str
) -> tuple[list[Line], RowPosition, RowPosition]:
    """Return the rows of a block, and the places of the text from the first word to the end of the last."""
    rows = rows_of(block, LayoutRoom(width))
    low = next(
        RowPosition(y, line.text.index(first)) for y, line in enumerate(rows) if first in line.text
    )
    high = [
        RowPosition(y, line.text.rindex(last)) for y, line in enumerate(rows) if last in line.text
    ][-1]
    return rows, low, RowPosition(high.row, high.column + len(last))


def copied(block: Block, width: int, first: str, last: str) -> str:
    """Return the copied text of a block that is selected from one word to another."""
    return part_of(block, *rows_between(block, width, first, last))


@pytest.mark.parametrize("width", WIDTHS)
def test_code_is_copied_with_its_tabs(width: int) -> None:
    block = agent(f"See:\n\n```make\n{MAKEFILE}```\n\nDone it is.")
    assert copied(block, width, "all:", "deep") == "all:\n\tcc -o a a.c\n\n\t\tdeep  "
    assert copied(block, width, "See", "Done") == "See:\n\n" + MAKEFILE + "\nDone"
    assert copied(block, width, "cc", "-o") == "cc -o"
    nested = agent(
        "- one\n\n  ```make\n  all:\n  \tcc -o a a.c\n  ```\n\n> ```\n> \tquoted\n> ```\n\nEnd"
    )
    assert copied(nested, width, "all:", "a.c") == "all:\n\tcc -o a a.c"
    assert copied(nested, width, "all:", "quoted").endswith("\n\tquoted")


@pytest.mark.parametrize("width", [29, 60])
def test_what_stands_beside_a_message_is_not_copied(width: int) -> None:
    block = user("Use\tthe big set in place of it\nand say why")
    assert copied(block, width, "the", "say") == "the big set in place of it\nand say"
    for mark in ("unsent", "queued", "pinned"):
        block = user("Use\tthe big set in place of it\nand say why")
        setattr(block, mark, True)
        assert copied(block, width, "the", "say") == "the big set in place of it\nand say"


@pytest.mark.parametrize("width", WIDTHS)
def test_output_is_copied_with_its_tabs_whole_and_in_part(width: int) -> None:
    text = "a\tb\tc\n\tindented\tand more\nlast line " + "x" * 200 + "\tend"
    block = shell(text)
    rows = rows_of(block, LayoutRoom(width))
    whole = part_of(block, rows, RowPosition(1, 0), RowPosition(len(rows) - 1, len(rows[-1].text)))
    assert whole == text
    assert copied(block, width, "indented", "and") == "indented\tand"


@each("width", WIDTHS)
@each(
    "text",
    [
        " " * 90 + "\t" + " " * 90 + "e" + " " * 91 + "c  dbba",
        "\t\u3000  \t\n" + " " * 90 + "bbe  \n" + "x" * 90 + "\te " + "x" * 270,
        " " * 300 + "b  " + "c" * 30 + " " * 100 + "d",
        ("a  b  " * 200 + "\n") * 3,
    ],
)
def test_runs_of_blanks_keep_no_copy_from_its_end(text: str, width: int) -> None:
    block = user(text)
    rows = rows_of(block, LayoutRoom(width))
    whole = part_of(block, rows, RowPosition(0, 0), RowPosition(len(rows) - 1, len(rows[-1].text)))
    assert whole.split() == text.split()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_message_is_copied_as_it_was_written_without_its_number(width: int) -> None:
    text = f"hi  there {FAMILY} and {HEART} " + "word " * 30 + "\n\n\tthe end  of it"
    block = user(text)
    rows = rows_of(block, LayoutRoom(width))
    # It stands in the first row that has room for it.
    assert any(row.text.rstrip().endswith(" #0") for row in rows[:2])
    whole = part_of(block, rows, RowPosition(0, 0), RowPosition(len(rows) - 1, len(rows[-1].text)))
    assert whole == text
    assert copied(block, width, "hi", "and") == f"hi  there {FAMILY} and"
    assert copied(block, width, "the end", "end") == "the end"


@pytest.mark.parametrize("width", WIDTHS)
def test_emoji_of_an_answer_are_whole_again(width: int) -> None:
    text = f"One **{FAMILY}** two {HEART} three ☃ four " + "more " * 30 + f"{HEART} end"
    block = agent(text)
    assert copied(block, width, "One", "end") == (
        f"One {FAMILY} two {HEART} three ☃ four " + "more " * 30 + f"{HEART} end"
    )
    assert copied(block, width, "two", "three") == f"two {HEART} three"
    fence = agent(f"```\nprint('{FAMILY}')\t# {HEART}\n```\n\nEnd")
    assert copied(fence, width, "print", "#").startswith(f"print('{FAMILY}')\t#")


@pytest.mark.parametrize("width", WIDTHS)
def test_wrapped_prose_is_joined_as_it_was_written(width: int) -> None:
    text = "start " + "  ".join(f"word{n}" for n in range(60)) + " end"
    assert copied(agent(text), width, "start", "end") == text
    assert copied(user(text), width, "start", "end") == text
    thought = ThoughtBlock(1, stream=agent(text).stream, open=False, unfolded=True)
    assert copied(thought, width, "start", "end") == text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_diff_is_copied_without_numbers_and_signs_and_with_its_indent(width: int) -> None:
    lines = (
        DiffLine(" ", 1, "\tif a:"),
        DiffLine("-", 2, "\t\tone()"),
        DiffLine("+", 2, "\t\ttwo(1,\t2)"),
    )
    diff = DiffBlock("a.py", 1, 1, lines)
    block = ToolBlock(1, tool="StrReplaceFile", name="Edit", state="done", display=(diff,))
    rows = rows_of(block, LayoutRoom(width))
    text = part_of(block, rows, RowPosition(1, 0), RowPosition(len(rows) - 1, len(rows[-1].text)))
    assert text == "\tif a:\n\t\tone()\n\t\ttwo(1,\t2)"
    assert copied(block, width, "two", "2)") == "two(1,\t2)"


def test_hidden_characters_do_not_go_to_the_clipboard() -> None:
    hostile = "a\u202eb\x1b[31mc\ufe0f\ufe0f\u200d\U000e0041 1\ufe0f\u20e3 \u2764\ufe0f\ufe0f\ufe0e\ufe0f\u200d\u200d."
    for block in (agent(hostile), user(hostile), shell(hostile)):
        text = source_of(block)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\U000e0041" not in text
        assert text.endswith("1\ufe0f\u20e3 \u2764\ufe0f\ufe0e\u200d.")
        assert "c\ufe0f" not in text


def test_what_is_shown_is_the_same_however_it_came() -> None:
    text = f"x {FAMILY} y\ufe0f {HEART} z \x1b[1m{HEART}\u202e"
    assert agent(text).stream.text == clean(text)
    assert agent(text).stream.source == clean_source(text)
    assert agent("plain").stream.written is None


def test_pieces_of_code_with_their_languages() -> None:
    text = "a\n\n```python\nx = 1\n\ty\n```\n\n- b\n\n  ~~~sh title\n  ls\n  ~~~\n\n    indented\n\n```\nopen"
    assert code_of(agent(text)) == [
        ("python", "x = 1\n\ty"),
        ("sh", "ls"),
        ("", "indented"),
        ("", "open"),
    ] or (code_of(agent(text))[:2] == [("python", "x = 1\n\ty"), ("sh", "ls")])
    assert code_of(shell("out")) == [("shell", "make")]


def test_sources_of_cards() -> None:
    assert source_of(shell("\nout\tput\n")) == "out\tput"
    assert source_of(DMailBlock(1, text="Dear me", facts="f")) == "Dear me"
    assert source_of(CompactionBlock(1, summary="All of it")) == "All of it"


def row_of(app: ChatApp, words: str) -> int:
    return next(y for y, row in enumerate(app.rows) if words in row)


async def drag(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Select with the mouse, from one cell of the chat to another."""
    await pilot.mouse_down("#chat", offset=start)
    await pilot.hover("#chat", offset=(end[0], start[1]))
    await pilot.hover("#chat", offset=end)
    await pilot.mouse_up("#chat", offset=end)
    await pilot.pause()


def highlighted(app: ChatApp) -> str:
    """Return the text that is painted as selected."""
    view = app.transcript
    style = view.get_component_rich_style("transcript--selection", partial=True)
    out: list[str] = []
    for y in range(view.size.height):
        row = [text for text, own, _ in view.render_line(y) if own and own.bgcolor == style.bgcolor]
        if row:
            out.append("".join(row))
    return "\n".join(out)


async def test_a_selection_stays_on_its_text_whatever_happens_around_it() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step()
        keys: list[str] = []
        for name in ("first", "second"):
            keys.append(talk.call("Shell", {"command": name}))
            talk.tell(ToolStarted(keys[-1], "Shell", f'{{"command": "{name}"}}'))
            talk.tell(ToolOutput(keys[-1], f"{name} output here"))
        talk.step(text="alpha beta **gamma** delta " + "and so on " * 30)
        await feed(app, pilot, talk)
        y = row_of(app, "second output")
        await drag(pilot, (6, y), (18, y))
        assert app.screen.get_selected_text() == highlighted(app) == "second output"
        for n in range(3):
            talk.tell(ToolOutput(keys[0], f"\nmore {n}"))
            await feed(app, pilot, talk)
            assert app.screen.get_selected_text() == highlighted(app) == "second output"
        card = next(block for block in app.transcript.blocks if isinstance(block, ToolBlock))
        app.transcript.toggle_fold(card)
        await drawn(app, pilot)
        assert app.screen.get_selected_text() == highlighted(app) == "second output"
        y = row_of(app, "alpha")
        await drag(pilot, (10, y), (19, y))
        assert app.screen.get_selected_text() == "beta gamma"
        for width in (61, 40, 120, 81):
            await pilot.resize_terminal(width, 37)
            talk.tell(TextPart("on and on "))
            talk.tell(ToolOutput(keys[1], "\nnoise"))
            await feed(app, pilot, talk)
            assert app.screen.get_selected_text() == highlighted(app) == "beta gamma"


async def test_a_selection_of_what_is_gone_is_gone() -> None:
    app = ChatApp()
    app.animation_level = "none"
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="some words")
        await feed(app, pilot, talk)
        y = row_of(app, "some words")
        await drag(pilot, (4, y), (7, y))
        assert app.screen.get_selected_text() == "some"
        show_history(app.transcript, Conversation().records)
        await drawn(app, pilot)
        assert app.screen.get_selected_text() is None


async def test_an_answer_that_is_selected_whole_is_copied_as_markdown() -> None:
    source = "# Title\n\nSome **bold** text.\n\n```make\nall:\n\tcc\n```\n\n- one\n- two"
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Please,\ngo on")
        talk.step(text=source)
        talk.end()
        await feed(app, pilot, talk)
        app.transcript.focus()
        await pilot.press("ctrl+a")
        assert app.screen.get_selected_text() == f"Please,\ngo on\n\n{source}"
        await drag(pilot, (4, row_of(app, "Title")), (12, row_of(app, "two")))
        assert app.screen.get_selected_text() == source


async def test_two_clicks_select_a_word_and_three_a_line() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="look at src/csv/tokenizer.py, please; " + "it is there " * 20)
        await feed(app, pilot, talk)
        y = row_of(app, "look at")
        await pilot.click("#chat", offset=(16, y), times=2)
        await pilot.pause()
        assert app.screen.get_selected_text() == "src/csv/tokenizer.py"
        await pilot.click("#chat", offset=(6, y + 1), times=3)
        await pilot.pause()
        text = app.screen.get_selected_text() or ""
        assert text.startswith("look at src")
        assert text.count("it is there") == 20
        await pilot.click("#chat", offset=(9, y + 1))
        await pilot.pause()
        assert app.screen.get_selected_text() is None


async def test_a_drag_to_the_edge_scrolls_and_selects_on() -> None:
    app = ChatApp()
    async with app.run_test(size=(81, 20)) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="```\n" + "\n".join(f"line {n}" for n in range(200)) + "\n```\n\nthe end")
        await feed(app, pilot, talk)
        view = app.transcript
        top = view.top
        await pilot.mouse_down("#chat", offset=(13, row_of(app, "line 195")))
        await pilot.hover("#chat", offset=(6, 0))
        while view.top > top - 60:
            await pilot.pause(0.02)
        await pilot.mouse_up("#chat", offset=(6, 0))
        lines = (app.screen.get_selected_text() or "").split("\n")
        first = int(lines[0].split()[1])
        assert lines == [f"line {n}" for n in range(first, 196)]
        assert first < 140
        still = view.top
        await pilot.pause(0.2)
        assert view.top == still
        # Then the pointer goes down again.
        await pilot.mouse_down("#chat", offset=(6, 3))
        await pilot.hover("#chat", offset=(9, view.size.height - 1))
        while not any("the end" in row for row in app.rows):
            await pilot.pause(0.02)
        await pilot.mouse_up("#chat", offset=(9, view.size.height - 1))
        assert "line 199" in (app.screen.get_selected_text() or "")


@pytest.mark.exhaustive
async def test_what_is_being_selected_does_not_run_away() -> None:
    app = ChatApp()
    async with app.run_test(size=(81, 20)) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="\n\n".join(f"part {n}" for n in range(30)))
        await feed(app, pilot, talk)
        y = row_of(app, "part 25")
        await pilot.mouse_down("#chat", offset=(4, y))
        await pilot.hover("#chat", offset=(8, y))
        for n in range(5):
            talk.tell(TextPart(f"\n\nlater {n}\n\nlater still {n}"))
            await feed(app, pilot, talk)
        assert row_of(app, "part 25") == y
        await pilot.hover("#chat", offset=(10, y))
        await pilot.mouse_up("#chat", offset=(10, y))
        assert app.screen.get_selected_text() == "part 25"


async def test_keys_copy_messages_code_and_selections() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Please  go on")
        talk.step(text="One:\n\n```python\na = 1\nb = 2\n```\n\nTwo:\n\n```\n\tx\n```")
        talk.tool("Shell", {"command": "make all"}, "out\tput")
        talk.end()
        await feed(app, pilot, talk)
        view = app.transcript
        view.focus()
        taken: list[tuple[str, str]] = []
        app.copied = taken
        await pilot.press("y", "Y", "Y", "j", "y", "j", "Y", "Y", "j", "y", "Y")
        source = "One:\n\n```python\na = 1\nb = 2\n```\n\nTwo:\n\n```\n\tx\n```"
        assert taken == [
            (source, "Copied the last answer, 12 lines."),
            ("\tx", "Copied 2 characters (2 of 2)."),
            ("a = 1\nb = 2", "Copied 2 lines of python (1 of 2)."),
            ("Please  go on", "Copied your message, 13 characters."),
            ("\tx", "Copied 2 characters (2 of 2)."),
            ("a = 1\nb = 2", "Copied 2 lines of python (1 of 2)."),
            ("out\tput", "Copied the output, 7 characters."),
            ("make all", "Copied 8 characters of shell."),
        ]
        taken.clear()
        await pilot.press("shift+up", "shift+up", "shift+up", "y")
        ((text, words),) = taken
        assert text.startswith("\tx\n\n✓ Shell make all")
        assert words == "Copied 3 lines."
        assert app.screen.get_selected_text() is None


async def test_links_open_by_key_one_after_the_other() -> None:
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on")
        talk.step(text="See https://example.org/1 and [two](https://example.org/2).")
        await feed(app, pilot, talk)
        app.transcript.focus()
        await pilot.press("o")
        assert app.posted == []
        await pilot.press("k", "o", "o", "o")
        urls = [one.url for one in app.posted if isinstance(one, Transcript.LinkClicked)]
        assert urls == [f"https://example.org/{n}" for n in (1, 2, 1)]


def test_every_binding_of_the_chat_is_described() -> None:
    bindings = [one for one in Transcript.BINDINGS if not isinstance(one, tuple)]
    # Shift+Tab leads round the screen, as Tab does: that is no key of the chat's own.
    assert all(one.description and (one.id or one.key == "shift+tab") for one in bindings)


def test_extents_leave_out_numbers_edges_and_fill() -> None:
    row = rows_of(user("hello"), LayoutRoom(40))[0]
    assert row.text[slice(*extent_of(row))] == "hello"


@pytest.mark.exhaustive
async def test_all_of_a_long_session_is_copied_in_slices() -> None:
    talk = Conversation(started=0.0)
    for n in range(400):
        talk.user(f"Question {n}")
        talk.step(text=f"Answer **{n}**")
        talk.tool("Shell", {"command": f"make {n}"}, f"first of {n}\nlast of {n}")
        talk.tool("Glob", {"pattern": f"*{n}"})
        talk.end()
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        view = app.transcript
        view.apply(talk.take())
        while not is_drawn(view):
            await pilot.pause()
        view.select_all()
        expected = app.screen.get_selected_text()
        whole = n_calls(app.screen.get_selected_text)
        begun = n_calls(view.copy_selection)
        assert not app.copied
        while not app.copied:
            await pilot.pause(0.005)
        text, words = app.copied[0]
        assert text == expected
        assert text.count("Answer **") == text.count("last of ") == 400
        assert words == f"Copied {text_amount(text)}."
        assert begun < whole / 10
