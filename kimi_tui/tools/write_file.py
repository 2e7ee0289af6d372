"""WriteFile: create a file, replace all of it, or add to its end."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools import text as texts
from kimi_tui.tools.base import Tool, ToolEnv, ToolOutcome, ToolProblem
from kimi_tui.tools.file_edit import change_file
from kimi_tui.tools.files import HASHED_LIMIT_BYTES, Content
from kimi_tui.tools.paths import ResolvedPath


class WriteFileParams(BaseModel):
    """What to write where."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="The file, from the work folder or absolute.")
    content: str = Field(description="The text to write.")
    mode: Literal["overwrite", "append"] = Field(
        default="overwrite",
        description="`overwrite` replaces the whole file, `append` adds to its end.",
    )


class WriteFile(Tool[WriteFileParams]):
    """Writes whole files."""

    name: ClassVar[str] = "WriteFile"
    changes: ClassVar[bool] = True
    params = WriteFileParams

    async def run(self, params: WriteFileParams, env: ToolEnv) -> ToolOutcome:
        """Write it, with the user's yes."""

        def compute(target: ResolvedPath, content: Content | None) -> str:
            return _new_text(params, target, content)

        edit = await change_file(params.path, compute, env)
        n_lines = len(edit.after.splitlines())
        lines = "1 line" if n_lines == 1 else f"{n_lines} lines"
        verb = "Created" if edit.before is None else "Wrote"
        if params.mode == "append" and edit.before is not None:
            verb = "Appended to"
        return ToolOutcome(
            message=f"{verb} {edit.path}; it has {lines} now.",
            brief=lines if verb != "Appended to" else f"{lines} now",
            effects=(edit,),
        )


def _new_text(params: WriteFileParams, target: ResolvedPath, content: Content | None) -> str:
    if content is None:
        return params.content
    too_large = content.stat.st_size > HASHED_LIMIT_BYTES
    if params.mode == "append":
        if too_large:
            size = texts.format_size(HASHED_LIMIT_BYTES)
            raise ToolProblem(
                f"{target.written} is larger than {size}: append with Shell instead.",
                brief="too large",
            )
        old = texts.decode(content.data)
        return old + (texts.to_crlf(params.content) if texts.uses_crlf(old) else params.content)
    if too_large or texts.binary_kind(content.data):
        return params.content
    return texts.with_format_of(texts.decode(content.data), params.content)
