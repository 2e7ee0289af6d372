"""vim itself, with which the model of its keys is compared; only for tests, and only if it is installed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kimi_tui.tui.prompt.vim import Vim

VIM = shutil.which("vim")
_SCRIPT = r"""
set nocompatible encoding=utf-8 viminfo= noswapfile startofline
let out = []
for c in json_decode(join(readfile($CASES), ""))
  enew!
  call setline(1, split(c.text, "\n", 1))
  call cursor(c.line, c.column)
  call setreg('"', "", "c")
  call setreg("q", c.macro, "c")
  call setcharsearch({'char': 'b', 'forward': 1, 'until': 0})
  if c.macro == ""
    silent! execute "normal! " . c.keys
  else
    " With a bang a command that fails would not end the macro.
    silent execute "normal! " . c.keys
  endif
  call add(out, [join(getline(1, "$"), "\n"), line("."), col("."), getreg('"')])
endfor
call writefile([json_encode(out)], $OUT)
qa!
"""
_MOTIONS = (
    *(
        "h",
        "l",
        "j",
        "k",
        "w",
        "b",
        "e",
        "W",
        "B",
        "E",
        "0",
        "^",
        "$",
        "gg",
        "G",
        ";",
        ",",
        "{",
        "}",
    ),
    *("fa", "Fa", "t,", "T,", "fb", "tb"),
)
_OBJECTS = ("iw", "aw", "iW", "aW", 'i"', 'a"', "i(", "a(", "ip", "ap", "i{", "a[")
_SINGLE = ("x", "X", "s", "S", "D", "C", "Y", "p", "P", "rz", "~", "J", ".", *"oOiaIAR")
_PIECES = (
    "foo",
    "a",
    "bar,",
    "b(a",
    "ab)",
    "  ",
    '"a b"',
    " ",
    "\n",
    "\n\n",
    "x-y",
    ", ",
    "\n  ",
    "(a)",
    "é",
)
_WRITTEN = ("Q", "Q ", "RQ", "", '"', "a")
_BRACKETS = {"(": ")", "{": "}", "[": "]"}


class Case(NamedTuple):
    """A text, the cursor in it, and the keys that are pressed; `escape` is one of them, `@q` plays the macro."""

    text: str
    at: int
    keys: tuple[str, ...]
    macro: tuple[str, ...] = ()


class Result(NamedTuple):
    """The text and the cursor after a case, and the newest deleted or copied text."""

    text: str
    at: int
    register: str


def vim_at(text: str, at: int) -> Vim:
    """Return the model in normal mode, with this text, and nothing to undo."""
    vim = Vim()
    vim.press("escape")
    vim.load(text, at)
    vim.forget()
    return vim


def pressed(case: Case) -> Vim:
    """Return the model after a case."""
    vim = vim_at(case.text, case.at)
    for key in ("f", "b", "escape", "l", "h"):  # `;` has something to look for
        vim.press(key)
    vim.load(case.text, case.at)
    vim.forget()
    vim.macros["q"] = case.macro
    for key in case.keys:
        vim.press(key)
    return vim


def ours(case: Case) -> Result:
    """Return the model's result of a case."""
    vim = pressed(case)
    return Result(vim.text, vim.at, vim.register + ("\n" if vim.is_register_lines else ""))


def theirs(cases: Sequence[Case], folder: Path) -> list[Result]:
    """Return vim's results of some cases."""
    sent: list[dict[str, object]] = []
    for text, at, keys, macro in cases:
        start = text.rfind("\n", 0, at) + 1
        sent.append(
            {
                "text": text,
                "line": text.count("\n", 0, at) + 1,
                "column": len(text[start:at].encode()) + 1,
                "keys": _sent(keys),
                "macro": _sent(macro),
            }
        )
    files = {name: folder / f"{name}.json" for name in ("CASES", "OUT")}
    files["CASES"].write_text(json.dumps(sent))
    script = folder / "script.vim"
    script.write_text(_SCRIPT)
    subprocess.run(
        [str(VIM), "-u", "NONE", "-i", "NONE", "-N", "-es", "-S", str(script)],
        env={**os.environ, **{name: str(path) for name, path in files.items()}, "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    found: list[Result] = []
    for text, line, column, register in json.loads(files["OUT"].read_text()):
        lines = text.split("\n")
        at = sum(len(one) + 1 for one in lines[: line - 1])
        at += len(lines[line - 1].encode()[: column - 1].decode())
        found.append(Result(text, at, register))
    return found


def _sent(keys: Sequence[str]) -> str:
    return "".join("\x1b" if key == "escape" else key for key in keys)


def a_command(chance: random.Random) -> str:
    """Return a command of any kind."""
    count = chance.choice(["", "", "", "2", "3"])
    match chance.randrange(11):
        case 0 | 1:
            return count + chance.choice(_MOTIONS)
        case 2 | 3 | 4:
            return (
                count
                + chance.choice("dcy")
                + chance.choice(["", "", "2"])
                + chance.choice(_MOTIONS)
            )
        case 5:
            return chance.choice("dcy") + chance.choice(_OBJECTS)
        case 6:
            return count + chance.choice(["dd", "cc", "yy"])
        case 7:
            moves = chance.choice(_MOTIONS) + chance.choice(_MOTIONS)
            return chance.choice("vV") + moves + chance.choice([*"dycx~JuU", "rz"])
        case 8:
            op = chance.choice(["gu", "gU", "g~"])
            return op + chance.choice([*_MOTIONS, *_OBJECTS, op[1], op[1]])
        case _:
            return count + chance.choice(_SINGLE)


def a_case(chance: random.Random, n_commands: int) -> Case:
    """Return some text and some commands, without those at which vim goes astray at the edge of a text."""
    text = "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 8)))
    start = chance.choice([0, *(at + 1 for at, char in enumerate(text) if char == "\n")])
    end = text.find("\n", start) % (len(text) + 1)
    case = Case(text, chance.randint(start, max(start, end - 1)), ())
    for _ in range(n_commands):
        command = a_command(chance)
        if _goes_astray(pressed(case), command):
            continue
        case = case._replace(keys=(*case.keys, *command))
        if pressed(case).mode in ("insert", "replace"):
            case = case._replace(keys=(*case.keys, *chance.choice(_WRITTEN), "escape"))
    return case


def _goes_astray(vim: Vim, command: str) -> bool:
    text, at, last = vim.text, vim.at, command[-1]
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
    is_object = len(command) > 1 and command[-2] in "ia"
    before, after = text[:at], text[at:]
    return (
        not text.strip(" \n")
        or (last == "." and vim._change is None)
        or ("{" in command and "\n" not in text)
        or (last == "0" and len(command) > 1)
        or (command[0] in "vV" and not line)
        or (is_object and last in "wW" and not line.strip())
        or (is_object and last in _BRACKETS and not (last in before and _BRACKETS[last] in after))
        or (last == "J" and "\n" not in after)
        or (last in "bB" and "\n" in text and len(command) > 1 and not before.strip())
        or (last in "bB$" and len(command) > 2)
    )
