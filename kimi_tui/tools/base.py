"""`Tool`, which holds all facts about a tool, and `ToolEnv`, the environment of a call; results of calls are in `outcome.py`.

A tool of this program is a `TypedTool`, whose parameters are a pydantic model; a tool described at run time, such as one of
an MCP server, is a `SchemaTool`. A call asks the user with an `ApprovalQuestion`, whose rule (`Asks`) says when to ask.

Tools do not import the wire, the session or the soul: the soul puts the parts that they may use into the `ToolEnv`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from kimi_tui.agent_parts import Mode
from kimi_tui.filesystem import sync_folder
from kimi_tui.llm.provider import ToolSpec
from kimi_tui.llm.request import plain_schema
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import PLAIN, Card, RequestKind, TodoItem, short_name
from kimi_tui.tools.arguments import bad_arguments, explained, with_json_parsed
from kimi_tui.tools.outcome import FileEdit, ToolOutcome

if TYPE_CHECKING:
    from kimi_tui.tools.agent_kind import AgentTask
    from kimi_tui.tools.jobs import Jobs
    from kimi_tui.tools.sandbox.sandbox import Sandbox

Params = TypeVar("Params")
Model = TypeVar("Model", bound=BaseModel)


Changes = Literal["nothing", "order", "edits", "anything"]
"""The changes that the calls of a tool may make:

- `nothing`: calls run in parallel. Calls of all other tools run one after another.
- `order`: calls change no file, but have to run in their order.
- `edits`: calls change the files that their questions list as `edits`.
- `anything`: calls may change any file. They ask in every mode, by `Tool.question` or in `Tool.run`, even if the answer comes
without the user: the files are scanned before the answer, so that the changes of the call are known afterwards.
"""


@dataclass(frozen=True, slots=True)
class Asks:
    """The rule that says when the user is asked.

    Attributes:
        kind: the kind of question.
        unasked: the modes in which the answer is yes without the user. Questions about `protected` files are asked in these modes too.
        is_change: whether plan mode refuses the call without asking.
        stops: whether a no without a reason ends the turn.
    """

    kind: RequestKind = "tool"
    unasked: frozenset[Mode] = frozenset()
    is_change: bool = False
    stops: bool = True


TO_EDIT = Asks(unasked=frozenset({"edits", "sandboxed", "all"}), is_change=True)
"""The rule for editing a file in the work folder."""
TO_EDIT_ELSEWHERE = Asks(unasked=frozenset({"all"}), is_change=True)
"""The rule for editing any other file, or a protected one."""
TO_RUN = Asks(unasked=frozenset({"all"}))
"""The rule for running a command, or any other action that may have any effect."""
TO_GO_OUTSIDE = Asks()
"""The rule for reading outside the work folder, or for running a command outside the sandbox that the mode requires."""


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A request for approval, made before a command runs, a file changes, or a file outside the work folder is read.

    Attributes:
        asks: the rule that says when it is asked.
        question: one sentence.
        detail: the exact command that will run, or the path that will be read or written.
        where: the folder, time limit and warnings, for the line below the question.
        edits: the changes to show as diffs.
        session_key: the name of the group of questions that a yes for the session covers; empty if no such yes is offered.
        session_offer: the label of that answer.
        project_rule: the permission that a yes for the project stores (`config.permissions`); only offered with one for the session.
        project_offer: the label of that answer.
        protected: whether the user is asked even in the mode that allows everything.
        checkpoint_id: the target of a D-Mail.
        options: the offered answers if a yes is not enough; the answer is one of them, or the user's own text.
        multi_select: whether the answer may be several options, joined by semicolons.
        sandboxed: whether the question is about a sandboxed command; the mode that allows these does not ask it.
        changeable: whether a yes may come with another command, which runs instead of `detail`.
        words_offer: the label of the answer with the user's own text, for a pause; empty if it is not offered.
        no_offer: the label of the no, for a pause, and of no answer, for a question; empty for the usual one.
        topic: what a pause is about; empty for every other question.
        tool: the name of the tool that the question is about; empty for the one that asks.
    """

    asks: Asks
    question: str
    detail: str
    where: str = ""
    edits: tuple[FileEdit, ...] = ()
    session_key: str = ""
    session_offer: str = ""
    project_rule: str = ""
    project_offer: str = ""
    protected: bool = False
    checkpoint_id: int = -1
    options: tuple[str, ...] = ()
    multi_select: bool = False
    sandboxed: bool = False
    changeable: bool = False
    words_offer: str = ""
    no_offer: str = ""
    topic: Literal["", "circles", "overdue", "written calls", "window"] = ""
    tool: str = ""


RESULTS_NAME = "results"
"""The folder in a session's folder for results that are too long for a message."""
SESSION_STANDS_FOR = "KIMI_TUI_SESSION_STANDS_FOR"
"""The environment variable with the folder of a future's session and, in a second line, that of the session into which it is carried over."""


def lasting_name(path: Path, environ: Mapping[str, str]) -> str:
    """Return the path that a file of a session has in the end: that of a future's session is moved when it becomes a world line."""
    own, _, lasting = environ.get(SESSION_STANDS_FOR, "").partition("\n")
    name = str(path)
    return f"{lasting}{name[len(own) :]}" if own and name.startswith(f"{own}/") else name


class Approver(Protocol):
    """Answers an `ApprovalQuestion`."""

    async def ask(self, ask: ApprovalQuestion) -> str:
        """Wait for the answer.

        Returns:
            for a yes: an empty text, the command with which the user replaced the one in the question, or the chosen option.

        Raises:
            ToolRejected: the user said no.
        """
        ...


class FileVersions:
    """The versions of files that the agent has seen: an edit of a file that has changed since is refused.

    Args:
        known: the version tokens of the conversation, by absolute path; versions that a call sees are added at once.

    Attributes:
        noted: the versions that this call has seen, for its result.
    """

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known
        self.noted: dict[str, str] = {}

    def seen(self, path: Path) -> str | None:
        """Return the version token of this file when the agent last saw it (by reading or writing), or None."""
        return self._known.get(str(path))

    def saw(self, path: Path, version: str) -> None:
        """Note the version of a file that the agent sees now."""
        self._known[str(path)] = self.noted[str(path)] = version


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """Everything that a running tool may use.

    Attributes:
        work_dir: the session's folder.
        approver: asks the user for approval.
        send_dmail: queues a D-Mail (text, checkpoint, whether files are restored) for the end of this step; raises a
            `ValueError` with a text for the model if the D-Mail cannot be sent there.
        versions: the versions of files that the agent has seen.
        emit: called with live output (decoded text) for the screen.
        environ: the environment variables of this program; child processes get an allowlist of them.
        key: the key of the call, unique in the session.
        todos: the todo list of the live world line; None if none was set.
        sandbox: the sandbox of commands that run without approval; None if there is none, or if every command needs approval.
        search_sandbox: the sandbox of search programs, in every mode; None if there is none.
        reads_only: whether changes are forbidden (plan mode).
        jobs: the background commands; None if there cannot be any.
        added: the real paths of the folders that the user added beside the work folder.
        sees: whether the model accepts images.
        results: the folder of the session for results that are too long for a message, which the agent may read; None for none.
        room_chars: the largest number of characters of a result if the model's window is small; None for the tool's own limit.
        unsaved: returns the text of a file in the user's editor, by its absolute path, or None if that is not known; None without an
            editor.
        run_agent: runs a sub-agent for the call of this key to its end; None where there can be none.
        named: takes the path of a folder in which a file got a name: its names are synced before the result of the call is.
        writer: runs a function that writes the files of a tool that `edits`, in a thread.
        ended: called in any thread when everything that the tool had started has ended, before its result is made.
        renewed: returns this environment with `sandbox` and `reads_only` for the present mode, which may have changed.
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
    added: tuple[str, ...] = ()
    sees: bool = False
    results: Path | None = None
    room_chars: int | None = None
    unsaved: Callable[[str], Awaitable[str | None]] | None = None
    run_agent: Callable[[AgentTask, str], Awaitable[ToolOutcome]] | None = None
    named: Callable[[str], None] = sync_folder
    writer: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] = asyncio.to_thread
    ended: Callable[[], None] = lambda: None
    renewed: Callable[[ToolEnv], ToolEnv] = lambda env: env


class Tool(ABC, Generic[Params]):
    """One tool, with all facts about it. It is stateless: a call gets everything that it needs in a `ToolEnv`."""

    name: str
    changes: Changes
    """The changes that its calls may make."""
    card: Card = PLAIN
    """The look of its calls on the screen. Tools in `tool_cards.KNOWN` have that card."""
    lean_params: tuple[str, ...] = ()
    """The parameters that are described to a model with a small window; empty if such a model does not get the tool by default."""
    other_names: tuple[str, ...] = ()
    """Further names by which a model may call it, that are not told."""
    is_timed: bool = True
    """Whether a call is stopped when it takes longer than the limit of tools."""

    def changes_of(self, arguments: str) -> Changes:
        """Return the changes that a call with these arguments (JSON text) may make: `changes`, or less."""
        del arguments
        return self.changes

    @property
    def description(self) -> str:
        """The description for the model: `prompts/tools/NAME.md`."""
        return prompt(f"tools/{self.name}")

    @property
    @abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, an object."""

    @abstractmethod
    def parse(self, values: Mapping[str, object]) -> Params:
        """Return the parameters from the arguments of a call.

        Raises:
            ToolProblem: the arguments are invalid.
        """

    def question(self, params: Params, env: ToolEnv) -> ApprovalQuestion | None:
        """Return the question to ask before `run`; None if there is none, or if `run` asks itself."""
        del params, env
        return None

    @abstractmethod
    async def run(self, params: Params, env: ToolEnv) -> ToolOutcome:
        """Run the tool.

        Raises:
            ToolProblem: the tool cannot do it.
            ToolRejected: the user said no.
            asyncio.CancelledError: the call was stopped; every process that it started has been ended.
        """

    def spec(self) -> ToolSpec:
        """Return name, description and parameters as they are sent to the model."""
        # A server's tool may describe itself once more here.
        schema = {key: value for key, value in self.schema.items() if key != "description"}
        return ToolSpec(self.name, self.description, plain_schema(schema))

    def lean_spec(self) -> ToolSpec:
        """Return the tool as it is described to a model with a small window: `prompts/lean/tools/NAME.md`, and a schema
        without descriptions.

        A tool without `lean_params` keeps its usual description and schema.
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
    """The model of the parameters. Its field descriptions are part of the JSON schema that the model gets."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of `params`."""
        return _schema_of(self.params)

    def parse(self, values: Mapping[str, object]) -> Model:
        """Return the arguments as `params`; lists and objects may be written as strings of JSON."""
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
    """A tool that is described by a plain JSON schema, such as a server's. The server checks most of the arguments.

    If its calls may change anything, each of them needs approval.

    Args:
        name: the name that the model uses: letters, digits, `_` and `-`, at most 64.
        description: the description for the model.
        schema: the JSON schema of its arguments.
        changes: the changes that its calls may make.
        card: the look of its calls.
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
        # A yes for the session covers the tool with this description, and no other tool that gets its name later.
        self._allowed_by = (
            f"call:{name}:{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()}"
        )

    @property
    def description(self) -> str:
        """The description for the model."""
        return self._description

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema as it was given."""
        return self._schema

    def parse(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments if all required ones are there; lists and objects may be written as strings of JSON."""
        missing = [name for name in self._schema.get("required", ()) if name not in values]
        if missing:
            raise bad_arguments(self.name, [f"`{name}` is required." for name in missing])
        return cast("dict[str, Any]", with_json_parsed(dict(values), self.spec().parameters))

    def question(self, params: dict[str, Any], env: ToolEnv) -> ApprovalQuestion | None:
        """Ask whether the tool may be called with these arguments."""
        if self.changes != "anything":
            return None
        named = short_name(self.name, self.card)
        return ApprovalQuestion(
            TO_RUN,
            f"Run the tool {named}?",
            json.dumps(params, ensure_ascii=False, indent=2),
            session_key=self._allowed_by,
            session_offer="Yes, and allow this tool for this session",
            project_rule=f"tool:{self._allowed_by.removeprefix('call:').replace(':', '#')}",
            project_offer=f"Yes, and do not ask again for {named} in this folder",
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


_OBVIOUS = (("additionalProperties", False), ("default", ""), ("default", 0), ("minLength", 1))
"""Parts of schemas that are not sent; 0 stands for False, too."""


def _bare(schema: Any) -> Any:
    """Return a part of a schema without descriptions and bounds: types, properties, enumerations and required names stay."""
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
    # The schemas are cached: making those of all tools takes 5 ms at every opening of a session.
    schema = params.model_json_schema()
    # Their descriptions are the docstrings of the classes, which are not meant for the model.
    for one in (schema, *schema.get("$defs", {}).values()):
        one.pop("description", None)
    return _without_the_obvious(schema)


def _without_the_obvious(schema: Any) -> Any:
    """Return a part of a schema without what a model takes for granted, as every request carries it: that there are no
    other parameters, that an optional one is empty, zero or off, and that a text has a character.
    """
    if not isinstance(schema, Mapping):
        return schema
    table = cast("Mapping[str, Any]", schema)
    return {
        key: {name: _without_the_obvious(one) for name, one in value.items()}
        if key in ("properties", "$defs")
        else _without_the_obvious(value)
        for key, value in table.items()
        if (key, value) not in _OBVIOUS
    }
