"""`Toolset`: the tools a model may call, their specs, and parsing the arguments of a call and running it.

Whatever the model writes as arguments, the outcome is a text for it: a call never ends the program.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kimi_tui.llm.provider import ToolSpec
from kimi_tui.tools.base import Tool, ToolEnv
from kimi_tui.tools.file_edit import StrReplaceFile, WriteFile
from kimi_tui.tools.glob import Glob
from kimi_tui.tools.grep import Grep
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, ToolRejected, failure
from kimi_tui.tools.read_file import ReadFile
from kimi_tui.tools.session_tools import AskUserQuestion, ExitPlanMode, SendDMail, SetTodoList
from kimi_tui.tools.shell import Shell, TaskOutput, TaskStop
from kimi_tui.tools.text import nearest_words

AnyTool = Tool[Any]

_log = logging.getLogger(__name__)
_ERRORS_NAMED = 5
_VALUE_CHARS = 80
_LONG_CHARS = 32_768
_MOST_ENCODED = 3


class Toolset:
    """Some tools by name, in a fixed order.

    Args:
        tools: the tools.
        lean: whether they are described in few words, for a model with a small window.

    Attributes:
        specs: the tools as they are sent to the model, in order; sent with every request, so that it must not change.
    """

    def __init__(self, tools: Iterable[AnyTool], *, lean: bool = False) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.specs: tuple[ToolSpec, ...] = tuple(
            tool.lean_spec() if lean else tool.spec() for tool in self._tools.values()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._tools)

    def get(self, name: str) -> AnyTool | None:
        """The tool of this name."""
        return self._tools.get(name)

    def without(self, name: str) -> Toolset:
        """A toolset without the tool of that name."""
        return Toolset(tool for tool in self._tools.values() if tool.name != name)

    def lean(self, added: Iterable[str] = ()) -> Toolset:
        """The few tools for a model with a small window, described in few words, and those of `added`.

        Where none of the tools has such a form (`Tool.lean_params`), all of them stay.
        """
        wanted = set(added)
        few = [t for t in self._tools.values() if t.lean_params or t.name in wanted]
        return Toolset(few or self._tools.values(), lean=True)

    def accepts(self, name: str, arguments: str) -> bool:
        """Whether there is a tool of this name, and the arguments (JSON text) fit its parameters."""
        tool = self._tools.get(name)
        return tool is not None and not isinstance(_params(tool, arguments), ToolOutcome)

    async def run(self, name: str, arguments: str | None, env: ToolEnv) -> ToolOutcome:
        """Run one call.

        Args:
            name: the tool, as the model wrote it.
            arguments: its JSON text, as the model wrote it.
            env: what the tool may use.

        Returns:
            What it gave back; an error outcome for anything wrong with the call or in the tool.

        Raises:
            ToolRejected: the user said no.
            asyncio.CancelledError: stopped.
        """
        tool = self._tools.get(name)
        if tool is None:
            return self._unknown(name)
        # Thousands of edits in one call take tens of milliseconds.
        is_long = len(arguments or "") > _LONG_CHARS
        params = (
            await asyncio.to_thread(_params, tool, arguments)
            if is_long
            else _params(tool, arguments)
        )
        if isinstance(params, ToolOutcome):
            return params
        try:
            return await tool.run(params, env)
        except ToolProblem as problem:
            return failure(_encodable(str(problem)), brief=problem.brief)
        except ToolRejected:
            raise
        except Exception as error:
            _log.exception("%s failed", name)
            reason = str(error) or type(error).__name__
            return failure(_encodable(f"{name} failed: {reason}"), brief="failed")

    def _unknown(self, name: str) -> ToolOutcome:
        if not self._tools:
            return failure(
                f"There is no tool {name[:_VALUE_CHARS]!r}: in this session you have no tools.",
                brief="no tools",
            )
        near = nearest_words(name, self._tools)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return failure(
            f"There is no tool {name[:_VALUE_CHARS]!r}.{hint} The tools are {', '.join(self._tools)}.",
            brief="no such tool",
        )


def _params(tool: AnyTool, arguments: str | None) -> BaseModel | ToolOutcome:
    """The arguments of a call; an error outcome where they make no sense."""
    values = _parsed(arguments)
    if isinstance(values, ToolOutcome):
        return values
    try:
        return tool.params.model_validate(values)
    except ValidationError as error:
        try:
            # Some models and gateways write lists and objects as strings with JSON in them.
            return tool.params.model_validate(_parsed_again(values, tool.spec().parameters))
        except (ValidationError, RecursionError):
            return failure(_explained(error, tool), brief="bad arguments")


def _parsed_again(value: object, schema: Mapping[str, Any]) -> object:
    """The value with those strings parsed that stand where the schema has a list or an object and no string."""
    kinds = _kinds(schema)
    if isinstance(value, str) and kinds & {"array", "object"} and "string" not in kinds:
        parsed = _from_json(value)
        if isinstance(parsed, dict | list):
            value = cast("object", parsed)
    if isinstance(value, dict):
        known = cast("Mapping[str, Any]", schema.get("properties", {}))
        fields = cast("dict[str, object]", value)
        return {key: _parsed_again(one, known.get(key, {})) for key, one in fields.items()}
    if isinstance(value, list):
        items = cast("Mapping[str, Any]", schema.get("items", {}))
        return [_parsed_again(one, items) for one in cast("list[object]", value)]
    return value


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a schema takes, as far as it names them."""
    found: set[str] = set()
    for one in (schema, *schema.get("anyOf", ())):
        kind: object = one.get("type", ())
        found.update([kind] if isinstance(kind, str) else cast("Iterable[str]", kind))
    return found


def _from_json(text: str) -> object:
    """The value of JSON that may be encoded as a string a few times; the text itself where it is none."""
    value: object = text
    for _ in range(_MOST_ENCODED):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            break
    return value


def _parsed(arguments: str | None) -> dict[str, object] | ToolOutcome:
    text = (arguments or "").strip() or "{}"
    try:
        parsed: object = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        where = (
            f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
            if isinstance(error, json.JSONDecodeError)
            else "nested too deeply or not readable"
        )
        return failure(
            f"The arguments are not valid JSON ({where}). Nothing was run: send the call again with a whole, "
            "valid JSON object.",
            brief="bad JSON",
        )
    if isinstance(parsed, str):
        parsed = _from_json(parsed)
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        return failure(
            "The arguments must be one JSON object. Nothing was run: send the call again.",
            brief="bad JSON",
        )
    # Models write null for what they mean to leave out.
    values = cast("dict[str, object]", parsed)
    return {key: value for key, value in values.items() if value is not None}


def _explained(error: ValidationError, tool: AnyTool) -> str:
    known = [str(name) for name in tool.spec().parameters["properties"]]
    problems = [_problem(detail, known) for detail in error.errors()[:_ERRORS_NAMED]]
    return f"The arguments of {tool.name} are wrong; nothing was run. " + " ".join(problems)


def _problem(detail: ErrorDetails, known: list[str]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "missing":
        return f"`{field}` is required."
    if detail["type"] == "extra_forbidden":
        near = nearest_words(field, known, limit=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(known)}."
        return f"`{field}` is not a parameter{hint}"
    expected = detail["msg"].removeprefix("Value error, ")
    expected = expected.replace("Input should be", "should be")
    got = json.dumps(detail["input"], ensure_ascii=False, default=str)
    if len(got) > _VALUE_CHARS:
        got = got[:_VALUE_CHARS] + "…"
    return _encodable(f"`{field}` {expected}, not {got}.")


def _encodable(text: str) -> str:
    """The text with lone surrogates (from odd file names or the model) written out, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()


def default_toolset() -> Toolset:
    """All built-in tools."""
    return Toolset(
        [
            ReadFile(),
            Glob(),
            Grep(),
            WriteFile(),
            StrReplaceFile(),
            Shell(),
            TaskOutput(),
            TaskStop(),
            SetTodoList(),
            AskUserQuestion(),
            ExitPlanMode(),
            SendDMail(),
        ]
    )
