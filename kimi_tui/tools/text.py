"""Text of files for tools: decoding and encoding, windows of numbered lines, sizes, and the nearest match of a name or passage.

Decoding is reversible, so that an edit leaves the rest of a file unchanged byte for byte: a file is decoded by its byte order
mark (UTF-16, UTF-32) or as UTF-8, with invalid bytes as lone surrogates; line endings and the mark are kept. The memory of a
`LineWindow` does not depend on the size of the file. The searches for the name or passage that the model probably meant are
bounded: a huge folder or a hostile text takes a fraction of a second.
"""

from __future__ import annotations

import bisect
import codecs
import difflib
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kimi_tui.display_names import counted
from kimi_tui.text_encoding import UTF8, encoding_name, encoding_of
from kimi_tui.tools.outcome import ToolProblem

PROBE_BYTES = 8192
_BOM = "\ufeff"
_LOST = "\ufffd"
_ODD_BYTE = re.compile("[\udc80-\udcff]")
_LINE_END = re.compile("\r?\n")
_MAGIC = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (codecs.BOM_UTF16_LE, "broken UTF-16 text"),
    (codecs.BOM_UTF16_BE, "broken UTF-16 text"),
)


def binary_kind(start: bytes) -> str:
    """Name the kind of binary file that begins like this, for a sentence; empty if the bytes look like text."""
    if encoding_of(start, is_whole=len(start) != PROBE_BYTES) != UTF8:
        return ""
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    return "a binary file" if b"\0" in start[:PROBE_BYTES] else ""


def decode(data: bytes) -> str:
    """Return the text of a file; `encode` with `encoding_of(data)` reverses it. A byte order mark stays in the text as U+FEFF."""
    encoding = encoding_of(data)
    return data.decode(encoding, "surrogateescape" if encoding == UTF8 else "strict")


def encode(text: str, encoding: str = UTF8) -> bytes:
    """Return the bytes of a text.

    Args:
        text: the text, with U+FEFF at its start if the file has a byte order mark.
        encoding: the encoding, as `encoding_of` names it.

    Raises:
        ToolProblem: the text has a lone surrogate that did not come from a file.
    """
    try:
        return text.encode(encoding, "surrogateescape" if encoding == UTF8 else "strict")
    except UnicodeEncodeError as error:
        raise ToolProblem(
            "The text has half of a surrogate pair, which a file cannot contain. Leave it out."
        ) from error


def as_utf8_lines(data: bytes) -> tuple[bytes, list[str]]:
    """Return a whole text file as UTF-8 with line feeds, without a byte order mark, and sentences about the differences.

    CR LF stays, as readers of lines remove it; the line ends of a file with CR alone become LF.
    """
    facts: list[str] = []
    encoding = encoding_of(data)
    if encoding != UTF8:
        data = data.decode(encoding).encode()
        facts.append(f"The file is {encoding_name(encoding)} text, and stays so when it is edited.")
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\r" in data and b"\n" not in data:
        data = data.replace(b"\r", b"\n")
        facts.append("Lines end with CR.")
    return data, facts


def for_display(text: str) -> str:
    """Return the text as diffs show it: line feeds only, undecodable bytes as U+FFFD, no byte order mark."""
    shown = with_line_end(text.removeprefix(_BOM), "\n")
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def unseen_changes(before: str, after: str) -> str:
    """Describe the change of a file's bytes if its lines look the same (see `for_display`); empty if there is none.

    Args:
        before: the decoded text of the file.
        after: the new text.
    """
    facts: list[str] = []
    if before.startswith(_BOM) != after.startswith(_BOM):
        facts.append(
            "the byte order mark is removed"
            if before.startswith(_BOM)
            else "a byte order mark is added"
        )
    old, new = before.removeprefix(_BOM), after.removeprefix(_BOM)
    if "\r\n" in old or "\r\n" in new or not encodable(old):
        # The removed and added lines are compared by their looks.
        gone = Counter(old.split("\n"))
        gone.subtract(Counter(new.split("\n")))
        come = Counter(for_display(f"{line}\n") for line, n in gone.items() for _ in range(-n))
        n_ends = n_bytes = n_odd = 0
        for line in (line for line, n in gone.items() for _ in range(n)):
            shown = for_display(f"{line}\n")
            come[shown] -= 1
            if encodable(line):
                n_ends += come[shown] >= 0
            else:
                n_odd += 1
                n_bytes += come[shown] >= 0
        if _wrote_what_it_read(gone):
            n_lost = sum(-n for line, n in gone.items() if n < 0 and _LOST in line)
            n_bytes = max(n_bytes, min(n_odd, n_lost))
        if n_bytes:
            lines = "1 line is" if n_bytes == 1 else f"{n_bytes:,} lines are"
            facts.append(f"{lines} not UTF-8: the edit replaces those bytes with �")
        if n_ends:
            facts.append("the edit changes line endings (CRLF or LF)")
    return "; ".join(facts)


def _wrote_what_it_read(gone: Counter[str]) -> bool:
    """Return whether U+FFFD replaces undecodable bytes, even in lines that otherwise changed.

    Args:
        gone: the number of removals of each line; negative for added lines.
    """
    if sum(n * line.count(_LOST) for line, n in gone.items()) >= 0:
        return False
    return sum(n * len(_ODD_BYTE.findall(line)) for line, n in gone.items()) > 0


_OUR_TAGS = re.compile(r"<(/?system)", re.IGNORECASE)


def without_our_tags(text: str) -> str:
    """Return a foreign text in which the tags of this program's own words to the model mean nothing."""
    return _OUR_TAGS.sub(r"<\\\1", text)


def encodable(text: str) -> bool:
    """Return whether the text came from valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def line_end(text: str) -> str:
    """Return the most frequent line end: CR LF, LF, or CR if there is no LF at all; LF for a text of one line."""
    n_crlf = text.count("\r\n")
    if n_crlf and n_crlf * 2 >= text.count("\n"):
        return "\r\n"
    return "\r" if "\r" in text and "\n" not in text else "\n"


def with_line_end(text: str, end: str) -> str:
    """Return the text with `end` as the end of every line. A CR alone counts as a line end only if there is no LF at all."""
    if "\r" in text:
        text = text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")
    return text if end == "\n" else text.replace("\n", end)


def with_format_of(old: str, new: str) -> str:
    """Return `new` as a replacement of the whole text `old`: with its line endings, byte order mark and final newline."""
    end = line_end(old)
    if end != "\n":
        new = with_line_end(new, end)
    if old.startswith(_BOM) and not new.startswith(_BOM):
        new = _BOM + new
    if old.endswith(end) and new and not new.endswith(end):
        new += end
    return new


class LineEndView:
    """A text with mixed line ends, seen with LF alone, for replacing passages.

    Attributes:
        text: the text as it is seen: every line ends with LF.
    """

    def __init__(self, original: str) -> None:
        self._original = original
        self._end = line_end(original)
        self.text = with_line_end(original, "\n")
        # Each CR LF before a place moves it by one character; a CR alone became one LF and moves nothing.
        is_shorter = len(self.text) != len(original)
        crlf = re.finditer("\r\n", original) if is_shorter else ()
        self._shifts = [found.start() - n for n, found in enumerate(crlf)]

    def replaced(self, old: str, new: str) -> str:
        """Return the original text with every `old` replaced by `new`, both written with LF.

        Unchanged lines at the beginning and the end of a passage keep their line ends; the others get the most frequent one
        of the passage, else that of the next line.
        """
        if self._end == "\n" and not self._shifts:
            return self._original.replace(old, new)
        pieces: list[str] = []
        done = 0
        position = self.text.find(old)
        while position >= 0:
            start, stop = self._offset(position), self._offset(position + len(old))
            pieces += [self._original[done:start], self._in_ends_of(start, stop, new)]
            done = stop
            position = self.text.find(old, position + len(old))
        return "".join([*pieces, self._original[done:]])

    def _offset(self, position: int) -> int:
        """Return the place in the original of a place in `text`."""
        return position + bisect.bisect_left(self._shifts, position)

    def _in_ends_of(self, start: int, stop: int, new: str) -> str:
        passage = self._original[start:stop]
        ends = _LINE_END.findall(passage) if self._end != "\r" else ["\r"] * passage.count("\r")
        olds, news = with_line_end(passage, "\n").split("\n"), new.split("\n")
        if len(olds) == len(news):
            made = ends
        else:
            # The line end of a passage's last line comes after the passage.
            n_same = _n_equal(olds[:-1], news[:-1])
            n_behind = _n_equal(olds[n_same:-1][::-1], news[n_same:-1][::-1])
            common = line_end(passage) if ends else self._next_end(stop)
            n_between = len(news) - 1 - n_same - n_behind
            made = [*ends[:n_same], *[common] * n_between, *ends[len(ends) - n_behind :]]
        return "".join(line + end for line, end in zip(news, [*made, ""], strict=True))

    def _next_end(self, position: int) -> str:
        found = _LINE_END.search(self._original, position) if self._end != "\r" else None
        return found[0] if found else self._end


def _n_equal(some: list[str], others: list[str]) -> int:
    """Return the number of equal lines from the start on."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(some), len(others)))


def format_size(n_bytes: int) -> str:
    """Return a size in words: `840 bytes`, `12.3 kB`, `4.1 MB`."""
    if n_bytes < 1000:
        return counted(n_bytes, "byte")
    value = n_bytes / 1000
    for unit in ("kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{n_bytes} bytes"


LINE_CHARS = 2000
WINDOW_BYTES = 100 * 1024
_LINE_BYTES = LINE_CHARS * 4


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """One line without its end. `cut` is true if it was longer than the shown part."""

    number: int
    text: str
    cut: bool


class LineWindow:
    """Collects `count` lines from line `first` on, and counts all lines that pass.

    Attributes:
        limit_bytes: the largest number of bytes to collect.
        lines: the collected lines.
        full: true if the byte limit ended the collecting before `count` lines.
        n_crlf: the number of collected lines that ended with CR LF.
        n_ended: the number of collected lines whose end was read, which excludes shortened ones.
        invalid: whether a collected line had bytes that are not UTF-8.
    """

    def __init__(self, first: int, count: int, limit_bytes: int = WINDOW_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.lines: list[NumberedLine] = []
        self.full = False
        self.n_crlf = 0
        self.n_ended = 0
        self.invalid = False
        self._first = first
        self._last = first + count - 1
        self._number = 1
        self._open = False
        self._kept = bytearray()
        self._length = 0
        self._window_bytes = 0

    @property
    def done(self) -> bool:
        """Whether no more lines will be collected."""
        return self.full or self._number > self._last

    @property
    def total(self) -> int:
        """The number of lines so far; one without a line end counts."""
        return self._number - 1 + self._open

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, split anywhere."""
        if not chunk:
            return
        position = self._skip_to_first(chunk)
        while position < len(chunk) and not self.done:
            end = chunk.find(b"\n", position)
            stop = end if end >= 0 else len(chunk)
            room = _LINE_BYTES + 1 - len(self._kept)
            self._kept += chunk[position : min(stop, position + max(room, 0))]
            self._length += stop - position
            position = stop
            if end >= 0:
                self._close()
                self._number += 1
                position = end + 1
        if position < len(chunk):
            self._number += chunk.count(b"\n", position)
        self._open = not chunk.endswith(b"\n")

    def finish(self) -> None:
        """End the stream; a last line without a line end counts as a line."""
        if self._open and self._first <= self._number and not self.done:
            self._close(at_end=True)

    def _skip_to_first(self, chunk: bytes) -> int:
        if self._number >= self._first:
            return 0
        passed = chunk.count(b"\n")
        if self._number + passed < self._first:
            self._number += passed
            return len(chunk)
        position = 0
        while self._number < self._first:
            position = chunk.index(b"\n", position) + 1
            self._number += 1
        return position

    def _close(self, *, at_end: bool = False) -> None:
        raw = bytes(self._kept)
        self.n_ended += self._length <= _LINE_BYTES and not at_end
        # If the line was cut, its CR is beyond the kept part.
        if self._length <= _LINE_BYTES and raw.endswith(b"\r"):
            raw = raw[:-1]
            self.n_crlf += 1
        text = raw[:_LINE_BYTES].decode("utf-8", "replace")
        cut = self._length > _LINE_BYTES or len(text) > LINE_CHARS
        if "\ufffd" in text and not cut:
            self.invalid = True
        text = text[:LINE_CHARS]
        size = len(text.encode("utf-8")) + 1
        self._kept.clear()
        self._length = 0
        if self._window_bytes + size > self.limit_bytes and self.lines:
            self.full = True
            return
        self._window_bytes += size
        self.lines.append(NumberedLine(self._number, text, cut))


_NAMES_LIMIT = 5000
_LINES_LIMIT = 20_000
_PASSAGE_LINES = 20
_LINE_CHARS = 200
_SEARCH_S = 0.25


def nearest_words(wanted: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return those of `known` that look most like `wanted`, ignoring case."""
    by_fold = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(wanted.casefold(), list(by_fold), n=limit, cutoff=0.55)
    return [by_fold[match] for match in matches]


def nearest_names(wanted: str, folder: Path) -> list[str]:
    """Return the names in the folder that look like `wanted`; empty if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _NAMES_LIMIT)
            ]
    except OSError:
        return []
    return nearest_words(wanted, names)


def nearest_passage(text: str, wanted: str) -> str:
    """Return the lines of `text` that look most like `wanted`, each with its number; empty if none is similar."""
    lines = text.split("\n")[:_LINES_LIMIT]
    asked = [line.strip() for line in wanted.strip("\n").split("\n")][:_LINES_LIMIT]
    start = _start_by_equal_lines(lines, asked)
    if start is None:
        start = _start_by_alike_line(lines, asked)
    if start is None:
        return ""
    shown = lines[start : start + min(max(len(asked), 1), _PASSAGE_LINES)]
    return "\n".join(f"{start + i + 1:>6}\t{line[:_LINE_CHARS]}" for i, line in enumerate(shown))


def _start_by_equal_lines(lines: list[str], asked: list[str]) -> int | None:
    """Find the start at which most lines are equal, ignoring the blanks around them: each equal line votes for a start."""
    places: dict[str, list[int]] = {}
    for offset, line in enumerate(asked):
        if len(line) > 1:
            places.setdefault(line, []).append(offset)
    votes: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in places.get(line.strip(), ())[:8]:
            votes[max(number - offset, 0)] += 1
    if not votes:
        return None
    most = max(votes.values())
    return min(start for start, count in votes.items() if count == most)


def _start_by_alike_line(lines: list[str], asked: list[str]) -> int | None:
    longest = max(range(len(asked)), key=lambda i: len(asked[i]), default=0)
    if not asked or not asked[longest]:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(asked[longest][:_LINE_CHARS])
    best, found = 0.6, None
    deadline = time.monotonic() + _SEARCH_S
    for number, line in enumerate(lines):
        if time.monotonic() > deadline:
            break
        matcher.set_seq1(line.strip()[:_LINE_CHARS])
        if matcher.real_quick_ratio() <= best or matcher.quick_ratio() <= best:
            continue
        ratio = matcher.ratio()
        if ratio > best:
            best, found = ratio, max(number - longest, 0)
    return found
