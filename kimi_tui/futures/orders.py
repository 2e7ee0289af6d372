"""The values of JSON that the program and the processes of futures and sub-agents exchange: the orders, and the contents of their lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.tools.agent_kind import AgentKind
from kimi_tui.tools.base import ApprovalQuestion, Asks
from kimi_tui.tools.outcome import FileEdit
from kimi_tui.wire.codec import Decoder, encode_record
from kimi_tui.wire.events import Event, EventRecord


class Order(NamedTuple):
    """The order of a future.

    Attributes:
        session: the folder of its session.
        message: the message of its turn.
        choice: the model, as `choice_record` writes it.
        options: the fields of `Launch` that the command line of the program, or its user, had set: mode, sandbox, bare, added.
        max_steps, max_tokens, max_cost: its limits; 0 for none.
        check: the command of the check; empty for none. `check_s` are the seconds after which it is stopped.
        network: whether the check may use the network.
        variables: environment variables for the commands of the agent and the check.
        known: what the program has asked the server: window, capabilities, dialect and URL; empty to ask again.
        images: the images of the message, which are stored in its session, each as an `ImageBlock`.
        first_agent: the number from which the names of the future's own sub-agents count.
        agent: for a sub-agent, what `AgentOrder` has; empty for a future.
        stands_for: the folder of the session into which a future is carried over when it ends.
    """

    session: str
    message: str
    choice: Mapping[str, Any]
    options: Mapping[str, Any]
    max_steps: int = 0
    max_tokens: int = 0
    max_cost: float = 0.0
    check: str = ""
    check_s: float = 600.0
    network: bool = False
    variables: Mapping[str, str] = {}
    known: Mapping[str, Any] = {}
    images: Sequence[Mapping[str, Any]] = ()
    first_agent: int = 1
    agent: Mapping[str, Any] = {}
    stands_for: str = ""


class AgentOrder(NamedTuple):
    """The facts about a sub-agent that its process is told.

    Attributes:
        name: its name.
        owner: the folder of the session that it belongs to.
        work: the work folder of that session.
        kind: its kind, as `kind_record` writes it.
        said: the user's messages that it takes first if it goes on.
        steps: the most steps of its turn.
        tokens, cost: its further limits; 0 for none.
    """

    name: str
    owner: str
    work: str
    kind: Mapping[str, Any]
    said: Sequence[str]
    steps: int
    tokens: int
    cost: float


def choice_record(choice: ModelChoice) -> dict[str, Any]:
    """Return a model as values of JSON, with its key."""
    capabilities = None if choice.capabilities is None else sorted(choice.capabilities)
    facts = {"capabilities": capabilities, "remarks": list(choice.remarks)}
    return {**choice._asdict(), **facts, "headers": dict(choice.headers)}


def choice_of(record: Mapping[str, Any]) -> ModelChoice:
    """Return the model of such a record."""
    capabilities = record["capabilities"]
    facts: dict[str, Any] = {
        "capabilities": None if capabilities is None else tuple(capabilities),
        "remarks": tuple(record["remarks"]),
    }
    return ModelChoice(**{**record, **facts})


def kind_record(kind: AgentKind) -> dict[str, Any]:
    """Return a kind as values of JSON."""
    names = ("name", "description", "text", "model", "effort", "steps")
    tools = None if kind.tools is None else list(kind.tools)
    return {**{name: getattr(kind, name) for name in names}, "tools": tools}


def kind_of(record: Mapping[str, Any]) -> AgentKind:
    """Return the kind of such a record."""
    tools = record["tools"]
    facts: dict[str, Any] = {**record, "tools": None if tools is None else tuple(tools)}
    return AgentKind(**facts)


def event_record(event: Event) -> dict[str, Any]:
    """Return an event as values of JSON."""
    return encode_record(EventRecord(1, 0.0, event))["message"]


def event_of(record: object) -> Event | None:
    """Return the event of such a record; None if it is none."""
    return Decoder().decode(lenient_json.mapping(record))


def question_record(question: ApprovalQuestion) -> dict[str, Any]:
    """Return a question as values of JSON."""
    record = {one.name: getattr(question, one.name) for one in fields(question)}
    record["edits"] = [asdict(one) for one in question.edits]
    record["asks"] = {**asdict(question.asks), "unasked": sorted(question.asks.unasked)}
    return record


def question_of(record: Mapping[str, Any]) -> ApprovalQuestion:
    """Return the question of such a record.

    Raises:
        TypeError, KeyError, ValueError: it is none.
    """
    asks = dict(record["asks"])
    asks["unasked"] = frozenset(asks["unasked"])
    facts: dict[str, Any] = {
        **record,
        "asks": Asks(**asks),
        "edits": tuple(FileEdit(**one) for one in record["edits"]),
        "options": tuple(record["options"]),
    }
    return ApprovalQuestion(**facts)
