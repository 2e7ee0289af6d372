"""`Tool`, which owns all that is known of a tool, and `ToolEnv`, what a call gets; what it returns is in `outcome.py`.

A tool of this program is a `TypedTool`, whose parameters are a pydantic model; one that is described at run time, as those of
MCP servers are, a `SchemaTool`. What a call asks the user is an `ApprovalQuestion`, with the rule (`Asks`) by which it is asked.

Tools do not import the wire, the session or the soul: what they may use of those, the soul puts into the `ToolEnv`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from kimi_tui.agent_parts import Mode
from kimi_tui.llm.provider import ToolSpec
from kimi_tui.llm.request import plain_schema
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import PLAIN, Card, RequestKind, TodoItem, short_name
from kimi_tui.tools.arguments import bad_arguments, explained, with_json_parsed
from kimi_tui.tools.outcome import FileEdit, ToolOutcome

if TYPE_CHECKING:
    from kimi_tui.tools.jobs import Jobs
    from kimi_tui.tools.sandbox.sandbox import Sandbox

Params = TypeVar("Params")
Model = TypeVar("Model", bound=BaseModel)


Changes = Literal["nothing", "order", "edits", "anything"]
"""What the calls of a tool may change:

- `nothing`: they run beside one another. All others run one after another.
- `order`: no file, but a call has to come in its place.
- `edits`: the files that its questions name as `edits`.
- `anything`: any file. It asks in every mode, by `Tool.question` or in `Tool.run`, if only to be allowed without the user:
  before the answer the files are looked at, so that it is known afterwards what the call changed.
"""


@dataclass(frozen=True, slots=True)
class Asks:
    """The rule by which a question is asked.

    Attributes:
        kind: how it is put.
        unasked: the modes in which the answer is yes without the user. Whatever is `protected` is asked in these too.
        is_change: whether it is refused in plan mode, and not asked.
        stops: whether a no without a reason ends the turn.
    """

    kind: RequestKind = "tool"
    unasked: frozenset[Mode] = frozenset()
    is_change: bool = False
    stops: bool = True


TO_EDIT = Asks(unasked=frozenset({"edits", "sandboxed", "all"}), is_change=True)
"""To edit a file in the work folder."""
TO_EDIT_ELSEWHERE = Asks(unasked=frozenset({"all"}), is_change=True)
"""To edit any other file, or one that is protected."""
TO_RUN = Asks(unasked=frozenset({"all"}))
"""To run a command, or whatever else may have any effect."""
TO_GO_OUTSIDE = Asks()
"""To read outside the work folder, or to run a command outside the sandbox that the mode would have it in."""


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A request for approval, before something is run, changed, or read outside the work folder.

    Attributes:
        asks: the rule by which it is asked.
        question: one sentence.
        detail: exactly what will run, or the path that will be read or written.
        where: the folder, time limit and warnings, for the line below the question.
        edits: the changes to show as diffs.
        session_key: names the group of questions that a yes for the session covers; empty where none is offered.
        session_offer: the label of that yes.
        protected: whether it is asked even in the mode that allows everything.
        checkpoint_id: the target of a D-Mail.
        options: the answers offered where a yes is not enough; the answer is one of them, or the user's own text.
        multi_select: whether the answer may be several options, joined by semicolons.
        sandboxed: whether it is about a sandboxed command, which is not asked about in the mode that allows these.
        changeable: whether a yes may bring a command in the place of `detail`, which runs instead.
        words_offer: of a pause, the label of the answer with the user's own words; empty where none is offered.
        no_offer: of a pause, the label of the no.
    """

    asks: Asks
    question: str
    detail: str
    where: str = ""
    edits: tuple[FileEdit, ...] = ()
    session_key: str = ""
    session_offer: str = ""
    protected: bool = False
    checkpoint_id: int = -1
    options: tuple[str, ...] = ()
    multi_select: bool = False
    sandboxed: bool = False
    changeable: bool = False
    words_offer: str = ""
    no_offer: str = ""


class Approver(Protocol):
    """Answers an `ApprovalQuestion`."""

    async def ask(self, ask: ApprovalQuestion) -> str:
        """Wait for the answer.

        Returns:
            on yes: empty, the command that the user put in place of the one asked about, or the chosen option.

        Raises:
            ToolRejected: on no.
        """
        ...


class FileVersions:
    """The versions of files that the agent has seen: an edit of a file that has another one by now is refused.

    Args:
        known: the version tokens of the conversation, by absolute path; what a call sees is added at once.

    Attributes:
        noted: what this call has seen, for its result.
    """

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known
        self.noted: dict[str, str] = {}

    def seen(self, path: Path) -> str | None:
        """The version token under which the agent last saw this file (by reading or writing), or None."""
        return self._known.get(str(path))

    def saw(self, path: Path, version: str) -> None:
        """Note the version of a file that the agent has seen now."""
        self._known[str(path)] = self.noted[str(path)] = version


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """Everything a running tool may use.

    Attributes:
        work_dir: the session's folder.
        approver: asks the user.
        send_dmail: queues a D-Mail (text, checkpoint, whether files are restored) for the end of this step; raises a
            `ValueError` for the model where it cannot go there.
        versions: which files the agent knows in which version.
        emit: takes live output (decoded text) for the screen.
        environ: the environment of this program; children get an allowlist of it.
        key: the key of the call, unique in the session.
        todos: the todo list of the live world line; None where none was set.
        sandbox: the sandbox of commands that run without a question; None where there is none, or each command is asked about.
        search_sandbox: the sandbox of search programs, in every mode; None where there is none.
        reads_only: whether nothing may be changed (plan mode).
        jobs: the background commands; None where there can be none.
        sees: whether the model takes images.
        room_chars: the most characters of a result where the model's window is small; None for the tool's own limit.
        renewed: returns this environment with `sandbox` and `reads_only` of the present mode, which may have changed.
    """

    work_dir: Path
    approver: Approver
    send_dmail: Callable[[str, int, bool], None]
    versions: FileVersions
    emit: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    key: str = ""
    todos: tuple[TodoItem, ...] | None = None
    sandbox: Sandbox | None = None
    search_sandbox: Sandbox | None = None
    reads_only: bool = False
    jobs: Jobs | None = None
    sees: bool = False
    room_chars: int | None = None
    renewed: Callable[[ToolEnv], ToolEnv] = lambda env: env


class Tool(ABC, Generic[Params]):
    """One tool: all that is known of it. Stateless: whatever a call needs comes in by `ToolEnv`."""

    name: str
    changes: Changes
    """What its calls may change."""
    card: Card = PLAIN
    """How its calls look. Those of `tool_cards.KNOWN` have that one."""
    lean_params: tuple[str, ...] = ()
    """The parameters that a model with a small window is told of; empty where such a model is not given the tool by itself."""

    @property
    def description(self) -> str:
        """What the model reads of it: `prompts/tools/NAME.md`."""
        return prompt(f"tools/{self.name}")

    @property
    @abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, an object."""

    @abstractmethod
    def parse(self, values: Mapping[str, object]) -> Params:
        """The parameters from the arguments of a call.

        Raises:
            ToolProblem: they make no sense.
        """

    def question(self, params: Params, env: ToolEnv) -> ApprovalQuestion | None:
        """What is asked before `run`; None where nothing is, or `run` asks itself."""
        del params, env
        return None

    @abstractmethod
    async def run(self, params: Params, env: ToolEnv) -> ToolOutcome:
        """Do it.

        Raises:
            ToolProblem: it cannot be done.
            ToolRejected: the user said no.
            asyncio.CancelledError: stopped; whatever it started has been ended.
        """

    def spec(self) -> ToolSpec:
        """Name, description and parameters as they are sent to the model."""
        # Without the docstring of the class.
        schema = {key: value for key, value in self.schema.items() if key != "description"}
        return ToolSpec(self.name, self.description, plain_schema(schema))

    def lean_spec(self) -> ToolSpec:
        """The tool as a model with a small window is told of it: `prompts/lean/tools/NAME.md`, and a schema without words.

        A tool without `lean_params` has its usual description and schema.
        """
        if not self.lean_params:
            return self.spec()
        schema = self.spec().parameters
        wanted = {name: _bare(schema["properties"][name]) for name in self.lean_params}
        required = [name for name in schema.get("required", ()) if name in wanted]
        lean = {"type": "object", "properties": wanted, "required": required}
        return ToolSpec(self.name, prompt(f"lean/tools/{self.name}"), lean)


class TypedTool(Tool[Model]):
    """A tool whose parameters are a pydantic model."""

    params: type[Model]
    """The model reads the docstrings and the field descriptions of this in the JSON schema."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of `params`."""
        return _schema_of(self.params)

    def parse(self, values: Mapping[str, object]) -> Model:
        """The arguments as `params`; lists and objects may have been written as strings of JSON."""
        try:
            return self.params.model_validate(values)
        except ValidationError as error:
            schema = self.spec().parameters
            try:
                return self.params.model_validate(with_json_parsed(values, schema))
            except (ValidationError, RecursionError):
                problems = explained(error, schema["properties"])
                raise bad_arguments(self.name, problems) from error


class SchemaTool(Tool[dict[str, Any]]):
    """A tool that is described by a plain JSON schema, as those of servers are. Its own server checks most of the arguments.

    Where its calls may change anything, each is asked about, whole.

    Args:
        name: what the model calls it by: letters, digits, `_` and `-`, at most 64.
        description: what the model reads of it.
        schema: of its arguments.
        changes: what its calls may change.
        card: how they look.
    """

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        *,
        changes: Changes = "anything",
        card: Card = PLAIN,
    ) -> None:
        self.name = name
        self.changes = changes
        self.card = card
        self._description = description
        self._schema: Mapping[str, Any] = {"type": "object", "properties": {}, **schema}
        said = json.dumps([description, dict(schema)], sort_keys=True, default=str)
        # A yes for the session covers the tool that was described so, and not what may come in its place under its name.
        self._allowed_by = (
            f"call:{name}:{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()}"
        )

    @property
    def description(self) -> str:
        """What the model reads of it."""
        return self._description

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema as it was given."""
        return self._schema

    def parse(self, values: Mapping[str, object]) -> dict[str, Any]:
        """The arguments, all that are required; lists and objects may have been written as strings of JSON."""
        missing = [name for name in self._schema.get("required", ()) if name not in values]
        if missing:
            raise bad_arguments(self.name, [f"`{name}` is required." for name in missing])
        return cast("dict[str, Any]", with_json_parsed(dict(values), self.spec().parameters))

    def question(self, params: dict[str, Any], env: ToolEnv) -> ApprovalQuestion | None:
        """Whether it may be called with these arguments."""
        if self.changes != "anything":
            return None
        return ApprovalQuestion(
            TO_RUN,
            f"Call {short_name(self.name, self.card)}?",
            json.dumps(params, ensure_ascii=False, indent=2),
            session_key=self._allowed_by,
            session_offer="Yes, and every call of it in this session",
        )


_WORDS = frozenset(
    {
        "description",
        "default",
        "additionalProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
    }
)


def _bare(schema: Any) -> Any:
    """A part of a schema without what only explains or bounds it: types, properties, enumerations and what is required stay."""
    if isinstance(schema, Mapping):
        table = cast("Mapping[str, Any]", schema)
        return {
            key: {name: _bare(one) for name, one in value.items()}
            if key == "properties"
            else _bare(value)
            for key, value in table.items()
            if key not in _WORDS
        }
    return schema


@cache
def _schema_of(params: type[BaseModel]) -> dict[str, Any]:
    # Kept: those of all tools take 5 ms, at every opening of a session.
    return params.model_json_schema()
