"""No pattern that meets foreign text takes more than linear time: each is fed much of its worst."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.worst_text import Attempts, check, try_each

import kimi_tui.projection
import kimi_tui.tui
from kimi_tui import foreign_text
from kimi_tui.projection import tool_calls
from kimi_tui.soul.git_changes import GitChanges
from kimi_tui.tool_cards import KNOWN
from kimi_tui.tui import ansi_line, first_page, key_sequences, palette, stored_rows, terminal_input
from kimi_tui.tui.dialogs import settings
from kimi_tui.tui.futures import form
from kimi_tui.tui.main import drafts, image_input
from kimi_tui.tui.main.commands import bisect, changes, mcp
from kimi_tui.tui.prompt import completion, image_chips
from kimi_tui.tui.transcript import markdown, markdown_stream, tool_card
from kimi_tui.tui.transcript import search as transcript_search
from kimi_tui.workspace.diff import Changes

SIZE = 60_000
CPU_S = 2
"""Far more than what is linear takes on a slow machine, far less than what is not."""


def of(piece: str, end: str = "", size: int = SIZE) -> str:
    return piece * (size // len(piece)) + end


def search(query: str) -> Callable[[str], object]:
    pattern = transcript_search.pattern_of(query)
    assert pattern is not None
    return lambda text: list(pattern.finditer(text))


def answered(text: str) -> object:
    taker = terminal_input.GraphicsAnswerFilter()
    taker.await_it(print)
    return taker.rest(text)


def told(text: str) -> object:
    taker = terminal_input.BackgroundAnswers()
    return taker.take(text, 0.0), taker.take(text, 0.1)


def sequences(text: str) -> object:
    """Return all of it at once, then in pieces, of which each may end within a sequence."""
    reader = key_sequences.SequenceReader()
    taken = [*reader.feed(text, 0.0)]
    for start in range(0, len(text), 997):
        taken += reader.feed(text[start : start + 997], 0.0)
    return taken, [*reader.let_go(9.0)]


STAGED = GitChanges(Changes(), Path(), "", staged=True)
CASES: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "tool_calls.re.compile": (
        lambda text: (tool_calls.argument(text, "path"), tool_calls.target(KNOWN["SendDMail"], text)),
        [of('"path" '), of('"path":"\\'), '{"path":"' + of("\\a"), '"path"' + of(" "), of('"checkpoint_id" '),
         '"checkpoint_id":' + of("1")],
    ),
    "search._NO_WORD": (lambda text: transcript_search._letters(text), [of("_-"), of("-"), of("a")]),
    "search.re.compile": (
        lambda text: (search("a b c d e")(text), search("aaaaaaaaab")(text)),
        [of("a "), of("a"), of("a\0"), "a" + of(" "), of("a     "), of("a \0")],
    ),
    "tool_card._SAYS_WHY": (
        lambda text: tool_card._SAYS_WHY.match(text[: tool_card._WHY_CHARS]),
        [of(" "), of("a."), of("Error"), "E" + of(" "), of("npm ERR")],
    ),
    "markdown._URL": (
        lambda text: list(markdown._URL.finditer(text)),
        [of("https://"), of("https://,,,"), "https://" + of(","), of("https:// "), of("http")],
    ),
    "markdown._TASK": (markdown._TASK.match, ["[x]" + of(" "), of("[ ")]),
    "markdown_stream._HEADING": (markdown_stream._HEADING.match, [of("#"), of(" "), "#" + of("\t")]),
    "markdown_stream._ITEM": (markdown_stream._ITEM.match, [of("1"), "1." + of(" ", "x"), "-" + of(" \t"), of("-")]),
    "markdown_stream._MARK": (markdown_stream._longest, [of("*"), of("_a"), of("a")]),
    "markdown_stream._UNSHOWN": (
        lambda text: markdown_stream._UNSHOWN.sub("", text[: markdown_stream.FAITHFUL_LIMIT]),
        [of(" "), of("> "), "```" + of(" ", "x"), "```a" + of(" ", "x"), of("- "), "1" + of("1")],
    ),
    "markdown_stream._QUOTE": (markdown_stream._QUOTE.match, [of(" "), of(">")]),
    "completion._TYPED_PATH": (completion.typed_mention, [of("(@", "#"), of('(@"', '"'), of("@"), of(" @a"), "@" + of("a", "#")]),
    "completion._PLAIN_PATH": (completion.mention, [of("a", "#"), of("a "), of("\\")]),
    "display_names.CHIP": (
        image_chips.in_text,
        [of("[image "), of("[image a 1"), of("[image " + "1x1 ~1" * 15), "[image " + of(" "), of("[image a 1x1 ~1, ")],
    ),
    "settings._ALONE": (settings._ALONE.fullmatch, [of("left_"), of("left_shift"), "iso_level" + of("3")]),
    "drafts._HASH": (drafts._HASH.fullmatch, [of("a"), of("0" * 63)]),
    "drafts._CHIP": (drafts._CHIP.fullmatch, ["[Pasted " + of("1,"), "[Pasted 1 line, " + of("1"), of("[Pasted 1 line")]),
    "terminal_input._BACKGROUND_ANSWER": (told, [of("\x1b]11;"), "\x1b]11;" + of("r"), of("\x1b]11;r\x1b"), of("\x1b[?997;"), of("\x1b")]),
    "terminal_input._BEGUN_BACKGROUND": (told, [of("\x1b]1"), of("\x1b[?99"), of("\x1b]11;" + "r" * 30)]),
    "palette.re.match": (palette.is_light, ["#" + of("f"), "rgb:" + of("f/"), "rgba:1/1/1/" + of("f", "\n")]),
    "palette.re.search": (palette.is_light, ["#" + of("fff"), "#" + of("f", "g")]),
    "ansi_line._SGR": (ansi_line._SGR.split, [of("\x1b["), of("\x1b[1"), "\x1b[" + of("1;"), of("\x1b[" + "1" * 65)]),
    "stored_rows._SGR": (stored_rows._SGR.match, ["\x1b[" + of("1;"), "\x1b[" + of(";", "x")]),
    "first_page._CHUNK": (lambda text: first_page.wrapped(text, 80), [of(" "), of("a"), of("a "), of("a" + " " * 99)]),
    "form._LIMIT": (form._LIMIT.fullmatch, [of("1"), "1." + of("1"), "1" + of(" "), "1 " + of("k"), "1" + of(" ", "k tokens")]),
    "mcp._PROMPT_NAME": (mcp._PROMPT_NAME.fullmatch, [of("a"), of("-")]),
    "changes._PLAIN": (changes._PLAIN.fullmatch, [of("a"), of("a/", "\n")]),
    "changes.re.split": (partial(changes.commit_command, STAGED), [of("\n"), of("a\n"), of("a\n\n")]),
    "bisect._NUMBERED": (bisect._NUMBERED.match, ["--good " + of("1"), "--good 1" + of(" ", "x"), "--world-line" + of(" ")]),
    "image_input._WINDOWS": (image_input._WINDOWS.fullmatch, ["C:\\" + of("a", "\n"), of("C:")]),
    "terminal_input._GRAPHICS_ANSWER": (answered, [of("\x1b_G"), of("\x1b_Ga"), of("\x1b[?1;"), "\x1b[?" + of("1")]),
    "key_sequences._WHOLE": (
        sequences,
        [of("\x1b]1;"), "\x1b]52;" + of("a"), of("\x1bP"), "\x1b_" + of("a", "\x1b"), of("\x1b"), of("\x1b[M"), of("\x1b[[")],
    ),
    "key_sequences._BEGUN": (sequences, ["\x1b[" + of("0"), "\x1b[" + of(" "), "\x1bO" + of("1"), of("\x1b[0"), of("\x1bO")]),
    "key_sequences._BROKEN": (sequences, ["\x1b[" + of("0;", "\x1b"), "\x1b[0" + of(" ", "\x1b"), "\x1bO" + of("1", "\x1b")]),
    "key_sequences._KEY": (
        key_sequences.sequence_keys,
        ["\x1b[1:" + of("1"), "\x1b[1;1;" + of("1:"), "\x1b[" + of(":", "u"), "\x1b[1;1;" + of("1:", "u"), "\x1b[" + of("1", "~")],
    ),
    "key_sequences._OTHER_KEY": (key_sequences.sequence_keys, ["\x1b[27;" + of("1"), "\x1b[27;1;" + of("1", "~")]),
    "key_sequences._OLD_FUNCTION_KEY": (key_sequences.sequence_keys, ["\x1bO" + of("1"), "\x1bO" + of("1", "P")]),
    "terminal_input._REPORT": (
        terminal_input._REPORT.match,
        ["\x1b[<" + of("1;"), "\x1b[?" + of("1"), "\x1b[48;" + of("1:", "t"), "\x1b[<" + of("-", "M")],
    ),
    "terminal_input._KITTY_ANSWER": (terminal_input._KITTY_ANSWER.match, ["\x1b[?" + of("1"), "\x1b[?" + of("1", "u")]),
    "terminal_input._OTHER_KEYS_ANSWER": (terminal_input._OTHER_KEYS_ANSWER.match, ["\x1b[>4;" + of("1", "m")]),
    "terminal_input._OLD_MOUSE": (terminal_input._OLD_MOUSE.match, ["\x1b[M" + of("\n"), of("\x1b[M")]),
    "terminal_input._RXVT_MOUSE": (terminal_input._RXVT_MOUSE.match, ["\x1b[1;1;" + of("1", "M"), "\x1b[" + of("1")]),
    "terminal_input._BEGUN_GRAPHICS": (answered, [of("\x1b"), "\x1b_G" + of("a"), "\x1b[?" + of(";")]),
    "markdown_stream.by hand": (
        lambda text: (markdown_stream.fence_of(text), markdown_stream.is_rule(text)),
        [of("`"), of("~", "`"), "```" + of(" ", "`"), "~~~" + of(" \t", "`"), of("- "), "- - -" + of(" ", "x"),
         of("-" + " " * 99, "x")],
    ),
}  # fmt: skip
BORDER: list[Callable[[str], object]] = [
    foreign_text.one_line, foreign_text.visible, foreign_text.expand_tabs,
]  # fmt: skip
BORDER_WORST = [
    of(" "), of("a "), of(" " * 9 + "a"), of("\n"), of(" \n"), of("\x1b["), of("\x1b[1;"), of("\x1b]"), of("\x9b0"),
    "\x1b[" + of("0"), of("\u0301"), of("e\u0301"), of("\u0301" * 12 + "e"), of("\u2500"), of("\u200d"), of("\t"), of("\ud800"),
]  # fmt: skip


def test_every_pattern_is_tried() -> None:
    found: set[str] = set()
    roots = [Path(one.__file__ or "").parent for one in (kimi_tui.tui, kimi_tui.projection)]
    for path in (path for root in roots for path in root.rglob("*.py")):
        text = path.read_text()
        if re.search(r"\bre\.", text):
            found |= {f"{path.stem}.{name}" for name in _patterns_in(ast.parse(text))}
    # This one meets the app's own text alone.
    found.remove("timeline_tree._TARGET")
    assert found == set(CASES) - {"markdown_stream.by hand", "display_names.CHIP"}


def _patterns_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names of a module's patterns; `re.match` or the like for one without a name."""
    named: set[ast.expr] = set()
    # Assignments are visited before their values.
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="compile")) as call,
            ):
                named.add(call)
            case ast.Call() as call if call not in named:
                name = ""
            case _:
                continue
        match call.func:
            case ast.Attribute(value=ast.Name(id="re"), attr=attr) if attr != "escape":
                yield name or f"re.{attr}"
            case _:
                pass


def _attempts(work: Callable[[str], object], texts: Iterable[str]) -> Attempts:
    return ((repr(text[:30]), partial(work, text)) for text in texts)


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_the_worst_takes_no_longer_than_prose() -> None:
    check(__file__)


if __name__ == "__main__":
    try_each(
        {name: _attempts(work, texts) for name, (work, texts) in CASES.items()}
        | {work.__name__: _attempts(work, BORDER_WORST) for work in BORDER},
        CPU_S,
    )
