"""Display blocks of tool results (diffs, commands, todo lists, images): plain values, and their JSON in `wire.jsonl`.

The shapes are kimi-cli's with a few keys of our own. A diff becomes one kimi-cli `diff` block for each run of
neighbouring lines; `signs` beside it says which line is which, so that reading gives back exactly what was written.
Blocks of another program are read as far as they can be understood. The checks of numbers are shared with `codec`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line

if TYPE_CHECKING:
    from kimi_tui.images import Image


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One row of a diff. `number` is the line's number on its own side, counted from 1."""

    sign: Literal[" ", "-", "+"]
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A change of one file. `lines` may be cut; `added` and `removed` always count the whole change."""

    path: str
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    created: bool = False


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A command that ran. `exit_code` is None where it was stopped or never ended."""

    command: str
    exit_code: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the agent's list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoBlock:
    """The whole list as it is after the call."""

    items: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class BriefBlock:
    """A fact in a few words for the right side of a card: `184 lines`, `6 files`, `no such file`."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image that went to the model, by its facts: what it shows is stored once, in the session, under its hash.

    Attributes:
        name: what the user knows it by, one clean line; empty where an older record only counts.
        media_type: `image/png` or the like.
        width, height: in pixels, as it was sent.
        n_bytes: its size.
        sha256: its hash in hexadecimal.
    """

    name: str = ""
    media_type: str = ""
    width: int = 0
    height: int = 0
    n_bytes: int = 0
    sha256: str = ""

    @classmethod
    def of(cls, image: Image) -> ImageBlock:
        """The facts of an image, as they are read again where they were written."""
        name, n_bytes = one_line(image.name[:_MAX_WORD]), len(image.data)
        return cls(name, image.media_type, image.width, image.height, n_bytes, image.sha256)

    @property
    def label(self) -> str:
        """It in a few words: `image shot.png 640x480`."""
        size = f"{self.width}x{self.height}" if self.width else ""
        return " ".join(word for word in ("image", self.name, size) if word)


def with_names(text: str, images: Sequence[ImageBlock]) -> str:
    """A text with the images that go with it by name, each on a line of its own."""
    names = [f"[{image.label}]" for image in images]
    return "\n".join([text, *names] if text.strip() else names or [text])


DisplayBlock = DiffBlock | ShellBlock | TodoBlock | BriefBlock | ImageBlock


Json = dict[str, Any]
_MAX_FOREIGN_LINES = 400
_SIGNS = frozenset(" -+")
_MAX_WORD = 200
_MAX_COUNTED = 100


def encode_display(blocks: Sequence[DisplayBlock]) -> list[Json]:
    """The blocks as JSON objects."""
    return [record for block in blocks for record in _encode_one(block)]


def decode_display(records: object) -> tuple[DisplayBlock, ...]:
    """The blocks that these objects say; what cannot be read is passed over."""
    if not isinstance(records, list):
        return ()
    blocks: list[DisplayBlock] = []
    for record in cast("list[object]", records):
        block = _decode_one(cast("Mapping[str, object]", record)) if _is_object(record) else None
        if block is None:
            continue
        before = blocks[-1] if blocks else None
        if (
            isinstance(block, DiffBlock)
            and isinstance(before, DiffBlock)
            and before.path == block.path
            and _continues(record)
        ):
            blocks[-1] = DiffBlock(
                before.path,
                before.added + block.added,
                before.removed + block.removed,
                before.lines + block.lines,
                before.created,
            )
        else:
            blocks.append(block)
    return tuple(blocks)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _continues(record: object) -> bool:
    return cast("Mapping[str, object]", record).get("first") is not True


def _encode_one(block: DisplayBlock) -> Iterator[Json]:
    match block:
        case BriefBlock(text):
            yield {"type": "brief", "text": text}
        case ShellBlock(command, exit_code, duration_s):
            yield {
                "type": "shell",
                "language": "bash",
                "command": command,
                "exit_code": exit_code,
                "duration_s": duration_s,
            }
        case TodoBlock(items):
            rows = [{"title": item.title, "status": item.status} for item in items]
            yield {"type": "todo", "items": rows}
        case ImageBlock():
            yield {"type": "image", **asdict(block)}
        case DiffBlock():
            yield from _encode_diff(block)


def _encode_diff(block: DiffBlock) -> Iterator[Json]:
    for position, run in enumerate(_runs(block.lines) or [()]):
        old = [line for line in run if line.sign != "+"]
        new = [line for line in run if line.sign != "-"]
        record: Json = {
            "type": "diff",
            "path": block.path,
            "old_text": "\n".join(line.text for line in old),
            "new_text": "\n".join(line.text for line in new),
            "old_start": next((line.number for line in run if line.sign == "-"), 1),
            "new_start": next((line.number for line in run if line.sign != "-"), 1),
            "is_summary": False,
            "signs": "".join(line.sign for line in run),
            # The whole count stands with the first run: lines may have been left out.
            "added": block.added if position == 0 else 0,
            "removed": block.removed if position == 0 else 0,
        }
        if position == 0:
            record["first"] = True
            record["created"] = block.created
        yield record


def _runs(lines: Sequence[DiffLine]) -> list[tuple[DiffLine, ...]]:
    """The lines cut wherever a number does not follow from the one before on its side."""
    runs: list[tuple[DiffLine, ...]] = []
    current: list[DiffLine] = []
    next_old: int | None = None
    next_new: int | None = None
    for line in lines:
        expected = next_old if line.sign == "-" else next_new
        # A newline within a text (never made by us) would shift all that follows: alone in a run it does no harm.
        if current and expected is not None and line.number != expected:
            runs.append(tuple(current))
            current, next_old, next_new = [], None, None
        current.append(line)
        if line.sign == "-":
            next_old = line.number + 1
        else:
            next_new = line.number + 1
            # Old numbers of lines that did not change are not stored; they only go up by one.
            if line.sign == " " and next_old is not None:
                next_old += 1
    if current:
        runs.append(tuple(current))
    return runs


def _decode_one(record: Mapping[str, object]) -> DisplayBlock | None:
    match record.get("type"):
        case "brief":
            text = record.get("text")
            return BriefBlock(text) if isinstance(text, str) else None
        case "shell":
            return _decode_shell(record)
        case "todo":
            return _decode_todo(record)
        case "diff":
            return _decode_diff(record)
        case "image":
            return decode_image(record)
        case _:
            return None


def _decode_shell(record: Mapping[str, object]) -> ShellBlock | None:
    command = record.get("command")
    if not isinstance(command, str):
        return None
    exit_code = record.get("exit_code")
    duration_s = record.get("duration_s")
    return ShellBlock(
        command,
        exit_code if is_whole(exit_code) else None,
        seconds_of(duration_s),
    )


def _decode_todo(record: Mapping[str, object]) -> TodoBlock | None:
    items = record.get("items")
    if not isinstance(items, list):
        return None
    found: list[TodoItem] = []
    for item in cast("list[object]", items):
        if not isinstance(item, dict):
            continue
        row = cast("dict[str, object]", item)
        title, status = row.get("title"), row.get("status")
        if isinstance(title, str) and status in ("pending", "in_progress", "done"):
            found.append(TodoItem(title, status))
    return TodoBlock(tuple(found))


def decode_image(record: Mapping[str, object]) -> ImageBlock:
    """The facts of an image as a record says them, bounded."""
    name, media_type, sha256 = (
        value[:_MAX_WORD] if isinstance(value := record.get(key), str) else ""
        for key in ("name", "media_type", "sha256")
    )
    return ImageBlock(
        one_line(name),
        one_line(media_type),
        _count(record, "width"),
        _count(record, "height"),
        _count(record, "n_bytes"),
        sha256,
    )


def images_of(value: object) -> tuple[ImageBlock, ...]:
    """The images in a record: their facts, or content parts; for a bare count so many blocks without facts."""
    if is_whole(value):
        return (ImageBlock(),) * min(max(0, value), _MAX_COUNTED)
    found: list[ImageBlock] = []
    for one in lenient_json.listing(value):
        record = lenient_json.mapping(one)
        if record.get("type") == "image":
            found.append(decode_image(record))
        elif record.get("type") == "image_url":
            # A content part: of one that is stored, its name says the hash.
            facts = lenient_json.mapping(record.get("image_url"))
            url = facts.get("url")
            stored = PurePosixPath(url) if isinstance(url, str) and len(url) < _MAX_WORD else None
            hashed = stored.stem if stored is not None and stored.parent.name == "images" else ""
            found.append(decode_image({**facts, "sha256": hashed}))
    return tuple(found)


def _decode_diff(record: Mapping[str, object]) -> DiffBlock | None:
    path, old, new = record.get("path"), record.get("old_text"), record.get("new_text")
    if not (isinstance(path, str) and isinstance(old, str) and isinstance(new, str)):
        return None
    old_start, new_start = _positive(record, "old_start"), _positive(record, "new_start")
    signs = record.get("signs")
    if isinstance(signs, str) and set(signs) <= _SIGNS:
        lines = _lines_by_signs(signs, old, new, old_start, new_start)
        added, removed = _count(record, "added"), _count(record, "removed")
        return DiffBlock(path, added, removed, lines, record.get("created") is True)
    return _foreign_diff(path, old, new, old_start, new_start)


def _lines_by_signs(
    signs: str, old: str, new: str, old_start: int, new_start: int
) -> tuple[DiffLine, ...]:
    olds, news = old.split("\n"), new.split("\n")
    at_old = at_new = 0
    number_old, number_new = old_start, new_start
    seen_removed = False
    lines: list[DiffLine] = []
    for sign in signs:
        if sign == "-":
            text = olds[at_old] if at_old < len(olds) else ""
            lines.append(DiffLine("-", number_old, text))
            at_old += 1
            number_old += 1
            seen_removed = True
        else:
            text = news[at_new] if at_new < len(news) else ""
            lines.append(DiffLine(" " if sign == " " else "+", number_new, text))
            at_new += 1
            number_new += 1
            if sign == " ":
                at_old += 1
                if seen_removed:
                    number_old += 1
    return tuple(lines)


def _foreign_diff(path: str, old: str, new: str, old_start: int, new_start: int) -> DiffBlock:
    """kimi-cli's own block: the two texts are the changed place with a few lines around it."""
    olds = old.split("\n") if old else []
    news = new.split("\n") if new else []
    head = 0
    while head < min(len(olds), len(news)) and olds[head] == news[head]:
        head += 1
    tail = 0
    while tail < min(len(olds), len(news)) - head and olds[-1 - tail] == news[-1 - tail]:
        tail += 1
    lines = [DiffLine(" ", new_start + i, news[i]) for i in range(head)]
    lines += [DiffLine("-", old_start + i, olds[i]) for i in range(head, len(olds) - tail)]
    lines += [DiffLine("+", new_start + i, news[i]) for i in range(head, len(news) - tail)]
    lines += [DiffLine(" ", new_start + i, news[i]) for i in range(len(news) - tail, len(news))]
    added, removed = len(news) - head - tail, len(olds) - head - tail
    return DiffBlock(path, added, removed, tuple(lines[:_MAX_FOREIGN_LINES]), not olds)


def _positive(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    return value if is_whole(value) and value > 0 else 1


def _count(record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    return value if is_whole(value) and value >= 0 else 0


# JSON knows no limit for its numbers: one that no float can hold breaks whoever divides by it.
_MAX_WHOLE = 1 << 53
# The year 5138. Some calendars end at 9999, and a time zone moves by a day.
_MAX_SECONDS = 1e11


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number within ±2^53."""
    return type(value) is int and -_MAX_WHOLE <= value <= _MAX_WHOLE


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number within ±2^53, and no NaN."""
    return is_whole(value) or (isinstance(value, float) and -_MAX_WHOLE <= value <= _MAX_WHOLE)


def seconds_of(value: object) -> float:
    """A duration, or a time since 1970, in seconds; 0 where it is no number or one outside the calendar."""
    return float(value) if is_number(value) and 0 <= value <= _MAX_SECONDS else 0.0
