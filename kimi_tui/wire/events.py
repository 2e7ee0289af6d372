"""All events that the soul publishes and the views reduce.

Frozen dataclasses of plain values, so that they can be compared, stored and replayed; the most frequent ones are named tuples
(a tuple is made ten times as fast as a frozen dataclass). A checkpoint is named by its `uid` (random, unique) and, on the
screen, by its `id` (which repeats across world lines); a tool call by its `key`, unique in the session: providers' own ids
may be empty or repeat. Durations are in seconds, sizes in tokens unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from kimi_tui.agent_parts import Mode
from kimi_tui.display_names import some_of
from kimi_tui.tool_cards import Card, DisplayBlock, ImageBlock, RequestKind

CheckpointKind = Literal["user", "step", "dmail", "compaction", "summary", "interrupted", "error"]
Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]
ApprovalAnswer = Literal["once", "session", "project", "no"]
FailureKind = Literal["", "model", "tools", "steps", "budget"]
PauseTopic = Literal["", "circles", "overdue", "written calls", "window"]
"""The reason for which the program itself asks in a pause; empty for a pause that has none."""
When = Literal["now", "after the turn"]
"""The time at which a user's message goes in: before the next step, or in a turn of its own."""
SWITCHES = frozenset[Operation]({"jump", "undo", "redo"})
"""The operations that make another world line live."""
SUMMARIES = frozenset[CheckpointKind]({"compaction", "summary"})
"""The checkpoints that are followed by the summary of a compaction: of everything before, or of a part."""


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """The user sent a message, or resumed without one; then `text` is empty and `resumed` is true.

    `images` were pasted into the message; `FilesAttached` lists those that the text names.
    """

    text: str
    resumed: bool = False
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The agent stopped.

    Attributes:
        reason: the reason.
        error: the sentence for the error card.
        advice: what the user can change.
        kind: `model` for a failed model call, `tools` if the model takes no tools, `steps` or `budget` if the turn used these
            up, empty for everything else.
        killed: whether the end of the program, or of a future's process, interrupted it, not the user; published when the session is
            opened again.
    """

    reason: Literal["done", "interrupted", "rejected", "error"]
    error: str = ""
    advice: str = ""
    kind: FailureKind = ""
    killed: bool = False


@dataclass(frozen=True, slots=True)
class StepBegin:
    """Step `n` (from 1) of the running turn, which is one model call and its tools."""

    n: int


@dataclass(frozen=True, slots=True)
class NextMessage:
    """The following events belong to message `number` after the newest checkpoint (from 0, markers not counted).

    It occurs only in histories that are made from messages; in published ones the checkpoint tells it. `summary` is the
    message itself if it is a summary that a D-Mail carried over.
    """

    number: int
    summary: str = ""


@dataclass(frozen=True, slots=True)
class StepRetry:
    """The model call failed and is tried again in `wait_s` seconds; what it streamed is replaced by what the next attempt streams.

    `left_s` is the number of seconds for which an overload is still waited out; 0 if attempts are counted instead.

    The event is published again with wait 0 when the user cuts the wait short, and with wait 0 if the context is compacted first.
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
    """The running step did not finish: the user stopped it, and the streamed text is kept and marked.

    With `failed` the cause was not the user: the model could not be asked, or the context could not be made small enough, and the
    following `TurnEnd` says why. Streamed text is kept then if `AnswerBroken` came before, else dropped.
    """

    failed: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBroken:
    """The model call failed within its answer, and is not tried again: the text streamed so far stays in the context, marked.

    `reason` is the failure, a sentence.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A further piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkPart:
    """A further piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model begins a tool call; `arguments` is the JSON text so far, and `ToolCallPart` events may bring more.

    `card` is the card of its tool; None if the name is enough to find it (`tool_cards.card_of`).
    """

    key: str
    name: str
    arguments: str = ""
    id: str = ""
    card: Card | None = None


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A further piece of a call's arguments."""

    key: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The tool starts running (after its approval, if it needed one); `arguments` is the whole JSON text."""

    key: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A piece of the output of a running tool, already cleaned, published while the tool runs."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool ended. `output` is the text for the model, `message` its one-line summary, and `display` holds the blocks for the card."""

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
        used: the tokens that the context takes now.
        limit: the model's window.
        trigger: the tokens at which automatic compaction starts.
        estimated: `used` is not the server's own figure.
        limit_estimated: `limit` is not the server's own figure.
        system: the part of `used` for the system prompt; `talk` (messages) and `tools` (results) are the other parts.
        per_step: the mean growth per step of the last steps, for the forecast.
        total_input: the input tokens of all calls; `total_cached` is the part read from the provider's cache.
        total_output: the output tokens of all calls.
        step_input: the input of the newest step's call; `step_output` likewise. None until the call has ended.
        correction: the factor by which estimates are multiplied in this session; 0 if none was learned yet.
        model: the name of the model.
        messages: the number of messages of the live world line that `used` covers; -1 if it is not known.
        spent_by: the model of a sub-agent whose call the totals grew by; empty for the session's agent.
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
    spent_by: str = ""

    @property
    def context_usage(self) -> float:
        """The part of the window that is in use, from 0 to 1."""
        return min(1.0, self.used / self.limit) if self.limit > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """A new checkpoint on the live world line. `label` is the user's message, or the origin of a D-Mail.

    With `was` it is no new checkpoint but the one that had that uid, renumbered after a summary: everything that it began
    moves with it, or only the messages with the numbers `kept` (counted as for pins) if there are any. Such events follow the
    event of the summary's own checkpoint and come before `CompactionEnd`; `said` are the user's messages in `kept`, each in
    one line, the first `carried` of them before a D-Mail. `first` is the number, counted likewise, of the first message after
    it that is part of the conversation: 1 if the program's own message comes first. `tokens` is the number of tokens before
    it, `measured` if that is the server's figure, `fitted` if it is an estimate fitted to one (`projection.tokens`).
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

    With the reason `compaction` the summary whose checkpoint follows replaces the part that was cut away.

    Attributes:
        reason: the operation.
        checkpoint_id: the checkpoint at which it was cut; `uid` is its uid.
        from_checkpoint: the newest checkpoint that was cut away; less than `checkpoint_id` if none was, and a D-Mail is added
            at the end.
        world_line: the number of the line left.
        messages_dropped: the number of messages that were cut away; `tool_calls_dropped` likewise.
        tokens_before: the tokens of the context before the operation; `tokens_after` those after it.
        text: the text of the D-Mail.
        prompt: the user's message of that checkpoint, to be put back into the prompt after a rewind.
        facts: the text that the soul added to the D-Mail.
        carried: the user's messages since then, which come before the D-Mail on the new line.
        pinned: the pinned messages that were carried over too, as `UID:NUMBER`; a uid alone stands for all messages of the checkpoint.
        author: the author of the D-Mail; `person` is the user.
        rule: the name of the rule (`[[dmail.rules]]`) that led to the D-Mail; empty if none did.
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
    rule: str = ""


@dataclass(frozen=True, slots=True)
class RuleApplied:
    """A rule of `[[dmail.rules]]` fired, or the D-Mail that came of it was drafted or refused. One that was sent is a `ContextReverted`.

    Attributes:
        rule: the name of the rule.
        did: what happened. `failed` is a draft that could not be written.
        then: the rule's action: `remind`, `draft` or `send`.
        checkpoint_id: the checkpoint to which the D-Mail is to go.
        text: a sentence that says why the rule fired, or why the draft failed.
        input: the input tokens of the drafting call; `cached` of them were cached, `output` were written.
    """

    rule: str
    did: Literal["fired", "drafted", "refused", "failed"]
    then: Literal["remind", "draft", "send"] = "remind"
    checkpoint_id: int = -1
    text: str = ""
    input: int = 0
    cached: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class CompactionBegin:
    """The context is being summarised. `automatic` is false if the user asked for it."""

    tokens_before: int
    automatic: bool


@dataclass(frozen=True, slots=True)
class CompactionEnd:
    """The summary is in the context, or (`error` not empty) nothing changed; `advice` says then what else helps.

    If no `CompactionBegin` precedes the event, the user edited the summary.
    """

    tokens_before: int
    tokens_after: int
    summary: str = ""
    world_line: int = 0
    error: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The agent asks before it changes something.

    Attributes:
        id: the id of the request, which an `ApprovalResolved` names.
        key: the key of the tool call.
        tool: the name of the tool.
        question: one sentence.
        detail: the exact text that will run or be written: a command if it is `changeable`, the D-Mail for the kind `dmail`.
            A yes with a feedback runs or sends the feedback instead.
        where: the folder, time limit and warnings.
        display: the changes as diffs.
        session_offer: the label of the yes that holds for the session; empty if none is offered.
        project_offer: the label of the yes that holds for the work folder in every session; empty if none is offered.
        kind: a tool call, a D-Mail, a plan to approve, a question of the agent, or (`pause`) one of the program itself: the
            turn is paused until the user decides how it continues; `key` is empty then.
        checkpoint_id: the target checkpoint of a D-Mail; -1 for none.
        options: the answers of a plan, a question or a pause; a yes has one of them, or another text, as its feedback. For a
            pause a yes without a feedback means the first of them.
        multi_select: a yes may have several of them as its feedback, joined by semicolons, with or without another text.
        words_offer: the label of the yes with the user's own text, for a pause; empty if it is not offered.
        no_offer: the label of the no, for a pause, and of no answer, for a question; empty for the usual one.
        stops: whether a no without a feedback ends the turn.
        changeable: whether `detail` is a command that the user may replace by another one.
        topic: what a pause is about.
        agent: the name of the sub-agent that asks (`AgentChanged.name`); empty for the session's own agent. `key` is empty then.
    """

    id: str
    key: str
    tool: str
    question: str
    detail: str
    where: str = ""
    display: tuple[DisplayBlock, ...] = ()
    session_offer: str = ""
    project_offer: str = ""
    kind: RequestKind = "tool"
    checkpoint_id: int = -1
    options: tuple[str, ...] = ()
    multi_select: bool = False
    words_offer: str = ""
    no_offer: str = ""
    stops: bool = True
    changeable: bool = False
    topic: PauseTopic = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """An approval was answered. `feedback` is the reason for a no; with a yes it is the text to send or run instead, or the
    chosen option.

    A no with the feedback "stopped" is no answer of the user: the turn was stopped, or the question needed no answer any more.
    """

    id: str
    answer: ApprovalAnswer
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class SteerQueued:
    """A message or a command of the user waits; `images` were pasted into it.

    With `when` "now" it goes in before the next step, or begins a turn if nothing runs; with "after the turn" it begins a
    turn after the running one. The wire repeats the event to late subscribers while it waits.
    """

    id: str
    text: str
    images: tuple[ImageBlock, ...] = ()
    when: When = "now"


@dataclass(frozen=True, slots=True)
class SteerTaken:
    """A waiting message went in, as message `number` after the newest checkpoint (counted as for pins); `images` as in `TurnBegin`.

    If it is `withdrawn`, it did not go in and does not wait any more: the user took it back, a turn begins with it
    (`TurnBegin` follows), or the engine gives it back unasked (`handed_back`), since its turn was stopped or it cannot be
    sent.
    """

    id: str
    text: str
    withdrawn: bool = False
    number: int = 0
    images: tuple[ImageBlock, ...] = ()
    handed_back: bool = False


@dataclass(frozen=True, slots=True)
class FilesAttached:
    """The files that message `number` (as in `SteerTaken`) names and that were sent with it, in words: `app.py 40 lines`.

    `images` are the images among them.
    """

    number: int
    files: tuple[str, ...]
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """The agent's tools changed working files in the step of checkpoint `uid`; `added` and `removed` count lines.

    `lost` is the number of `paths` whose former contents are in no snapshot; `lost_paths` are the first of these. `key` is
    the call that changed the files. Both are empty in older records. `ignored` counts new files and folders that a rule ignores,
    such as caches: no contents are lost, and a rewind leaves them. They are not among `paths`; `ignored_paths` are the first ones.
    """

    uid: str
    paths: tuple[str, ...]
    added: int = 0
    removed: int = 0
    lost: int = 0
    key: str = ""
    lost_paths: tuple[str, ...] = ()
    ignored: int = 0
    ignored_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesRestored:
    """Working files were restored. Those of `restored` that are in `created` had not existed before."""

    uid: str
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The steps since an operation that is undone; they stay on the world line that the undo leaves.

    Attributes:
        steps: the number of checkpoints; `messages` is the number of messages.
        files: the files that those steps changed and that stay as they are.
        line_name: the name of that world line at the time.
    """

    steps: int = 0
    messages: int = 0
    files: tuple[str, ...] = ()
    line_name: str = ""


NOTHING_LEFT = LeftBehind()


@dataclass(frozen=True, slots=True)
class LineChanged:
    """An operation ended and the live world line is another one; views that cannot follow rebuild themselves.

    Attributes:
        op: the operation.
        from_line: the world line that holds the line left; 0 if the line left has no number of its own, as it is the
            beginning of another.
        to_line: the world line that became live after an undo, redo or jump; after any other operation 0.
        uid: the checkpoint before which `to_line` was cut (empty: the whole line is live); after any other operation the
            checkpoint that it was about.
        is_open: whether the new line ends where the agent could continue without a new message.
        left: after an undo, what stays on `from_line`.
    """

    op: Operation
    from_line: int
    to_line: int
    uid: str
    is_open: bool = False
    left: LeftBehind = NOTHING_LEFT


_MOST_NAMED = 3


def toll_words(left: LeftBehind, world_line: int) -> str:
    """Say how much an undo takes along, where that stays, and which files are not undone; empty if nothing is taken along.

    Example for a line with a name: `3 steps since then stay as world line 2 (fix the quotes); made.txt stays as it is`.
    """
    count, noun = (left.steps, "step") if left.steps else (left.messages, "message")
    if not count:
        return ""
    what = f"{count:,} {noun}s since then stay" if count > 1 else f"1 {noun} since then stays"
    what += f" as world line {world_line}" if world_line else " as a world line"
    what += f" ({left.line_name})" if left.line_name else ""
    files = left.files
    if not files:
        return what
    return f"{what}; {some_of(files, _MOST_NAMED)} {'stay as they are' if len(files) > 1 else 'stays as it is'}"


DISK_TOPIC = "disk"
"""The topic of the notice that the conversation cannot be saved."""
FORM_TOPIC = "form"
"""The topic of the notice that the model is sent few tools or none; it disappears with the second message."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A fact that the user should know. With a `topic` it stays until `solved` comes for the same topic."""

    level: Literal["info", "warning", "error"]
    text: str
    advice: str = ""
    topic: str = ""
    solved: bool = False


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How far the server has read the prompt, in tokens that it had to read. It concerns this run only, and is not recorded."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """The approval mode changed, by the user or the program. The event concerns this run only, and is not recorded."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """The title of the session is `title` from now on. If nobody named it (`named` is false), that is the beginning of its
    first message, as is the title before the first such event.
    """

    title: str
    named: bool = True


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The model in use changed, or the facts about it, or the settings that it is called with.

    Attributes:
        name: its name at its server; empty while none is set.
        window: its context size in tokens.
        thinking: the thinking that it is asked for: `on`, an effort, or empty for none.
        choices: the thinking settings that it accepts.
        setting: the setting that the user made; empty for none.
    """

    name: str
    window: int = 0
    thinking: str = ""
    choices: tuple[str, ...] = ()
    setting: str = ""

    @property
    def effort(self) -> str:
        """The effort of the thinking; empty if there is no thinking, or thinking without an effort."""
        return self.thinking.removeprefix("on")


@dataclass(frozen=True, slots=True)
class MarksChanged:
    """All names and pins of the session, by the present and the first uids of checkpoints.

    Attributes:
        names: pairs of a checkpoint's uid and its name, which is also that of a world line.
        pins: the pinned messages, as pairs of a checkpoint's uid and the message's number after it.
    """

    names: tuple[tuple[str, str], ...] = ()
    pins: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """Requests carry other tools from now on.

    Attributes:
        form: all (`on`), few in a short form (`lean`), or none (`off`). It concerns this run of the program only, so it is
            empty in a record; only an event with an added or removed tool is recorded.
        added: the tools that were added to the session, by name.
        removed: the tools that were removed. A tool in both was replaced by another with the same name.
        names: all tools of the session, also while they are off. Like `form` it concerns this run only.
    """

    form: Literal["", "on", "lean", "off"] = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """The number of commands that run in the background now. The event concerns this run only, and is not recorded."""

    running: int


FutureStatus = Literal[
    "preparing", "waiting", "running", "asking", "checking", "done", "failed", "stopped"
]
FUTURE_ENDS = frozenset[FutureStatus]({"done", "failed", "stopped"})
"""The states of a future that has ended."""
CheckResult = Literal["", "passed", "failed", "not run"]


@dataclass(frozen=True, slots=True)
class FutureChanged:
    """The whole state of one future: a continuation of the session from a checkpoint, in a process of its own.

    The event is not recorded: the journal of the session has the last state of each future that became a world line. While
    a future runs, its own events are on a wire of its own (`kimi_tui.futures`).

    Attributes:
        key: names it in the session; it is unique.
        group: names the futures that were started together.
        number: counts them from 1.
        name: the name that the user sees.
        state: what it is doing. `preparing` makes its files, `waiting` waits for its turn at the model, `done` has ended in order.
        why: why it waits, failed or was stopped, as a sentence; empty for no reason.
        checkpoint_id: the checkpoint before which it begins; -1 for the end of the line. `uid` is that checkpoint's uid.
        from_line: the world line of that checkpoint; 0 for the current one.
        after: the uid of the last checkpoint before it, if it begins at the end of a line; empty if the line has none. None if
            it begins before a checkpoint, or the end is not known yet, or an older version told of it.
        message: its first message.
        model: its model, as the server calls it.
        tier: how it gets files of its own (`tools.sandbox.view.Tier`).
        step: the number of its newest step.
        input: the input tokens of its calls; `cached` of them were cached, `output` were written.
        cost: its cost by the configured prices; -1 if there are none.
        began_at: when it was started, in seconds since 1970; `ended_at` is when it ended, 0 before.
        asks: the ids of its requests that wait for an answer.
        check: the result of the check; empty for none, or before it has ended.
        check_exit: the exit code of the check; -1 for none. `check_s` are the seconds that it took.
        check_output: the last lines of its output.
        own_check: the files that the check may depend on and that the future changed: tests, and the settings of CI.
        files: the number of files that differ from its beginning; `added` and `removed` count lines.
        last_words: the beginning of its last answer.
        world_line: the number of its world line; 0 before it is one, or if it has no step.
        removed_at: when the user removed it; 0 if nobody did.
    """

    key: str
    group: str = ""
    number: int = 1
    name: str = ""
    state: FutureStatus = "preparing"
    why: str = ""
    checkpoint_id: int = -1
    uid: str = ""
    from_line: int = 0
    message: str = ""
    model: str = ""
    tier: str = ""
    step: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float = -1.0
    began_at: float = 0.0
    ended_at: float = 0.0
    asks: tuple[str, ...] = ()
    check: CheckResult = ""
    check_exit: int = -1
    check_s: float = 0.0
    check_output: str = ""
    own_check: tuple[str, ...] = ()
    files: int = 0
    added: int = 0
    removed: int = 0
    last_words: str = ""
    world_line: int = 0
    removed_at: float = 0.0
    after: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in FUTURE_ENDS

    @property
    def tokens(self) -> int:
        """All tokens of its calls, input and output."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class WorldLineAdded:
    """A world line came to the session without having been the live one: a future that has ended.

    The first checkpoints of the line are those of world line `from_line` before `uid` (empty: all of them); `ids`, `uids`,
    `kinds` and `labels` are its further ones, in order.

    Attributes:
        n: its number.
        key: the future whose line it is, or that left it.
    """

    n: int
    key: str
    from_line: int = 0
    uid: str = ""
    ids: tuple[int, ...] = ()
    uids: tuple[str, ...] = ()
    kinds: tuple[CheckpointKind, ...] = ()
    labels: tuple[str, ...] = ()


AgentState = Literal["waiting", "working", "asking", "paused", "done", "failed", "stopped"]
"""The states of a sub-agent: it waits for its turn, works, waits for an answer of the user, can go on from where it stands,
or has ended: in order, by an error or a limit, or because it was stopped.
"""
AGENT_ENDS = frozenset[AgentState]({"done", "failed", "stopped"})
"""The states of a sub-agent that has ended."""


@dataclass(frozen=True, slots=True)
class AgentChanged:
    """The whole state of one sub-agent: an agent beside the session's own, which a call of the tool `Agent` started.

    The event is not recorded: the last state is stored beside the sub-agent's conversation, and every listener hears it behind
    the history (`KimiSoul.facts`). The sub-agent's own events have its name as their `source`.

    Attributes:
        name: names it in the session, for example `explore-1`.
        number: counts the sub-agents of the session from 1.
        kind: its kind, for example `explore`.
        title: what it is to do, in a few words of the model.
        state: what it is doing.
        why: why it waits, failed or was stopped, as a sentence; empty for no reason.
        key: the key of the tool call that started it; `uid` is the checkpoint of that call's step.
        reads_only: whether its tools change nothing.
        model: its model, as the server calls it.
        step: the number of its newest step.
        calls: the number of its tool calls.
        doing: its running tool call in a few words; empty for none.
        input: the input tokens of its calls of the model; `cached` of them were cached, `output` were written.
        cost: its cost by the configured prices; -1 if there are none.
        used: the tokens of its context, and `limit` the window of its model.
        began_at: when it began, in seconds since 1970; `ended_at` is when it ended or was paused, 0 while it works. A pause is left
            out: the beginning moves by it.
        files: the number of files that it changed.
        last_words: the beginning of its last answer.
        is_future: whether it works in a future: in files of its own, whose difference is applied at the end.
        removed_at: when it was removed with the world lines that had it, in seconds since 1970; 0 if it is there.
        remark: what is special about how it works, as a sentence for the user: why it has no files of its own, or what its request
            waits for; empty for nothing.
    """

    name: str
    number: int = 1
    kind: str = ""
    title: str = ""
    state: AgentState = "waiting"
    why: str = ""
    key: str = ""
    uid: str = ""
    reads_only: bool = False
    model: str = ""
    step: int = 0
    calls: int = 0
    doing: str = ""
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float = -1.0
    used: int = 0
    limit: int = 0
    began_at: float = 0.0
    ended_at: float = 0.0
    files: int = 0
    last_words: str = ""
    is_future: bool = False
    remark: str = ""
    removed_at: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in AGENT_ENDS

    @property
    def is_running(self) -> bool:
        """Whether it waits for its turn, works or asks."""
        return not self.is_over and self.state != "paused"

    @property
    def tokens(self) -> int:
        """All tokens of its calls, input and output."""
        return self.input + self.output


Event = (
    TurnBegin
    | TurnEnd
    | StepBegin
    | NextMessage
    | StepRetry
    | StepInterrupted
    | AnswerBroken
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
    | RuleApplied
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
    | FutureChanged
    | WorldLineAdded
    | AgentChanged
)


SESSION_FACTS = (
    TitleChanged | ModelChanged | MarksChanged | FutureChanged | WorldLineAdded | AgentChanged
)
"""Events about the whole session, which are recorded wherever it stands: they belong to no step."""
STREAMED = (TextPart, ThinkPart, ToolCallPart, ToolOutput)
"""Events that only bring more of a text; there are many per second while an answer is written or a tool runs."""


class EventRecord(NamedTuple):
    """An event with its number and time.

    Attributes:
        seq: counts from 1 within a session.
        at: seconds since 1970.
        foreign: whether another program (kimi-cli) recorded it; such records have no events of checkpoints.
        source: the name of the agent whose event it is, for an agent beside the session's own; empty for the session's own.
    """

    seq: int
    at: float
    event: Event
    foreign: bool = False
    source: str = ""


def iso_seconds(iso: str, otherwise: float = 0.0) -> float:
    """Return the ISO 8601 time of a checkpoint in seconds since 1970; `otherwise` if it is not a time."""
    try:
        return datetime.fromisoformat(iso).timestamp() if iso else otherwise
    except ValueError:
        return otherwise


def text_of(event: Event) -> str:
    """Return the piece of text in an event that is published piece by piece (answer, reasoning, arguments, output); else an
    empty text.
    """
    match event:
        case TextPart(text) | ThinkPart(text) | ToolOutput(text=text):
            return text
        case ToolCall(arguments=text) | ToolCallPart(arguments=text):
            return text
        case _:
            return ""


def with_text(event: Event, text: str) -> Event:
    """Return the event with another piece of text, of any length; an event without one is returned unchanged."""
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
    """Return whether the second event continues the text of the first one."""
    match second:
        case TextPart() | ThinkPart():
            return type(first) is type(second)
        case ToolCallPart(key):
            return isinstance(first, ToolCall | ToolCallPart) and first.key == key
        case ToolOutput(key):
            return isinstance(first, ToolOutput) and first.key == key
        case _:
            return False
