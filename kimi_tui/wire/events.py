"""All events that the soul publishes and views reduce.

Frozen dataclasses of plain values, so that they can be compared, stored and replayed; named tuples where there are so many
that making them would be felt (a tuple is made ten times as fast as a frozen dataclass). A checkpoint is named by its
`uid` (random, unique) and, on the screen, by its `id` (which repeats across world lines); a tool call by its `key`,
unique in the session: providers' own ids may be empty or repeat. Durations are seconds, sizes tokens where nothing else
is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from kimi_tui.agent_parts import Mode
from kimi_tui.tool_cards import Card, DisplayBlock, ImageBlock, RequestKind

CheckpointKind = Literal["user", "step", "dmail", "compaction", "summary", "interrupted", "error"]
Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]
ApprovalAnswer = Literal["once", "session", "no"]
FailureKind = Literal["", "model", "tools"]
SWITCHES = frozenset[Operation]({"jump", "undo", "redo"})
"""The operations that put another world line in the place of the live one."""
SUMMARIES = frozenset[CheckpointKind]({"compaction", "summary"})
"""The checkpoints behind which the summary of a compaction stands: of all that was before, or of a part."""


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """The user sent a message, or resumed without one: then `text` is empty and `resumed` true.

    `images` were pasted into it; `FilesAttached` tells of those that the text names.
    """

    text: str
    resumed: bool = False
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The agent stopped.

    Attributes:
        reason: why.
        error: the sentence for the error card.
        advice: what to change.
        kind: `model` for a failed call of the model, `tools` where it takes no tools, empty for everything else.
        killed: it was interrupted by the end of the program, not by the user; told when the session is opened again.
    """

    reason: Literal["done", "interrupted", "rejected", "error"]
    error: str = ""
    advice: str = ""
    kind: FailureKind = ""
    killed: bool = False


@dataclass(frozen=True, slots=True)
class StepBegin:
    """Step `n` (from 1) of the running turn: one model call and its tools."""

    n: int


@dataclass(frozen=True, slots=True)
class NextMessage:
    """What is told from here on is message `number` behind the newest checkpoint (from 0, markers not counted).

    Only in histories that are made from messages: of what is published a checkpoint tells it. `summary` is the message
    itself where that is a summary that a D-Mail brought along.
    """

    number: int
    summary: str = ""


@dataclass(frozen=True, slots=True)
class StepRetry:
    """The model call failed and is tried again in `wait_s` seconds; what it had streamed is dropped.

    `left_s` is how much longer an overload is waited out; 0 where attempts are counted instead.

    Published again with no wait when the user cuts the wait short, and with none where the context is compacted first.
    """

    n: int
    attempt: int
    max_attempts: int
    wait_s: float
    reason: str
    status: int | None = None
    left_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepInterrupted:
    """The running step did not finish: the user stopped it, and what had been streamed is kept and marked.

    With `failed` it was not the user: the model could not be asked, or the context could not be made small enough. What
    had been streamed is dropped then, and the `TurnEnd` that follows says why.
    """

    failed: bool = False


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
    """The model begins a tool call; `arguments` is the JSON text so far, more may follow as `ToolCallPart`.

    `card` is that of its tool; None where that is known by the name (`tool_cards.card_of`).
    """

    key: str
    name: str
    arguments: str = ""
    id: str = ""
    card: Card | None = None


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


class StatusUpdate(NamedTuple):
    """The state of the context window and the session's totals, all in tokens.

    Attributes:
        used: what the context takes now.
        limit: the model's window.
        trigger: where automatic compaction starts.
        estimated: `used` is not the server's own figure.
        limit_estimated: `limit` is not the server's own figure.
        system: part of `used`; so are `talk` (messages) and `tools` (results).
        per_step: the mean growth of the last steps, for the forecast.
        total_input: of all calls; `total_cached` is the part read from the provider's cache.
        total_output: of all calls.
        step_input: of the newest step's call; so is `step_output`. None where it has not ended.
        correction: what estimates are multiplied by in this session; 0 where nothing was learned yet.
        model: the model asked.
        messages: how many messages of the live world line `used` covers; -1 where that is not said.
    """

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
    messages: int = -1

    @property
    def context_usage(self) -> float:
        """The part of the window that is in use, from 0 to 1."""
        return min(1.0, self.used / self.limit) if self.limit > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """A new checkpoint on the live world line. `label` is the user's words, or where a D-Mail came from.

    With `was` it is no new checkpoint but the one that had that uid, renumbered behind a summary: what it began moves
    with it, or of that only the messages with the numbers `kept` (counted as pins count), where it names any. Such events
    follow that of the summary's own checkpoint and come before `CompactionEnd`; `said` is what of `kept` the user said, each
    in one line, the first `carried` of it before a D-Mail. `first` is the number, counted likewise,
    of the first message behind it that is said: 1 where the program has put a word before it. `tokens` is what precedes
    it, `measured` where that is the server's own figure, `fitted` where it was fitted to one (`projection.tokens`).
    """

    id: int
    uid: str
    kind: CheckpointKind
    label: str = ""
    tokens: int = 0
    at: str = ""
    was: str = ""
    first: int = 0
    kept: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    carried: int = 0
    measured: bool = False
    fitted: bool = False


@dataclass(frozen=True, slots=True)
class ContextReverted:
    """The live world line was cut before checkpoint `checkpoint_id`; what followed is now world line `world_line`.

    With the reason `compaction` the part that was cut away is replaced by the summary whose checkpoint follows.

    Attributes:
        reason: the operation.
        checkpoint_id: where it was cut; `uid` is the same checkpoint's.
        from_checkpoint: the newest id that was cut away; less than `checkpoint_id` where nothing was, and a D-Mail is
            added at the end.
        world_line: the number of the line left.
        messages_dropped: how many were cut away; `tool_calls_dropped` likewise.
        tokens_before: of the context; `tokens_after` likewise.
        text: the D-Mail.
        prompt: the user's message of that checkpoint, to be put back into the prompt after a rewind.
        facts: what the soul added to the D-Mail.
        carried: what the user had said since, which stands before the D-Mail on the new line.
        pinned: the pinned messages that were carried over too, as `UID:NUMBER`; a checkpoint alone stands for all of it.
        author: who wrote the D-Mail; `person` is the user.
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
    """The context is being summarised. `automatic` is false where the user asked for it."""

    tokens_before: int
    automatic: bool


@dataclass(frozen=True, slots=True)
class CompactionEnd:
    """The summary is in the context, or (`error` not empty) nothing changed.

    Without a `CompactionBegin` before it, the user edited the summary.
    """

    tokens_before: int
    tokens_after: int
    summary: str = ""
    world_line: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The agent asks before it changes something.

    Attributes:
        id: of the request; an `ApprovalResolved` names it.
        key: of the tool call.
        tool: its name.
        question: one sentence.
        detail: exactly what will run or be written: where it is `changeable` a command, of the kind `dmail` the D-Mail
            before it is sent. A yes with a feedback runs or sends that instead.
        where: the folder, time limit and warnings.
        display: the changes as diffs.
        session_offer: the label of the yes that holds for the session; empty where none is offered.
        kind: a call of a tool, a D-Mail, a plan to agree to, a question that the agent has, or (`pause`) one of the
            program itself: the turn is paused until the user has said how it goes on. `key` is empty then.
        checkpoint_id: of a D-Mail, where it goes; -1 for none.
        options: the answers of a plan, a question or a pause; a yes has one of them, or other words, as its feedback. Of a
            pause a yes without a feedback is the first of them.
        multi_select: a yes may have several of them as its feedback, joined by semicolons, with other words or without.
        words_offer: of a pause, the label of the yes with the user's own words; empty where none is offered.
        no_offer: of a pause, the label of the no.
        stops: whether a no without a feedback ends the turn.
        changeable: whether `detail` is a command in whose place the user may put another one.
    """

    id: str
    key: str
    tool: str
    question: str
    detail: str
    where: str = ""
    display: tuple[DisplayBlock, ...] = ()
    session_offer: str = ""
    kind: RequestKind = "tool"
    checkpoint_id: int = -1
    options: tuple[str, ...] = ()
    multi_select: bool = False
    words_offer: str = ""
    no_offer: str = ""
    stops: bool = True
    changeable: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """An approval was answered; `feedback` is why not, or with a yes what to send or to run instead, or which option.

    A no with the feedback "stopped" is no answer: the turn was stopped meanwhile, or the question needed no answer any more.
    """

    id: str
    answer: ApprovalAnswer
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class SteerQueued:
    """Text typed while the agent works, with the images pasted into it; it goes in before the next step."""

    id: str
    text: str
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class SteerTaken:
    """Queued text went in (`withdrawn`: the user took it back instead); `number` counts messages as pins do.

    `images` are as in `TurnBegin`.
    """

    id: str
    text: str
    withdrawn: bool = False
    number: int = 0
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesAttached:
    """What went with message `number` (as in `SteerTaken`) of the files it names, in words: `app.py 40 lines`.

    `images` are those among them.
    """

    number: int
    files: tuple[str, ...]
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """The agent's tools changed working files in the step of checkpoint `uid`; `added` and `removed` count lines.

    Of the `paths` so many are `lost`: what they were is in no snapshot; `lost_paths` are the first of these. `key` is the call that
    did it. Both are empty in older records.
    """

    uid: str
    paths: tuple[str, ...]
    added: int = 0
    removed: int = 0
    lost: int = 0
    key: str = ""
    lost_paths: tuple[str, ...] = ()


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
    """An operation ended and the live world line is another one; views that cannot follow rebuild themselves.

    Attributes:
        op: the operation.
        from_line: the world line that holds the line left; 0 where it has none of its own, being the beginning of
            another.
        to_line: after an undo, redo or jump the world line that became live; after anything else 0.
        uid: the checkpoint before which `to_line` was cut (empty: all of it is live); after anything else the
            checkpoint that the operation was about.
        is_open: whether the new line ends where the agent could go on without a new message.
        steps_left: after an undo, the checkpoints since the operation that was undone: they stay on `from_line`.
            `messages_left` likewise counts messages.
        files_left: the files that those steps changed and that stay as they are.
        line_name: what `from_line` was called then.
    """

    op: Operation
    from_line: int
    to_line: int
    uid: str
    is_open: bool = False
    steps_left: int = 0
    messages_left: int = 0
    files_left: tuple[str, ...] = ()
    line_name: str = ""


_MOST_NAMED = 3


def toll_words(
    steps: int, messages: int, world_line: int, files: Sequence[str] = (), *, name: str = ""
) -> str:
    """What an undo takes along, where it stays, and which files do not follow; empty where that is nothing.

    `3 steps since then stay as world line 2 (fix the quotes); made.txt stays as it is`, where that line bears a name.
    """
    count, noun = (steps, "step") if steps else (messages, "message")
    if not count:
        return ""
    what = f"{count:,} {noun}s since then stay" if count > 1 else f"1 {noun} since then stays"
    what += f" as world line {world_line}" if world_line else " as a world line"
    what += f" ({name})" if name else ""
    if not files:
        return what
    named = ", ".join(files[:_MOST_NAMED])
    more = f" and {len(files) - _MOST_NAMED:,} more" if len(files) > _MOST_NAMED else ""
    return f"{what}; {named}{more} {'stay as they are' if len(files) > 1 else 'stays as it is'}"


DISK_TOPIC = "disk"
"""The topic of the notice that the conversation cannot be saved."""
FORM_TOPIC = "form"
"""The topic of the notice that the model is sent few tools or none; it goes with the second message."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know. With a `topic` it stays until `solved` comes for the same topic."""

    level: Literal["info", "warning", "error"]
    text: str
    advice: str = ""
    topic: str = ""
    solved: bool = False


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How far the server has read the prompt, in tokens that it had to read. Of this run alone, and not recorded."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """The approval mode is another one, whoever changed it. Of this run of the program alone, and not recorded."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """The session is called `title` from now on. Where nobody named it (`named` is false), that is how it began; until one
    of these comes, it is called as the first message in it begins."""

    title: str
    named: bool = True


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The model in use is another one, or something else is known of it or asked of it.

    Attributes:
        name: as its server calls it; empty while none is set.
        window: its context size in tokens.
        thinking: how it is asked to think: `on`, an effort, or empty where it is not.
        choices: the settings of thinking that it takes.
        setting: the setting that the user made; empty for none.
    """

    name: str
    window: int = 0
    thinking: str = ""
    choices: tuple[str, ...] = ()
    setting: str = ""


@dataclass(frozen=True, slots=True)
class MarksChanged:
    """All names and pins of the session, by the uids that checkpoints have now and by those that they had first.

    Attributes:
        names: each as a checkpoint's uid and its name, which is also that of a world line.
        pins: the pinned messages, each as a checkpoint's uid and its number behind that.
    """

    names: tuple[tuple[str, str], ...] = ()
    pins: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """Requests carry other tools from now on.

    Attributes:
        form: all (`on`), few in a short form (`lean`), or none (`off`). Of this run of the program alone: empty where it is
            recorded, which it is only with a tool that came or left.
        added: the tools that came into the session, by name.
        removed: those that left it. A tool of both has become another one.
        names: all tools of the session, also while they are off. Of this run alone, as `form` is.
    """

    form: Literal["", "on", "lean", "off"] = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """So many commands run in the background now. Of this run of the program alone, and not recorded."""

    running: int


Event = (
    TurnBegin
    | TurnEnd
    | StepBegin
    | NextMessage
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
    | FilesAttached
    | FilesChanged
    | FilesRestored
    | LineChanged
    | ModeChanged
    | TitleChanged
    | ModelChanged
    | MarksChanged
    | ToolsChanged
    | JobsChanged
    | PromptProgress
    | Notice
)


SESSION_FACTS = TitleChanged | ModelChanged | MarksChanged
"""Events that tell of the whole session and are recorded wherever it stands: they belong to no step."""
STREAMED = (TextPart, ThinkPart, ToolCallPart, ToolOutput)
"""Events that only bring more of a text: while an answer is written, or a tool runs, there are many a second."""


class EventRecord(NamedTuple):
    """An event with its place.

    Attributes:
        seq: counts from 1 within a session.
        at: seconds since 1970.
        foreign: whether another program (kimi-cli) recorded it: then no checkpoint is told of beside it.
        source: the name of an agent beside that of the session whose event it is; empty for the session's own.
    """

    seq: int
    at: float
    event: Event
    foreign: bool = False
    source: str = ""


def iso_seconds(iso: str, otherwise: float = 0.0) -> float:
    """A time as checkpoints have it, ISO 8601, in seconds since 1970; `otherwise` where it is none."""
    try:
        return datetime.fromisoformat(iso).timestamp() if iso else otherwise
    except ValueError:
        return otherwise


def text_of(event: Event) -> str:
    """The piece of text in an event that is published piece by piece: answer, reasoning, arguments, output. Else empty."""
    match event:
        case TextPart(text) | ThinkPart(text) | ToolOutput(text=text):
            return text
        case ToolCall(arguments=text) | ToolCallPart(arguments=text):
            return text
        case _:
            return ""


def with_text(event: Event, text: str) -> Event:
    """The event with another piece, of any length, in the place of its own; one that brings none as it is."""
    match event:
        case TextPart():
            return TextPart(text)
        case ThinkPart():
            return ThinkPart(text)
        case ToolCall():
            return replace(event, arguments=text)
        case ToolCallPart(key):
            return ToolCallPart(key, text)
        case ToolOutput(key):
            return ToolOutput(key, text)
        case _:
            return event


def continues(first: Event, second: Event) -> bool:
    """Whether the second event brings what comes next of the text that the first one brought."""
    match second:
        case TextPart() | ThinkPart():
            return type(first) is type(second)
        case ToolCallPart(key):
            return isinstance(first, ToolCall | ToolCallPart) and first.key == key
        case ToolOutput(key):
            return isinstance(first, ToolOutput) and first.key == key
        case _:
            return False
