"""Groups of shell commands that one permission for the session can cover: `judge` parses a command and names its group.

A group is a program, its first words, and the folder; `command_groups.toml` is an allowlist of groups with their options and
words. A command that is not on it, or cannot be parsed, found or checked in time, belongs to no group, so that the user is
asked. `soul.approval` stores the allowed groups.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast
from unicodedata import category

from kimi_tui.app_paths import bare_reason
from kimi_tui.foreign_text import visible
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.paths import ResolvedPath, holds_secrets, links_around, locate
from kimi_tui.tools.process import (
    child_environment,
    own_git_settings,
)
from kimi_tui.tools.programs import (
    bundled_program,
    find_program,
    is_planted,
    program_in,
    trusted_path,
)
from kimi_tui.tools.sandbox.git_levers import BARE
from kimi_tui.tools.sandbox.policy import has_parts_elsewhere
from kimi_tui.workspace.protected_names import GuardedLink, folded, secrets

Kind = Literal["reads", "project", "never", "unknown", "unclear"]
"""The kind of a command. `reads`: it only reads. `project`: it runs code of the folder. `never`: it is a wrapper or
interpreter, or has code in its arguments. `unknown`: it or one of its words is not on the list. `unclear`: it is not one
simple command.
"""

_GIT_LIMIT_S = 1.0
_GIT_LIMIT_BYTES = 2 << 20
_HARMLESS_SETTING = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol|safecrlf"
    r"|abbrev|quotepath|sharedrepository|compression|untrackedcache|preloadindex|commitgraph)"
    r"|user\.(name|email|signingkey)|init\.defaultbranch|(advice|color|pull|push|fetch)\.[a-z0-9.]+"
    r"|branch\..+|remote\..+\.(url|pushurl|fetch|prune|tagopt|gh-resolved)|extensions\.objectformat",
    re.DOTALL,
)
# With these settings no program of the repository runs, and nothing is written or fetched.
_GIT_ENVIRON = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
}
_REPOSITORIES = frozenset({".git", ".hg", ".svn", ".jj", ".sl", ".bzr", "_darcs", ".pijul", "cvs"})
_SEPARATORS = re.compile(r"[:=,]")
_PLAIN = re.compile(r"[A-Za-z0-9_][\w:.-]*", re.ASCII)
# `%G` and a letter is a commit's signature; a sign before the letter may ask for a line or a blank.
_SIGNATURE = re.compile(r"%[-+ ]*G")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a yes for the session can cover a command, with the command's group or the reason why it has none.

    Attributes:
        kind: the kind of command.
        reason: the reason why the command has no group; for one with a group, what is certain about it.
        group: the name of the group; empty if there is none.
        offer: the label of the answer that allows the group for the session.
        rule: the permission that allows the group for the project, in the grammar of `--allow`; `project_offer` is the label
            of that answer.
        argv: the arguments with which the command runs without a shell.
        environ: the variables that it gets besides those of every command.
    """

    kind: Kind
    reason: str
    group: str = ""
    offer: str = ""
    rule: str = ""
    project_offer: str = ""
    argv: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])


def judge(command: str, work_dir: Path, environ: Mapping[str, str]) -> Verdict:
    """Find the group of a command. It looks at files and runs `shfmt` and `git`, so call it in a thread.

    Args:
        command: the command as it would be given to a shell.
        work_dir: the folder in which it would run.
        environ: the environment variables of this program.
    """
    try:
        words = simple_words(command, find_shfmt(environ, work_dir))
        if visible(one := command.replace("\t", " ")) != one:
            raise NotSimple("it contains lookalike or invisible characters")
    except NotSimple as no:
        return Verdict("unclear", str(no))
    form = _form_of(words)
    if form is None:
        because = _never().get(words[0])
        if because:
            return Verdict("never", f"{words[0]}: {because}")
        return Verdict("unknown", f"{' '.join(words[:2])} is not on the list of known commands")
    try:
        return _grouped(form, words, work_dir, environ)
    except OSError as error:
        said = bare_reason(error).lower()
        named = os.path.basename(os.fsdecode(error.filename or ""))
        return Verdict("unknown", f"{visible(named)[:60]}: {said}" if named else said)
    except (_Doubt, ToolProblem, ValueError) as doubt:
        return Verdict("unknown", str(doubt))


def never_because(program: str) -> str:
    """Return why no permission beyond a single yes may cover commands of this program, whatever version its name ends with;
    empty for any other program.
    """
    plain = program.rstrip("0123456789.").rstrip("-")
    return _never().get(program) or _never().get(plain) or ""


def program_of(name: str, work_dir: Path, environ: Mapping[str, str]) -> str:
    """Return why the program that a shell would run under this name cannot be trusted; empty if it can. It looks at files."""
    try:
        _program(name, work_dir, environ)
    except (_Doubt, OSError) as doubt:
        return str(doubt)
    return ""


class _Doubt(Exception):
    """The command has no place in the group. The text says why in a few words."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A table of `command_groups.toml`."""

    begin: tuple[str, ...]
    kind: Literal["reads", "project"]
    flags: frozenset[str]
    values: frozenset[str]
    words: Literal["none", "names", "files", "pattern"]
    single: bool
    contents: bool

    def begins(self, words: Sequence[str]) -> bool:
        return len(words) >= len(self.begin) and all(
            word == wanted or (wanted == "*" and _PLAIN.fullmatch(word) is not None)
            for wanted, word in zip(self.begin, words, strict=False)
        )

    def others(self, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Yield the words after the beginning that are no options, and the values of options (with True).

        Raises:
            _Doubt: an option is not on the list.
        """
        waiting = iter(words)
        for word in waiting:
            if word == "--" and word in self.flags:
                yield from ((rest, False) for rest in waiting)
            elif not word.startswith("-") or word == "-":
                yield word, False
            else:
                value = self._value(word)
                if value is None:
                    value = next(waiting, None)
                    if value is None or value.startswith("-"):
                        raise _Doubt(f"the option {word} needs a value")
                if value:
                    yield value, True

    def _value(self, option: str) -> str | None:
        """Return the value in the option's own word; None if the value is the next word, empty if the option has none."""
        digits = option[1:]
        is_number = digits.isascii() and digits.isdecimal()
        if option in self.flags or ("-#" in self.flags and is_number):
            return ""
        if option in self.values:
            return None
        name, equals, value = option.partition("=")
        if self.single:
            # Go accepts one dash or two.
            name = f"-{name.lstrip('-')}" if name[:3].count("-") < 3 else name
            if name in self.flags and not equals:
                return ""
            if name in self.values:
                return value if equals else None
        elif option.startswith("--"):
            if equals and (name in self.values or f"{name}=" in self.values):
                return value
        else:
            return self._cluster(option)
        raise _Doubt(f"the option {name} is not on the list of harmless options")

    def _cluster(self, option: str) -> str | None:
        for at, letter in enumerate(option[1:], start=1):
            if f"-{letter}" in self.values:
                return option[at + 1 :] or None
            if f"-{letter}" not in self.flags:
                raise _Doubt(f"the option -{letter} is not on the list of harmless options")
        return ""


def _grouped(
    form: _Form, words: Sequence[str], work_dir: Path, environ: Mapping[str, str]
) -> Verdict:
    begin = words[: len(form.begin)]
    others = list(form.others(words[len(begin) :]))
    plain = [word for word, is_value in others if not is_value]
    if plain and form.words == "none":
        raise _Doubt(f"{plain[0]} is not on the list of harmless arguments")
    links = links_around(locate(".", work_dir, environ)) if others else []
    for word, _ in others:
        if form.kind == "project" and word[0:1] in ("@", "+"):
            raise _Doubt(f"{word} may be a file to read options from")
        if words[0] == "git" and _SIGNATURE.search(word):
            raise _Doubt(f"{word} may make git run another program to check signatures")
        if words[0] == "go" and "@" in word:
            raise _Doubt(f"{word} may be looked up on the network")
        _check_word(word, work_dir, environ, links)
    if form.words in ("files", "pattern"):
        for word in plain[form.words == "pattern" :]:
            found = os.stat(work_dir / word)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise _Doubt(f"{word} is not an ordinary file")
            if _is_of_repository(locate(word, work_dir, environ)):
                raise _Doubt(f"{word} is inside .git, which may contain a token")
    program, identity = _program(words[0], work_dir, environ)
    folder = work_dir.stat()
    extra: Mapping[str, str] = {}
    if words[0] == "git":
        _check_repository(program, work_dir, environ, contents=form.contents)
        extra = {**_GIT_ENVIRON, **own_git_settings(work_dir)}
    shown = " ".join(begin)
    runs = "; it runs code of this folder" if form.kind == "project" else ""
    return Verdict(
        form.kind,
        "it runs code of this folder" if runs else "it only reads in this folder",
        group=repr(
            ("command", *begin, os.path.realpath(work_dir), folder.st_dev, folder.st_ino, *identity)
        ),
        offer=f"Yes, and allow {shown} in this folder for this session{runs}",
        rule=shown,
        project_offer=f"Yes, and do not ask again for {shown} in this folder{runs}",
        argv=(program, *words[1:]),
        environ=extra,
    )


def _check_word(
    word: str, work_dir: Path, environ: Mapping[str, str], links: Sequence[GuardedLink]
) -> None:
    """Check that a word, if it is or contains a path, leads to nothing outside the work folder and to no secret."""
    for piece in (word, *_SEPARATORS.split(word)):
        if not piece:
            continue
        target = locate(piece, work_dir, environ)
        if not target.inside:
            raise _Doubt(f"{piece} may lead outside the folder")
        if any(holds_secrets(target, environ, links, is_folder=one) for one in (False, True)):
            raise _Doubt(f"{piece} may contain secrets")


def _is_of_repository(target: ResolvedPath) -> bool:
    """Return whether the path is one of a version control system's own files: addresses in them may have passwords."""
    if any(folded(part) in _REPOSITORIES for part in target.real.relative_to(target.root).parts):
        return True
    above = (one for one in target.real.parents if one.is_relative_to(target.root))
    return any(all(os.path.lexists(one / name) for name in BARE) for one in above)


def _program(
    name: str, work_dir: Path, environ: Mapping[str, str]
) -> tuple[str, tuple[object, ...]]:
    """Return the program that a shell would run, and the facts that identify it."""
    for folder in child_environment(environ)["PATH"].split(os.pathsep):
        if not os.path.isabs(folder):
            raise _Doubt("PATH has a relative folder")
        if found := program_in(folder, name):
            break
    else:
        raise _Doubt(f"the program {name} is not installed")
    if is_planted(found, environ, work_dir):
        raise _Doubt(
            f"{visible(found)} is in a folder that sandboxed commands can change, or could change earlier"
        )
    real = os.path.realpath(found)
    status = os.stat(real)
    return found, (real, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _check_repository(
    git: str, work_dir: Path, environ: Mapping[str, str], *, contents: bool
) -> None:
    """Check that the folder's own repository names no program, lies where it seems to, and shows no secrets and no files from
    elsewhere.
    """
    own = work_dir / ".git"
    if not stat.S_ISDIR(own.lstat().st_mode):
        raise _Doubt("the repository is outside this folder")
    if has_parts_elsewhere(str(own)) or os.path.lexists(own / "config.worktree"):
        raise _Doubt("parts of the repository are outside this folder")
    path = {"PATH": trusted_path(environ, work_dir)}
    environ = {**child_environment(environ), **path, **_GIT_ENVIRON, **own_git_settings(work_dir)}
    settings = _answer([git, "config", "--list", "--show-scope", "-z"], work_dir, environ)
    fields = settings.split("\0")
    for scope, entry in zip(fields[::2], fields[1::2], strict=False):
        key = entry.partition("\n")[0]
        if scope in ("local", "worktree") and not _HARMLESS_SETTING.fullmatch(key):
            raise _Doubt(
                f"the settings of the repository have {visible(key)[:60]}, which is not on the list of harmless ones"
            )
    for entry in _answer([git, "ls-files", "--stage", "-z"], work_dir, environ).split("\0"):
        facts, _, path = entry.partition("\t")
        if facts.startswith("160000"):
            raise _Doubt("the repository contains another repository")
        if contents and path and secrets().rule_in(path.split("/")):
            raise _Doubt(f"the repository contains {visible(path)[:60]}, which may be a secret")
        if contents and path and _has_other_names(work_dir / path):
            raise _Doubt(f"{visible(path)[:60]} has hard links, which may be outside this folder")


def _has_other_names(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _answer(argv: Sequence[str], work_dir: Path, environ: Mapping[str, str]) -> str:
    """Return the output of a program, within limits.

    Raises:
        _Doubt: the program failed, took too long or wrote too much.
    """
    with tempfile.TemporaryFile() as answer:
        try:
            subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                cwd=work_dir,
                env=environ,
                timeout=_GIT_LIMIT_S,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise _Doubt("the repository could not be checked in time") from error
        if answer.tell() > _GIT_LIMIT_BYTES:
            raise _Doubt("the repository is too large to check")
        answer.seek(0)
        return answer.read().decode("utf-8", "surrogateescape")


@cache
def _data() -> dict[str, Any]:
    text = files("kimi_tui.tools").joinpath("command_groups.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _forms() -> tuple[_Form, ...]:
    return tuple(
        _Form(
            tuple(begin.split()),
            table["kind"],
            frozenset(table.get("flags", "").split()),
            frozenset(table.get("values", "").split()),
            table["words"],
            table.get("single", False),
            table.get("contents", False),
        )
        for table in cast("list[dict[str, Any]]", _data()["command"])
        for begin in table["begin"]
    )


def _form_of(words: Sequence[str]) -> _Form | None:
    fitting = [form for form in _forms() if form.begins(words)]
    return max(fitting, key=lambda form: len(form.begin), default=None)


@cache
def _never() -> dict[str, str]:
    return {
        name: table["because"]
        for table in cast("list[dict[str, str]]", _data()["never"])
        for name in table["names"].split()
    }


# -- parsing simple commands -----------------------------------------------------------------------------
# Two independent parsers must find the same literal words: a recogniser of a very small grammar, and `shfmt`, which knows all
# of bash, in a process of its own. A command about which they disagree, or that is too long or takes too long, is not simple.

_LONGEST_BYTES = 8192
_MOST_WORDS = 256
_LIMIT_S = 1.0
# Blanks, quotes, the operators, and $ ` \ # * ? [ ] { } ! are not bare characters, nor is ~ where bash expands it to a home
# folder.
_BARE = r"(?:[\w./:,=+@%^-]|(?<=[\w.^@-])~)"
_PIECE = re.compile(rf"(?P<bare>{_BARE}+)|'(?P<single>[^']*)'|\"(?P<double>[^\"$`\\]*)\"")
_ODD_KINDS = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class NotSimple(Exception):
    """The command is not one simple command of literal words, or that is unknown. The text says why in a few words."""


def simple_words(command: str, shfmt: str | None) -> list[str]:
    """Return the words of a simple command.

    Args:
        command: the command line.
        shfmt: the path of `shfmt`; None if there is none, and then no command is simple.

    Raises:
        NotSimple: the line is something else, or has a word that a shell would change.
    """
    words = _recognised(command)
    if shfmt is None:
        raise NotSimple("shfmt, the program that parses shell commands, is not installed")
    if _parsed(command, shfmt) != words:
        raise NotSimple("two parsers of shell commands read it differently")
    return words


def find_shfmt(environ: Mapping[str, str], work_dir: Path) -> str | None:
    """Return the path of `shfmt` that was installed with this program, or that is on the path outside the work folder."""
    return bundled_program("shfmt") or find_program("shfmt", environ, work_dir, Path())


def _recognised(command: str) -> list[str]:
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        size = -1
    if not 0 <= size <= _LONGEST_BYTES:
        raise NotSimple("it is too long or not text")
    if "\n" in command or "\r" in command:
        raise NotSimple("it has several lines")
    for char in command:
        if not " " <= char <= "~" and char != "\t" and category(char) in _ODD_KINDS:
            raise NotSimple(f"it has an invisible character, U+{ord(char):04X}")
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
            raise NotSimple(f"{command[at]} may have a special meaning in a shell")
        word = (word or "") + next(text for text in found.groups() if text is not None)
        at = found.end()
    words += [] if word is None else [word]
    if not words or not _NAME.fullmatch(words[0]):
        raise NotSimple("it does not begin with the plain name of a program")
    if len(words) > _MOST_WORDS:
        raise NotSimple("it has too many words")
    return words


def _parsed(command: str, shfmt: str) -> list[str]:
    """Return the words as shfmt finds them."""
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
    """Return the words of a tree of shfmt's, in which nothing may stand that is not known here."""
    tree = _node(file, {"Type", "Pos", "End", "Stmts"})
    (statement,) = cast("list[object]", tree["Stmts"])
    call = _node(_node(statement, _STATEMENT)["Cmd"], _CALL)
    if call["Type"] != "CallExpr":
        raise ValueError("it is more than one simple command")
    return [
        "".join(_piece(part) for part in cast("list[object]", _node(word, {"Parts"})["Parts"]))
        for word in cast("list[object]", call["Args"])
    ]


def _piece(part: object) -> str:
    piece = _node(part, {"Type", "Left", "Right", "Value", "Parts", "ValuePos", "ValueEnd"})
    if piece["Type"] in ("Lit", "SglQuoted"):
        return str(piece.get("Value", ""))
    if piece["Type"] != "DblQuoted":
        raise ValueError("it has a variable or a pattern")
    inner = [_node(one, {"Type", "Value"}) for one in cast("list[object]", piece.get("Parts", []))]
    if any(one["Type"] != "Lit" for one in inner):
        raise ValueError("it has a variable or a pattern")
    return "".join(str(one["Value"]) for one in inner)


def _node(value: object, known: frozenset[str] | set[str]) -> _Node:
    if not isinstance(value, dict):
        raise ValueError("shfmt gave no usable result")
    node = cast("_Node", value)
    if unknown := set(node) - known - {"Pos", "End", "ValuePos", "ValueEnd"}:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    return node
