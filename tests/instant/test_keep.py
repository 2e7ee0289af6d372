"""The text of keys that no app has read."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from kimi_tui.instant import prompt
from kimi_tui.instant.inks import Inks
from kimi_tui.instant.keep import typed_text
from kimi_tui.tui.first_page import FirstPage
from kimi_tui.tui.glyphs import UNICODE

KEY = "sk-" + "abcdefgh12345678" * 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("hé 你".encode(), "hé 你"),
        (b"fix it\rand more", "fix it\nand more"),
        (b"sent\r", "sent"),
        (b"ab\x7f\x7f\x7fc", "c"),
        (b"\x1b[H\x1b[1;5Dhi\x1bOP\x1b", "hi"),
        (b"\x1b[200~pasted\rtext\x1b[201~", "pasted\ntext"),
        (b"a\x1b[13;2ub", "a\nb"),
        (b"\x03\x03\x03", ""),
        (b"\x1b]11;rgb:0/0/0\x1b\\x", "x"),
        (b"\xffx\xe4", "\ufffdx\ufffd"),
        (f"/model {KEY}".encode(), "/model "),
        (b"", ""),
    ],
)
def test_what_was_typed_is_told_from_its_bytes(data: bytes, text: str) -> None:
    assert typed_text(data) == text


@pytest.mark.parametrize("begun", ["\x1b", "\x1b[", "\x1b]11;", "\x1b[13;", "\x1b[1 "])
def test_no_input_takes_long(begun: str) -> None:
    assert typed_text((begun * 100_000).encode()) is not None
    assert typed_text((begun + "1;" * 200_000).encode()) is not None


def kept_by(program: Path, code: str, data: bytes, n_taken: int = -1) -> float:
    """Have a program in place of the keeping one store typed bytes; return the seconds that it took."""
    program.write_text(f"#!{sys.executable}\n{code}\n")
    program.chmod(0o700)
    instant = prompt.InstantPrompt(
        cast("FirstPage", None),
        UNICODE,
        lambda _: Inks(None, 256, grey=False, theme=""),
        asks=False,
        own_colours=False,
        kept_with=("root", "work", "-"),
    )
    for at in range(0, len(data), 65_536):
        instant._typed.take(data[at : at + 65_536], 0.0)
    instant.n_taken = n_taken
    begun = time.monotonic()
    executable, sys.executable = sys.executable, str(program)
    try:
        instant.keep()
    finally:
        sys.executable = executable
    return time.monotonic() - begun


STORES = "import sys; open(__file__ + '.got', 'wb').write(sys.stdin.buffer.read())"


def test_a_long_paste_is_passed_on_whole(tmp_path: Path) -> None:
    program = tmp_path / "program"
    pasted = b"\x1b[200~" + b"Q" * 1_000_000 + b"\x1b[201~"
    kept_by(program, STORES, b"so: " + pasted)
    assert (tmp_path / "program.got").read_bytes() == b"root\0work\0-\0so: " + pasted


def test_only_what_the_app_has_not_is_passed_on(tmp_path: Path) -> None:
    program = tmp_path / "program"
    kept_by(program, STORES, b"text\x1b[H and more", n_taken=0)
    assert (tmp_path / "program.got").read_bytes() == b"root\0work\0-\0\x1b[H and more"
    (tmp_path / "program.got").unlink()
    kept_by(program, STORES, b"text\x1b[H and more", n_taken=1)
    assert not (tmp_path / "program.got").exists()


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "import os; os.kill(os.getpid(), 19)"]
)
def test_a_program_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(prompt, "_KEEP_S", 0.2)
    spawned: list[int] = []
    spawn = os.posix_spawn
    monkeypatch.setattr(os, "posix_spawn", lambda *a, **k: spawned.append(spawn(*a, **k)))
    try:
        assert kept_by(tmp_path / "program", code, b"a\r" + b"Q" * 1_000_000) < 5.0
    finally:
        for pid in spawned:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
