"""Every event that the soul tells and the screen draws.

Frozen dataclasses of plain values, so that they can be compared, stored and replayed. A checkpoint is named by its
`uid` (random, unique) and, for people, by its `id` (which repeats across world lines); a tool call by its `key`, unique
in the session: providers' own ids may be empty or repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kimi_tui.wire.display import DisplayBlock

CheckpointKind = Literal["user", "step", "dmail", "compaction", "summary", "interrupted", "error"]
Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]
ApprovalAnswer = Literal["once", "session", "no"]
FailureKind = Literal["", "model", "tools"]


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """The person said something (or went on without a message: then `text` is empty and `resumed` true)."""

    text: str
    resumed: bool = False
    images: int = 0


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The agent stopped. `error` is the sentence for the error card, `advice` what to change.

    `kind` tells a failed call of the model (`tools`: it takes no tools) from everything else."""

    reason: Literal["done", "interrupted", "rejected", "error"]
    error: str = ""
    advice: str = ""
    kind: FailureKind = ""


@dataclass(frozen=True, slots=True)
class StepBegin:
    """Step `n` (from 1) of the running turn: one model call and its tools."""

    n: int


@dataclass(frozen=True, slots=True)
class StepRetry:
    """The model call failed and is tried again in `wait_s` seconds; what it had streamed is dropped.

    It comes again, with no wait, when the person cuts the wait short; and with none where the context is compacted first."""

    n: int
    attempt: int
    max_attempts: int
    wait_s: float
    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class StepInterrupted:
    """The running step was stopped; what had been streamed is kept and marked."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkPart:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model begins a tool call; `arguments` is the JSON text so far, more may follow as `ToolCallPart`."""

    key: str
    name: str
    arguments: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """More of a call's arguments."""

    key: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The tool runs now (after its approval, if it needed one); `arguments` is the whole JSON text."""

    key: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Live output of a running tool, as it comes and already cleaned."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool ended. `output` is what the model reads, `message` its one-line summary, `display` what cards draw."""

    key: str
    is_error: bool
    output: str
    message: str = ""
    display: tuple[DisplayBlock, ...] = ()
    duration_s: float = 0.0
    interrupted: bool = False
    rejected: bool = False
    id: str = ""


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """The state of the window and the session's totals, all in tokens.

    `estimated` is true while `used` is not the server's own figure. `trigger` is where automatic compaction starts.
    `system`, `talk` and `tools` split `used`. `per_step` is the mean growth of the last steps, for the forecast.
    `correction` is by what estimates are multiplied in this session (0: nothing was learned yet), `model` the one asked."""

    used: int
    limit: int
    trigger: int
    estimated: bool = False
    limit_estimated: bool = False
    system: int = 0
    talk: int = 0
    tools: int = 0
    per_step: int = 0
    total_input: int = 0
    total_cached: int = 0
    total_output: int = 0
    step_input: int | None = None
    step_output: int | None = None
    correction: float = 0.0
    model: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """A new point on the live line. `label` is what is known at once: the person's words, or a letter's source.

    With `was` it is no new point but the one that had that uid, renumbered behind a summary: what it began moves with
    it. Such points follow the summary's own and stand before `CompactionEnd`."""

    id: int
    uid: str
    kind: CheckpointKind
    label: str = ""
    tokens: int = 0
    at: str = ""
    was: str = ""


@dataclass(frozen=True, slots=True)
class ContextReverted:
    """The live line was cut before checkpoint `checkpoint_id`; what followed is now world line `world_line`.

    `from_checkpoint` is the newest id that was cut away; where it is less than `checkpoint_id` nothing was, and a letter
    is added at the end. `text` is the D-Mail's letter. `prompt` is the message of that checkpoint to put back into the
    prompt after a person's rewind. `facts` is what the soul added to a letter, `carried` what the person had said since,
    which stands before the letter on the new line; with it stands what the person had pinned, at the checkpoints
    `pinned`. `author` is who wrote the letter. With the reason `compaction` the
    part that was cut away is replaced by the summary whose checkpoint follows.
    """

    reason: Operation
    checkpoint_id: int
    uid: str
    from_checkpoint: int
    world_line: int
    messages_dropped: int
    tool_calls_dropped: int
    tokens_before: int
    tokens_after: int
    text: str = ""
    prompt: str = ""
    facts: str = ""
    carried: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    author: Literal["agent", "person"] = "agent"


@dataclass(frozen=True, slots=True)
class CompactionBegin:
    """The context is being summarised. `automatic` tells the rule from the key."""

    tokens_before: int
    automatic: bool


@dataclass(frozen=True, slots=True)
class CompactionEnd:
    """The summary stands in, or (`error` not empty) nothing changed. Without a `CompactionBegin`, the person edited it."""

    tokens_before: int
    tokens_after: int
    summary: str = ""
    world_line: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The agent asks before it changes something. `detail` is exactly what will run or be written.

    `session_offer` is the label of the yes that holds for the session, empty where none is offered. Of the kind `dmail`
    the `detail` is a letter before it is sent, of the tool Shell a command: yes with a feedback sends or runs that.
    """

    id: str
    key: str
    tool: str
    question: str
    detail: str
    where: str = ""
    display: tuple[DisplayBlock, ...] = ()
    session_offer: str = ""
    kind: Literal["tool", "dmail"] = "tool"


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """An approval was answered; `feedback` is why not, or with a yes what to send or to run instead."""

    id: str
    answer: ApprovalAnswer
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class SteerQueued:
    """Text typed while the agent works; it goes in before the next step."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class SteerTaken:
    """Queued text went in (`withdrawn`: the person took it back instead); `number` is as pins name messages."""

    id: str
    text: str
    withdrawn: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """The agent's tools changed working files in the step of checkpoint `uid`; lines are counted where they are texts."""

    uid: str
    paths: tuple[str, ...]
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class FilesRestored:
    """Working files were brought back. Of `restored` those in `created` had not been there before."""

    uid: str
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LineChanged:
    """An operation ended and the live line is another one; views that cannot follow rebuild themselves.

    `from_line` is the world line that holds the line left (0: none of its own, it is the beginning of another).
    After an undo, redo or jump `to_line` is the world line that became live, up to before checkpoint `uid` (empty: all
    of it); after anything else it is 0 and `uid` names the checkpoint it was about. `is_open` says whether the line
    ends in the middle of something, so that the agent could go on from there."""

    op: Operation
    from_line: int
    to_line: int
    uid: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the person should know. With a `topic` it stays until `solved` comes for the same topic."""

    level: Literal["info", "warning", "error"]
    text: str
    advice: str = ""
    topic: str = ""
    solved: bool = False


Event = (
    TurnBegin
    | TurnEnd
    | StepBegin
    | StepRetry
    | StepInterrupted
    | TextPart
    | ThinkPart
    | ToolCall
    | ToolCallPart
    | ToolStarted
    | ToolOutput
    | ToolResult
    | StatusUpdate
    | CheckpointCreated
    | ContextReverted
    | CompactionBegin
    | CompactionEnd
    | ApprovalRequest
    | ApprovalResolved
    | SteerQueued
    | SteerTaken
    | FilesChanged
    | FilesRestored
    | LineChanged
    | Notice
)


@dataclass(frozen=True, slots=True)
class Record:
    """An event with its place: `seq` counts from 1 within a session, `at` is seconds since 1970."""

    seq: int
    at: float
    event: Event
