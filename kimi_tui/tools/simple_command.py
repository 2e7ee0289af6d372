"""The words of a command line that is one simple command of literal words, and of nothing else.

Two readers that know nothing of each other must find the same words: a recogniser of a grammar so small that it has no
corners, and `shfmt`, which knows all of bash. It runs in a process of its own. Whatever they disagree about, whatever is
too long or takes too long, is no simple command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from unicodedata import category

from kimi_tui.tools.process import child_environment, find_program

_LONGEST_BYTES = 8192
_MOST_WORDS = 256
_LIMIT_S = 1.0
# Not here: blanks, quotes, the operators, $ ` \ # * ? [ ] { } ! and, where bash makes a home folder of it, ~.
_BARE = r"(?:[\w./:,=+@%^-]|(?<=[\w.^@-])~)"
_PIECE = re.compile(rf"(?P<bare>{_BARE}+)|'(?P<single>[^']*)'|\"(?P<double>[^\"$`\\]*)\"")
_ODD_KINDS = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class NotSimple(Exception):
    """It is more than one simple command of literal words, or nobody can tell. The text says why, in a few words."""


def simple_words(command: str, shfmt: str | None) -> list[str]:
    """The words of a simple command.

    Args:
        command: the line.
        shfmt: the program; None where there is none, and then nothing is simple.

    Raises:
        NotSimple: it is something else, or has a word that a shell would change.
    """
    words = _recognised(command)
    if shfmt is None:
        raise NotSimple("the program shfmt is missing, which has to agree")
    if _parsed(command, shfmt) != words:
        raise NotSimple("two readers of shell commands do not agree about it")
    return words


def find_shfmt(environ: Mapping[str, str], work_dir: Path) -> str | None:
    """The program, as it was installed beside this one or stands on the path outside the work folder."""
    beside = os.path.join(sysconfig.get_path("scripts"), "shfmt")
    return (
        beside if os.access(beside, os.X_OK) else find_program("shfmt", environ, work_dir, Path())
    )


def _recognised(command: str) -> list[str]:
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        size = -1
    if not 0 <= size <= _LONGEST_BYTES:
        raise NotSimple("it is too long, or no text")
    if "\n" in command or "\r" in command:
        raise NotSimple("it has several lines")
    for char in command:
        if not " " <= char <= "~" and char != "\t" and category(char) in _ODD_KINDS:
            raise NotSimple(f"it has a character that hides, U+{ord(char):04X}")
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(command):
        if command[at] in " \t":
            words += [] if word is None else [word]
            word = None
            at += 1
            continue
        found = _PIECE.match(command, at)
        if found is None:
            raise NotSimple(f"{command[at]} may mean more than itself to a shell")
        word = (word or "") + next(text for text in found.groups() if text is not None)
        at = found.end()
    words += [] if word is None else [word]
    if not words or not _NAME.fullmatch(words[0]):
        raise NotSimple("it does not begin with the plain name of a program")
    if len(words) > _MOST_WORDS:
        raise NotSimple("it has too many words")
    return words


def _parsed(command: str, shfmt: str) -> list[str]:
    """The words as shfmt finds them."""
    try:
        run = subprocess.run(
            [shfmt, "-ln=bash", "--to-json"],
            input=command.encode(),
            capture_output=True,
            cwd="/",
            env=child_environment({}),
            timeout=_LIMIT_S,
            check=True,
        )
        return _words_of(json.loads(run.stdout))
    except (
        OSError,
        subprocess.SubprocessError,
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
    ) as error:
        raise NotSimple("shfmt cannot read it") from error


_Node = dict[str, object]
_STATEMENT = frozenset({"Pos", "End", "Cmd", "Position"})
_CALL = frozenset({"Type", "Pos", "End", "Args"})


def _words_of(file: object) -> list[str]:
    """The words of a tree of shfmt's, in which nothing may stand that is not known here."""
    tree = _node(file, {"Type", "Pos", "End", "Stmts"})
    (statement,) = cast("list[object]", tree["Stmts"])
    call = _node(_node(statement, _STATEMENT)["Cmd"], _CALL)
    if call["Type"] != "CallExpr":
        raise ValueError("no simple command")
    return [
        "".join(_piece(part) for part in cast("list[object]", _node(word, {"Parts"})["Parts"]))
        for word in cast("list[object]", call["Args"])
    ]


def _piece(part: object) -> str:
    piece = _node(part, {"Type", "Left", "Right", "Value", "Parts", "ValuePos", "ValueEnd"})
    if piece["Type"] in ("Lit", "SglQuoted"):
        return str(piece.get("Value", ""))
    if piece["Type"] != "DblQuoted":
        raise ValueError("not literal")
    inner = [_node(one, {"Type", "Value"}) for one in cast("list[object]", piece.get("Parts", []))]
    if any(one["Type"] != "Lit" for one in inner):
        raise ValueError("not literal")
    return "".join(str(one["Value"]) for one in inner)


def _node(value: object, known: frozenset[str] | set[str]) -> _Node:
    if not isinstance(value, dict):
        raise ValueError("no tree")
    node = cast("_Node", value)
    if unknown := set(node) - known - {"Pos", "End", "ValuePos", "ValueEnd"}:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    return node
