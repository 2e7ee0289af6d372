"""Every part of the tools, the workspace and the boundary for foreign text that matches patterns gets 60 kB of its worst input.

The code runs in a process with limited processor time, in which a quadratic algorithm does not end.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import pytest
from support.cases import first_only
from support.worst_text import Attempts, check, try_each

from kimi_tui import foreign_text
from kimi_tui.soul.messages import internal_kind, user_words
from kimi_tui.soul.written_calls import written_calls
from kimi_tui.tools import process
from kimi_tui.tools.file_edit import Edit, replaced
from kimi_tui.tools.glob import patterns_of
from kimi_tui.tools.grep import GlobFilter, GrepOutput, GrepParams, _outcome, _Records
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.process import Capture, LiveText
from kimi_tui.tools.text import nearest_passage
from kimi_tui.workspace.diff import diff_lines
from kimi_tui.workspace.ignore import IgnoreFile

_SIZE = 60_000
_CPU_S = 2
"""Seconds of processor time. One pass through a text takes a fraction of them; a quadratic algorithm takes several times as much."""

WORST = {
    "one carriage return in a long line": "a\r" + "x" * _SIZE,
    "a long line that ends with CR LF": "x" * _SIZE + "\r\n",
    "carriage returns": "\r" * _SIZE,
    "carriage returns in lines": "a\rb\n" * (_SIZE // 4),
    "blanks": " " * _SIZE,
    "blanks behind a letter": "a" + " " * _SIZE + "b",
    "runs of eight blanks": ("a" + " " * 8) * (_SIZE // 9) + "b",
    "blanks and line ends": " \n" * (_SIZE // 2),
    "opened sequences": "\x1b[" * (_SIZE // 2),
    "a sequence without an end": "\x1b[" + "0;" * (_SIZE // 2),
    "parameters": ("\x1b[" + "0" * 120) * (_SIZE // 122),
    "strings without an end": "\x1b]" * (_SIZE // 2),
    "C1 strings without an end": "\x9d" * _SIZE,
    "bells in a device string": "\x90" + "\x07" * _SIZE,
    "half surrogates": "\ud800" * _SIZE,
    "joiners": "\u200d" * _SIZE,
    "combining marks": "e" + "\u0301" * _SIZE,
    "opened braces": "{" * _SIZE,
    "commas in a brace": "{" + "," * _SIZE,
    "braces with one comma": "{a," * (_SIZE // 3),
    "stars": "*" * _SIZE,
    "stars and letters": "*a" * (_SIZE // 2) + "b",
    "opened classes": "[" * _SIZE,
    "slashes": "/" * _SIZE,
    "backslashes": "\\" * _SIZE,
    "folders": "**/" * (_SIZE // 3),
    "checkpoints": "<system>CHECKPOINT " * (_SIZE // 19),
    "digits": "<system>CHECKPOINT " + "1" * _SIZE,
    "dots": ".env" * (_SIZE // 4),
}


def _read(text: str) -> str:
    """Return the text as it is read from a file."""
    return text.encode("utf-8", "replace").decode("utf-8", "surrogateescape")


def _capture(text: str) -> None:
    capture, live = Capture(), LiveText()
    data = text.encode("utf-8", "replace")
    for start in range(0, len(data), 65536):
        capture.feed(data[start : start + 65536])
        live.feed(data[start : start + 65536])
    # The kept text is limited in length; the pattern that is applied to it must take all of it.
    capture.text()
    live.take(final=True)
    process._readable(data)


def _border(text: str) -> None:
    # Sequences are parsed character by character, so two thirds of the text are enough.
    text = text[: _SIZE * 2 // 3]
    foreign_text.clean(text)
    foreign_text.visible(text)
    foreign_text.one_line(text)
    cleaner = foreign_text.Cleaner()
    for start in range(0, len(text), 997):
        cleaner.feed(text[start : start + 997])
    cleaner.finish()


def _ignore_rules(text: str) -> None:
    rules = IgnoreFile(_read(text))
    for path in ("a" * 255, "/".join("a" * 200), "a/" * 20 + "x" * 255):
        rules.verdict(path, is_folder=False)


def _as_a_path(text: str) -> None:
    IgnoreFile("*a*a*a*b\n**/x/**/y\n[!a]*z\n").verdict(_read(text), is_folder=False)


def _globs(text: str) -> None:
    try:
        pattern = patterns_of(text)[0]
    except ToolProblem:
        return
    pattern.step(pattern.begin(), "a" * 255)


def _nearest(text: str) -> None:
    nearest_passage(text, text[: len(text) // 2] + "?")


def _replaced(text: str) -> None:
    text = _read(text)
    for old in (text[: len(text) // 2] + "?", text[:1], text[: len(text) // 2]):
        for new in ("", "x" * 100_000):
            try:
                replaced(text, Edit(old=old, new=new, replace_all=True))
            except ToolProblem:
                continue


def _diff(text: str) -> None:
    diff_lines(text, text[: len(text) // 2] + "?" + text[len(text) // 2 :])


def _markers(text: str) -> None:
    internal_kind(user_words(text))


def _grep_lines(text: str) -> None:
    data = text.encode("utf-8", "replace")
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for mode in ("content", "count", "files_with_matches"):
            params = GrepParams(pattern="x", output_mode=mode)
            for output in (data, b"./a\0" + data, b"./a\x001:" + data + b"\n", data * 2 + b"\0"):
                _outcome(params, GrepOutput(output), _Records(output, GlobFilter(), "", root))
    finally:
        os.close(root)


def _written_calls(text: str) -> None:
    call = '{"name": "Shell", "arguments": {"command": "x"}}'
    for answer in (text, f"{text}\n{call}", f"```json\n{call}\n```{text}", f"<tool_call>{text}"):
        written_calls(answer[:200_000], ("Shell",))


READERS = [_capture, _border, _ignore_rules, _as_a_path, _globs, _nearest, _replaced, _diff]
READERS += [_markers, _grep_lines, _written_calls]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", first_only([3, 1]))
def test_the_worst_text_takes_no_longer_than_its_length_says(every: int) -> None:
    check(__file__, str(every))


def _attempts(place: int, every: int) -> Attempts:
    """Return the attempts of a reader with each `every`th text; readers begin at different ones and together get all texts."""
    some = [*WORST.items()][place % every :: every]
    return ((name, partial(READERS[place], worst)) for name, worst in some)


if __name__ == "__main__":
    apart = int(sys.argv[1])
    try_each({one.__name__: _attempts(n, apart) for n, one in enumerate(READERS)}, _CPU_S)
