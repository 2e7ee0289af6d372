"""Grep: lines, files or counts that match a regular expression."""

from __future__ import annotations

import asyncio
import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from kimi_tui.tools.base import Tool, ToolEnv, ToolOutcome
from kimi_tui.tools.description import description_beside
from kimi_tui.tools.files import look, missing, parent_of
from kimi_tui.tools.grep_engine import FILE_TYPES, LIMIT_S, Found, Query, search
from kimi_tui.tools.nearest import nearest_words
from kimi_tui.tools.permission import ask_to_read, told_like_reading
from kimi_tui.tools.place import Place, locate
from kimi_tui.tools.problem import ToolProblem

_OUTPUT_CHARS = 50_000
_LINE_CHARS = 500
_MAX_CONTEXT = 50
_NUMBERED = re.compile(r"(\d+)([:-])(.*)", re.DOTALL)


class GrepParams(BaseModel):
    """What to search, where, and what to tell."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    pattern: str = Field(description="A regular expression (Rust syntax).", min_length=1)
    path: str = Field(default=".", description="A file or folder; the work folder if left out.")
    glob: str = Field(default="", description="Only files that match, for example `*.py`.")
    type: str = Field(default="", description="Only files of a type, for example `py` or `ts`.")
    output_mode: Literal["content", "files_with_matches", "count"] = Field(
        default="files_with_matches",
        description="`files_with_matches` lists paths, `content` the lines, `count` lines per file.",
    )
    context: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines to show before and after each match (`content` only).",
        validation_alias=AliasChoices("context", "-C"),
    )
    before: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines to show before each match.",
        validation_alias=AliasChoices("before", "-B"),
    )
    after: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines to show after each match.",
        validation_alias=AliasChoices("after", "-A"),
    )
    ignore_case: bool = Field(
        default=False,
        description="Take capitals and small letters as equal.",
        validation_alias=AliasChoices("ignore_case", "-i"),
    )
    line_number: bool = Field(
        default=True,
        description="Show the number of each line (`content` only).",
        validation_alias=AliasChoices("line_number", "-n"),
    )
    multiline: bool = Field(
        default=False, description="Let a match go over line ends; `.` matches them too."
    )
    head_limit: int = Field(
        default=250, ge=1, le=2000, description="How many lines of the answer to give."
    )
    offset: int = Field(default=0, ge=0, description="How many lines of the answer to pass over.")

    @field_validator("output_mode", mode="before")
    @classmethod
    def _spelling(cls, value: object) -> object:
        return "count" if value == "count_matches" else value


class Grep(Tool[GrepParams]):
    """Searches in the text of files."""

    name: ClassVar[str] = "Grep"
    changes: ClassVar[bool] = False
    params = GrepParams

    @property
    def description(self) -> str:
        """What the model is told."""
        return description_beside(__file__)

    async def run(self, params: GrepParams, env: ToolEnv) -> ToolOutcome:
        """Search; asks first outside the work folder."""
        suffixes = _suffixes(params.type)
        place = await asyncio.to_thread(locate, params.path, env.work_dir, env.environ)
        async with told_like_reading(place, env):
            is_folder = await asyncio.to_thread(_is_folder, place)
        await ask_to_read(place, env, folder=is_folder)
        query = Query(
            pattern=params.pattern,
            root=_root(place),
            cwd=place.root,
            mode=params.output_mode,
            globs=(params.glob,) if params.glob else suffixes,
            ignore_case=params.ignore_case,
            multiline=params.multiline,
            before=params.before or params.context,
            after=params.after or params.context,
            max_count=params.offset + params.head_limit + 1,
        )
        found = await search(query, env.environ)
        # Several globs widen each other: with a glob, the type is applied to the answer.
        narrowed = suffixes if params.glob else ()
        return await asyncio.to_thread(_outcome, params, found, narrowed)


def _suffixes(type_name: str) -> tuple[str, ...]:
    if not type_name:
        return ()
    known = FILE_TYPES.get(type_name.casefold())
    if known is None:
        near = nearest_words(type_name, FILE_TYPES)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ToolProblem(
            f"`type` {type_name!r} is not known.{hint} Use `glob`, for example `*.{type_name}`.",
            brief="bad type",
        )
    return known


def _is_folder(place: Place) -> bool:
    if place.real.is_dir():
        return True
    # A pipe or a device would be waited for: only a regular file may be searched.
    with parent_of(place) as folder:
        if look(place.real.name, folder, place) is None:
            raise missing(place)
    return False


def _root(place: Place) -> str:
    if not place.inside:
        return str(place.real)
    relative = place.real.relative_to(place.root)
    return "." if relative == Path() else f"./{relative.as_posix()}"


def _only(text: str, suffixes: tuple[str, ...], *, per_line: bool) -> str:
    """The engine's answer with only the files of a type."""
    end = "\n" if per_line else "\0"
    return end.join(
        record
        for record in text.split(end)
        if any(
            fnmatch.fnmatchcase(record.partition("\0")[0].rpartition("/")[2], suffix)
            for suffix in suffixes
        )
    )


@dataclass(slots=True)
class _Answer:
    """The engine's lines as the model reads them."""

    lines: list[str]
    n_files: int = 0
    n_matches: int = 0


def _outcome(params: GrepParams, found: Found, suffixes: tuple[str, ...]) -> ToolOutcome:
    text = found.output.decode("utf-8", "replace")
    if suffixes:
        text = _only(text, suffixes, per_line=params.output_mode != "files_with_matches")
    if params.output_mode == "files_with_matches":
        answer = _files(text)
    elif params.output_mode == "count":
        answer = _counts(text)
    else:
        answer = _content(text, params)
    facts: list[str] = []
    shown, cut = _window(answer.lines, params)
    if answer.n_files == 0:
        facts.append("No match.")
    elif not shown:
        facts.append(f"offset {params.offset} is past the end of the answer.")
    else:
        facts.append(_total(params, answer))
    if cut:
        next_offset = params.offset + len(shown)
        facts.append(f"More follows: go on with offset={next_offset}, or narrow the search.")
    if found.out_of_time:
        facts.append(f"Stopped after {LIMIT_S:.0f} s; there may be more. Narrow the path or glob.")
    if found.too_much:
        facts.append("There is far more than can be shown. Narrow the search.")
    brief = "no match" if answer.n_files == 0 else _total(params, answer).rstrip(".")
    return ToolOutcome(
        output="\n".join(shown),
        message=" ".join(facts),
        is_error=found.out_of_time and not shown,
        brief="out of time" if found.out_of_time and not shown else brief,
    )


def _total(params: GrepParams, answer: _Answer) -> str:
    files = "1 file" if answer.n_files == 1 else f"{answer.n_files:,} files"
    if params.output_mode == "files_with_matches":
        return f"{files}."
    lines = "1 line" if answer.n_matches == 1 else f"{answer.n_matches:,} lines"
    return f"{lines} in {files}."


def _window(lines: list[str], params: GrepParams) -> tuple[list[str], bool]:
    shown: list[str] = []
    size = 0
    for line in lines[params.offset : params.offset + params.head_limit]:
        size += len(line) + 1
        if size > _OUTPUT_CHARS and shown:
            break
        shown.append(line)
    return shown, params.offset + len(shown) < len(lines)


def _short(path: str) -> str:
    return path.removeprefix("./")


def _files(text: str) -> _Answer:
    paths = [_short(path.strip("\n")) for path in text.split("\0") if path.strip("\n")]
    return _Answer(paths, n_files=len(paths))


def _counts(text: str) -> _Answer:
    answer = _Answer([])
    for line in text.split("\n"):
        path, _, count = line.partition("\0")
        if count.isdigit():
            answer.lines.append(f"{_short(path)}:{count}")
            answer.n_files += 1
            answer.n_matches += int(count)
    return answer


def _content(text: str, params: GrepParams) -> _Answer:
    """The lines under a heading for each file, `12:` before a match, `12-` before a line around it."""
    answer = _Answer([])
    current = ""
    parted = False
    with_context = bool(params.context or params.before or params.after)
    for line in text.split("\n"):
        if line == "--":
            parted = True
            continue
        path, separator, rest = line.partition("\0")
        numbered = _NUMBERED.match(rest)
        if not separator or numbered is None:
            continue
        if path != current:
            if current:
                answer.lines.append("")
            answer.lines.append(_short(path))
            answer.n_files += 1
            current = path
        elif parted and with_context:
            answer.lines.append("--")
        parted = False
        number, mark, content = numbered.groups()
        answer.n_matches += mark == ":"
        if len(content) > _LINE_CHARS:
            content = content[:_LINE_CHARS] + " …"
        answer.lines.append(f"{number}{mark}{content}" if params.line_number else content)
    return answer
