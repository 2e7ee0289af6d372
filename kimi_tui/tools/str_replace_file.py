"""StrReplaceFile: replace exact passages of a file, all of the edits or none."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kimi_tui.tools import text as texts
from kimi_tui.tools.base import (
    FileEdit,
    Tool,
    ToolEnv,
    ToolOutcome,
    ToolProblem,
)
from kimi_tui.tools.file_edit import change_file
from kimi_tui.tools.files import HASHED_LIMIT_BYTES, Content, missing
from kimi_tui.tools.paths import ResolvedPath
from kimi_tui.tools.text import nearest_passage

LIMIT_S = 20.0
"""How long the edits of one call may take to be made."""
_PLACES_NAMED = 8


class Edit(BaseModel):
    """One replacement."""

    model_config = ConfigDict(extra="forbid")

    old: str = Field(
        description="The text to find, exactly as it is in the file, with its indentation. Must be unique."
    )
    new: str = Field(description="The text to put in its place; empty removes it.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class StrReplaceFileParams(BaseModel):
    """The file and its edits."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="The file, from the work folder or absolute.")
    edit: list[Edit] = Field(
        description="One or more edits, made in order, each on the result of the one before.",
        min_length=1,
    )

    @field_validator("edit", mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        return [value] if isinstance(value, (dict, Edit)) else value


class StrReplaceFile(Tool[StrReplaceFileParams]):
    """Edits files by exact text."""

    name: ClassVar[str] = "StrReplaceFile"
    changes: ClassVar[bool] = True
    params = StrReplaceFileParams

    async def run(self, params: StrReplaceFileParams, env: ToolEnv) -> ToolOutcome:
        """Make all edits, with the user's yes, or none."""
        counts: list[int] = []
        stopped = threading.Event()

        def compute(target: ResolvedPath, content: Content | None) -> str:
            text = _editable(target, content)
            deadline = time.monotonic() + LIMIT_S
            for number, edit in enumerate(params.edit, start=1):
                which = f"Edit {number} of {len(params.edit)}: " if len(params.edit) > 1 else ""
                if stopped.is_set() or time.monotonic() > deadline:
                    raise ToolProblem(
                        f"{number - 1:,} of {len(params.edit):,} edits took {LIMIT_S:.0f} s. Nothing was written: "
                        "make fewer at once, or change the file with Shell.",
                        brief="out of time",
                    )
                text, count = replaced(text, edit, which)
                counts.append(count)
            return text

        try:
            edit = await change_file(params.path, compute, env)
        finally:
            # The thread that computes cannot be ended from here; it is not to go on for nobody.
            stopped.set()
        n_replaced = sum(counts)
        times = "1 replacement" if n_replaced == 1 else f"{n_replaced} replacements"
        return ToolOutcome(
            message=f"Edited {edit.path}: {times}.", brief=_counts(edit), effects=(edit,)
        )


def _counts(edit: FileEdit) -> str:
    n_after, n_before = edit.after.count("\n"), (edit.before or "").count("\n")
    difference = n_after - n_before
    if difference == 0:
        return "edited"
    return f"{'+' if difference > 0 else '−'}{abs(difference)} line{'' if abs(difference) == 1 else 's'}"


def _editable(target: ResolvedPath, content: Content | None) -> str:
    if content is None:
        raise missing(target)
    size = texts.format_size(content.stat.st_size)
    if content.stat.st_size > HASHED_LIMIT_BYTES:
        raise ToolProblem(
            f"{target.written} has {size}, too large to edit here; use Shell.", brief="too large"
        )
    if kind := texts.binary_kind(content.data):
        raise ToolProblem(
            f"{target.written} is {kind} ({size}) and cannot be edited as text.", brief="binary"
        )
    return texts.decode(content.data)


def replaced(text: str, edit: Edit, which: str = "") -> tuple[str, int]:
    """The text after one edit, and how many places it changed.

    Raises:
        ToolProblem: nothing to find, not found, or not unique.
    """
    if not edit.old:
        raise ToolProblem(
            f"{which}`old` is empty; to create or rewrite a file use WriteFile.", brief="empty text"
        )
    if edit.old == edit.new:
        raise ToolProblem(
            f"{which}`old` and `new` are the same; nothing would change.", brief="no change"
        )
    old, new = _as_in(text, edit)
    count = text.count(old)
    if count == 0:
        raise ToolProblem(which + _not_found(text, edit.old), brief="text not found")
    if count > 1 and not edit.replace_all:
        lines = ", ".join(str(line) for line in _lines_of(text, old))
        more = ", …" if count > _PLACES_NAMED else ""
        raise ToolProblem(
            f"{which}`old` is not unique: it occurs {count} times, at lines {lines}{more}. Add surrounding lines "
            "to make it unique, or set `replace_all`.",
            brief=f"{count} matches",
        )
    if len(text) + count * (len(new) - len(old)) > HASHED_LIMIT_BYTES * 4:
        raise ToolProblem(
            f"{which}the file would become larger than {texts.format_size(HASHED_LIMIT_BYTES * 4)}; use Shell.",
            brief="too large",
        )
    return text.replace(old, new), count


def _as_in(text: str, edit: Edit) -> tuple[str, str]:
    """The edit with the line endings of the passage that it means."""
    crlf = (texts.to_crlf(edit.old), texts.to_crlf(edit.new))
    plain = (edit.old, edit.new)
    manners = (crlf, plain) if texts.uses_crlf(text) else (plain, crlf)
    for old, new in manners:
        if old in text:
            return old, new
    # The last line of a file without a final newline: the model wrote one after it.
    for old, new in manners:
        for end in ("\r\n", "\n"):
            if old.endswith(end) and len(old) > len(end) and text.endswith(old[: -len(end)]):
                return old[: -len(end)], new.removesuffix(end)
    return manners[0]


def _lines_of(text: str, old: str) -> list[int]:
    lines: list[int] = []
    position = text.find(old)
    number, counted = 1, 0
    while position >= 0 and len(lines) < _PLACES_NAMED:
        number += text.count("\n", counted, position)
        counted = position
        lines.append(number)
        position = text.find(old, position + len(old))
    return lines


def _not_found(text: str, old: str) -> str:
    passage = nearest_passage(texts.for_display(text), texts.for_display(old))
    if not passage:
        return "`old` was not found in the file, nor anything like it. Read the file again."
    return f"`old` was not found. The nearest passage in the file is:\n{passage}\nCopy the text exactly, with its blanks."
