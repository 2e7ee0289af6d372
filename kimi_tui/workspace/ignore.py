"""Matches paths against `.gitignore` rules, as git would, without running git.

The rules are not trusted, so matching takes bounded time for any rules: a name or an ending is looked up, and only patterns
with other wildcards become regular expressions, made of atomic groups, which do not backtrack. Rules are read from the
`.gitignore` files of the work folder, from those of the repository around it, and from the repository's exclude file. Git
itself is not run: in a hostile repository it executes programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kimi_tui.workspace.protected_names import folded

RULES_NAME = ".gitignore"
ALWAYS = frozenset({".git", ".hg", ".svn", ".jj"})
"""Folders that belong to a version control system: never scanned, never restored."""

_SHORT = re.compile(r"(?:git|hg|svn|jj)~[0-9]{1,2}")


def is_of_version_control(name: str) -> bool:
    """Return whether a file system may find a folder of a version control system under this name. File systems may ignore case,
    invisible characters, and blanks and dots at the end, and NTFS, FAT and SMB also accept a short name, a stream's name, or
    a backslash.
    """
    if name[:1] != "." and "~" not in name and "\\" not in name and name.isascii():
        # Every name of a scan is checked here, and most end with this fast test.
        return False
    pieces = (folded(piece.partition(":")[0]) for piece in name.split("\\"))
    return any(piece in ALWAYS or _SHORT.fullmatch(piece) for piece in pieces)


MOST_EXPRESSIONS = 300
"""The number of rules with inner wildcards that are used for one path, as each takes time on every path. Further rules are
ignored, so more files are kept, never fewer. The longest `.gitignore` files in use have about fifty.
"""
_EXPRESSION_BYTES = 24 * 1024
"""The total length of these rules in one file, as compiling them takes time too."""
_AT_ONCE = 32
"""The number of rules that one expression matches: no other thread runs meanwhile, and the longest paths take a while."""
_PATTERN_BYTES = 4096
"""No path is longer, so no useful pattern is."""

_BOM = b"\xef\xbb\xbf"
_SPECIAL = re.compile(rb"[*?\[\\]")
_NAME_BYTE = rb"[^/]"
_ALL_BYTES = range(256)
_POSIX: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda byte: chr(byte).isalnum(),
    b"alpha": lambda byte: chr(byte).isalpha(),
    b"blank": lambda byte: byte in b" \t",
    b"cntrl": lambda byte: byte < 32 or byte == 127,
    b"digit": lambda byte: byte in b"0123456789",
    b"graph": lambda byte: 32 < byte < 127,
    b"lower": lambda byte: byte in b"abcdefghijklmnopqrstuvwxyz",
    b"print": lambda byte: 31 < byte < 127,
    b"punct": lambda byte: 32 < byte < 127 and not chr(byte).isalnum(),
    b"space": lambda byte: byte in b" \t\n\r\v\f",
    b"upper": lambda byte: byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"xdigit": lambda byte: byte in b"0123456789abcdefABCDEF",
}
_LIMIT_BYTES = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# -- patterns ----------------------------------------------------------------------------------------


class GlobPattern:
    """One pattern as `.gitignore` writes them, without `!` and a final slash, and whether a path matches it.

    A pattern without a slash matches the last name of a path, any other the whole path. Paths are bytes without a slash at
    either end. The time of a match grows no faster than the length of the path times that of the pattern.

    Attributes:
        literal: the only text that matches, if the pattern has no wildcard.
        suffix: the ending that a name must have, if the pattern is `*` and this ending.
    """

    __slots__ = ("_pattern", "is_name", "literal", "suffix")

    def __init__(self, pattern: bytes) -> None:
        self.is_name = b"/" not in pattern
        self._pattern = pattern = pattern.removeprefix(b"/")
        self.literal: bytes | None = None
        self.suffix: bytes | None = None
        if not _SPECIAL.search(pattern):
            self.literal = pattern
        elif self.is_name and pattern[:1] == b"*" and not _SPECIAL.search(pattern, 1):
            self.suffix = pattern[1:]

    def expression(self) -> bytes:
        """Return an equivalent regular expression, to be matched from the start.

        Raises:
            ValueError: nothing can ever match the pattern, or it is longer than any path.
        """
        if len(self._pattern) > _PATTERN_BYTES:
            raise ValueError("too long")
        return _name(self._pattern) if self.is_name else _whole_path(self._pattern)

    def matcher(self) -> Callable[[bytes], bool]:
        """Return a function that says whether a path matches.

        Raises:
            ValueError: nothing can ever match the pattern, or it is longer than any path.
        """
        match = re.compile(self.expression(), re.DOTALL).match
        if self.is_name:
            return lambda path: match(path[path.rfind(b"/") + 1 :]) is not None
        return lambda path: match(path) is not None


def _name(pattern: bytes) -> bytes:
    return _segment(pattern) + rb"\Z"


def _whole_path(pattern: bytes) -> bytes:
    """Return the expression of a pattern with slashes: sequences of names between `**`, each matched at its first place,
    without backtracking.

    Each sequence has a fixed number of names, so a path that matches at all also matches with every sequence at its earliest place.
    """
    runs: list[list[bytes]] = [[]]
    for name in _names(pattern):
        if len(name) > 1 and not name.strip(b"*"):
            if runs[-1] or len(runs) == 1:
                runs.append([])
        else:
            runs[-1].append(_segment(name))
    first, *later = runs
    parts = [b"".join(rb"(?>" + name + rb"/)" for name in first)]
    for number, run in enumerate(later, start=1):
        if number < len(later):
            inner = b"".join(name + b"/" for name in run)
            parts.append(rb"(?>(?:[^/]+/)*?" + inner + rb")")
        elif run:
            parts.append(rb"(?:[^/]+/)*" + b"/".join(run) + rb"\Z")
        else:
            parts.append(rb".")
    if not later:
        parts = [b"/".join(first), rb"\Z"]
    return b"".join(parts)


def _names(pattern: bytes) -> Iterator[bytes]:
    """Yield the names of a path pattern; a slash within `[...]` is no separator, but such a pattern matches nothing."""
    start = place = 0
    while place < len(pattern):
        byte = pattern[place : place + 1]
        if byte == b"[":
            _, place = _class(pattern, place)
            continue
        if byte == b"\\":
            place += 2 if pattern[place + 1 : place + 2] != b"/" else 1
            continue
        if byte == b"/":
            yield pattern[start:place].removesuffix(b"\\")
            start = place + 1
        place += 1
    yield pattern[start:]


def _segment(pattern: bytes) -> bytes:
    """Return an expression for one whole name: each stretch between stars is matched at its first place, the last one at the end."""
    stretches: list[bytes] = [b""]
    place = 0
    while place < len(pattern):
        byte = pattern[place : place + 1]
        place += 1
        if byte == b"*":
            if len(stretches) == 1 or stretches[-1]:
                stretches.append(b"")
        elif byte == b"?":
            stretches[-1] += _NAME_BYTE
        elif byte == b"[":
            found, place = _class(pattern, place - 1)
            stretches[-1] += found
        else:
            if byte == b"\\":
                byte = pattern[place : place + 1]
                place += 1
                if not byte:
                    raise ValueError("a backslash at the end")
            stretches[-1] += re.escape(byte)
    first, *later = stretches
    parts = [first]
    for stretch in later[:-1]:
        parts.append(rb"(?>[^/]*?" + stretch + rb")")
    if later:
        parts.append(rb"[^/]*" + later[-1])
    return rb"(?>" + b"".join(parts) + rb"(?=/|\Z))"


def _class(pattern: bytes, start: int) -> tuple[bytes, int]:
    """Return an expression for the bytes that `[...]` at this place stands for, and the place after it."""
    place = start + 1
    is_negated = pattern[place : place + 1] in (b"!", b"^")
    place += is_negated
    members: set[int] = set()
    before: int | None = None
    is_first = True
    while is_first or pattern[place : place + 1] != b"]":
        is_first = False
        byte, behind = _class_byte(pattern, place)
        if pattern[place : place + 2] == b"[:":
            closing = pattern.find(b"]", place + 2)
            if closing < 0:
                raise ValueError("a [ without a ]")
            if closing > place + 2 and pattern[closing - 1 : closing] == b":":
                is_member = _POSIX.get(pattern[place + 2 : closing - 1])
                if is_member is None:
                    raise ValueError("an unknown class in [ ]")
                members.update(byte for byte in range(128) if is_member(byte))
                before, place = None, closing + 1
                continue
        elif (
            pattern[place : place + 1] == b"-"
            and before is not None
            and pattern[place + 1 : place + 2] not in (b"", b"]")
        ):
            last, place = _class_byte(pattern, place + 1)
            members.update(range(before, last + 1))
            before = None
            continue
        members.add(byte)
        before, place = byte, behind
    taken = [byte for byte in _ALL_BYTES if (byte in members) != is_negated and byte != ord("/")]
    if not taken:
        raise ValueError("an empty range in [ ]")
    return b"[" + b"".join(_ranges(taken)) + b"]", place + 1


def _ranges(taken: list[int]) -> Iterator[bytes]:
    start = last = taken[0]
    for byte in [*taken[1:], 512]:
        if byte != last + 1:
            yield b"\\x%02x-\\x%02x" % (start, last)
            start = byte
        last = byte


def _class_byte(pattern: bytes, place: int) -> tuple[int, int]:
    if pattern[place : place + 1] == b"\\":
        place += 1
    if place >= len(pattern):
        raise ValueError("a [ without a ]")
    return pattern[place], place + 1


# -- rule files --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """The place of a rule in its file (later rules win), and its verdict."""

    number: int
    ignores: bool


@dataclass(slots=True)
class _RuleTable:
    """Rules that are found by looking up a text: the last one for a folder, and the last one for any file."""

    folders: dict[bytes, _Rule] = field(default_factory=dict[bytes, _Rule])
    anything: dict[bytes, _Rule] = field(default_factory=dict[bytes, _Rule])

    def add(self, text: bytes, rule: _Rule, *, folders_only: bool) -> None:
        self.folders[text] = rule
        if not folders_only:
            self.anything[text] = rule

    def get(self, text: bytes, *, is_folder: bool) -> _Rule | None:
        return (self.folders if is_folder else self.anything).get(text)


@dataclass(frozen=True, slots=True)
class _Expression:
    """A rule with inner wildcards, and its regular expression."""

    rule: _Rule
    text: bytes
    match: Callable[[bytes], object]
    is_name: bool
    folders_only: bool


class IgnoreFile:
    """The rules of one `.gitignore`; paths are relative to its folder. Two objects are equal if their texts are.

    Args:
        text: the text of the file; bytes that are not UTF-8 are decoded with `surrogateescape`.
        n_expressions: the largest number of rules with inner wildcards.
    """

    __slots__ = ("_any", "_expressions", "_names", "_paths", "_suffix_sizes", "_suffixes", "_text")

    def __init__(self, text: str, n_expressions: int = MOST_EXPRESSIONS) -> None:
        self._text = text
        self._names, self._paths, self._suffixes = _RuleTable(), _RuleTable(), _RuleTable()
        others: list[tuple[_Rule, GlobPattern, bool]] = []
        lines = text.encode("utf-8", "surrogateescape").removeprefix(_BOM).split(b"\n")
        for number, line in enumerate(lines):
            self._add(number, line.removesuffix(b"\r"), others)
        self._suffix_sizes = sorted({len(suffix) for suffix in self._suffixes.folders})
        # The last rules win, so those are kept.
        self._expressions = _compiled(reversed(others), n_expressions)
        # One match of many joined rules settles most paths: they match none.
        self._any = _joined(self._expressions)

    @property
    def n_expressions(self) -> int:
        """The number of rules with inner wildcards."""
        return len(self._expressions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IgnoreFile) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def _add(self, number: int, line: bytes, others: list[tuple[_Rule, GlobPattern, bool]]) -> None:
        if line.startswith(b"#"):
            return
        line = _without_final_blanks(line)
        is_negated = line.startswith(b"!")
        if is_negated:
            line = line[1:]
        folders_only = line.endswith(b"/")
        if folders_only:
            line = line[:-1]
        if not line:
            return
        pattern = GlobPattern(line)
        rule = _Rule(number, not is_negated)
        if pattern.literal is not None:
            table = self._names if pattern.is_name else self._paths
            table.add(pattern.literal, rule, folders_only=folders_only)
        elif pattern.suffix is not None:
            self._suffixes.add(pattern.suffix, rule, folders_only=folders_only)
        else:
            others.append((rule, pattern, folders_only))

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Return True for ignored, False for explicitly not ignored, None if no rule here matches."""
        asked = path.encode("utf-8", "surrogateescape")
        name = asked[asked.rfind(b"/") + 1 :]
        best = self._names.get(name, is_folder=is_folder)
        found = self._paths.get(asked, is_folder=is_folder)
        if found is not None and (best is None or best.number < found.number):
            best = found
        for size in self._suffix_sizes:
            if size > len(name):
                break
            found = self._suffixes.get(name[len(name) - size :], is_folder=is_folder)
            if found is not None and (best is None or best.number < found.number):
                best = found
        if any(match(name if is_name else asked) for is_name, match in self._any):
            for one in self._expressions:
                if best is not None and one.rule.number < best.number:
                    break
                if one.folders_only and not is_folder:
                    continue
                if one.match(name if one.is_name else asked):
                    best = one.rule
                    break
        return None if best is None else best.ignores


def _compiled(
    patterns: Iterable[tuple[_Rule, GlobPattern, bool]], n_expressions: int
) -> list[_Expression]:
    found: list[_Expression] = []
    room_bytes = _EXPRESSION_BYTES
    for rule, pattern, folders_only in patterns:
        if len(found) >= n_expressions:
            break
        try:
            text = pattern.expression()
        except ValueError:
            # Git ignores such a pattern too.
            continue
        room_bytes -= len(text)
        if room_bytes < 0:
            break
        match = re.compile(text, re.DOTALL).match
        found.append(_Expression(rule, text, match, pattern.is_name, folders_only))
    return found


def _joined(expressions: list[_Expression]) -> list[tuple[bool, Callable[[bytes], object]]]:
    joined: list[tuple[bool, Callable[[bytes], object]]] = []
    for is_name in (True, False):
        texts = [b"(?:%b)" % one.text for one in expressions if one.is_name is is_name]
        for start in range(0, len(texts), _AT_ONCE):
            either = b"|".join(texts[start : start + _AT_ONCE])
            joined.append((is_name, re.compile(either, re.DOTALL).match))
    return joined


def _without_final_blanks(line: bytes) -> bytes:
    """Return the line as git trims it: blanks at the end are removed, except one after a backslash."""
    kept = line.rstrip(b" ")
    if len(kept) == len(line):
        return line
    n_backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if n_backslashes % 2 else kept


# -- stacks of rule files ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IgnoreStack:
    """The rule files from the outermost down to one folder; the deepest that has a matching rule wins.

    Each file comes with the length of the part of a path (relative to the work folder) that its rules do not see, and with
    the text that they see before the rest.
    """

    files: tuple[tuple[int, str, IgnoreFile], ...] = ()

    @property
    def room(self) -> int:
        """The number of further rules with inner wildcards that a file may have."""
        used = sum(rules.n_expressions for _, _, rules in self.files)
        return max(0, MOST_EXPRESSIONS - used)

    def entered(self, folder: str, rules: IgnoreFile | None) -> IgnoreStack:
        """Return the stack inside `folder` (relative, empty for the top), with the `rules` of its own `.gitignore`."""
        if rules is None:
            return self
        return IgnoreStack(((len(folder) + 1 if folder else 0, "", rules), *self.files))

    def around(self, below: str, rules: IgnoreFile | None) -> IgnoreStack:
        """Return the stack with rules of a folder above the work folder, in which the work folder's path is `below` (with its slash)."""
        if rules is None:
            return self
        return IgnoreStack(((0, below, rules), *self.files))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether this path (relative to the work folder) is ignored; its folders must be known not to be."""
        name = path.rpartition("/")[2]
        if is_of_version_control(name):
            return True
        for skipped, before, rules in self.files:
            verdict = rules.verdict(before + path[skipped:], is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def ignores_above(self, levels: int) -> bool:
        """Return whether the work folder itself (0 levels) or the folder that many levels above it is ignored."""
        for _, below, rules in self.files:
            parts = below.rstrip("/").split("/")
            path = "/".join(parts[: len(parts) - levels])
            verdict = rules.verdict(path, is_folder=True) if path else None
            if verdict is not None:
                return verdict
        return False


def read_rules(
    name: str, folder: int | None = None, n_expressions: int = MOST_EXPRESSIONS
) -> IgnoreFile | None:
    """Read the rules in a file (of an open folder); None if there are none.

    Args:
        name: the name of the file.
        folder: a descriptor of the folder, or None if the name is a path.
        n_expressions: the largest number of rules with inner wildcards.
    """
    try:
        handle = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        text = os.read(handle, _LIMIT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    finally:
        os.close(handle)
    return IgnoreFile(text, n_expressions)


def outer_rules(root: str) -> IgnoreStack:
    """Read the rules from outside the work folder: those of the repository that contains it.

    If they ignore the work folder itself, it does not belong to that repository, and they do not count.
    """
    above = root
    # It is asked at each scan, and paths as objects would take most of the time.
    while not os.path.exists(os.path.join(above, ".git")):
        if (parent := os.path.dirname(above)) == above:
            return IgnoreStack()
        above = parent
    top = Path(above)
    inner = Path(root).relative_to(top).parts
    stack = IgnoreStack().around(
        "".join(f"{part}/" for part in inner), read_rules(str(top / ".git" / "info" / "exclude"))
    )
    for depth in range(len(inner)):
        below = "".join(f"{part}/" for part in inner[depth:])
        rules = read_rules(str(top.joinpath(*inner[:depth], RULES_NAME)))
        stack = stack.around(below, rules)
        if stack.ignores_above(len(inner) - depth - 1):
            return IgnoreStack()
    return stack
