"""Wire events made by hand: a writer for any course of events, and the story of the pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi_tui.projection.replay import Replay, ReplayState
from kimi_tui.soul.rewind_values import DroppedMessage, RewindPreview, Target
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire.events import (
    CheckpointCreated,
    CheckpointKind,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    LineChanged,
    Operation,
    StatusUpdate,
    SteerTaken,
    StepBegin,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
    ToolStarted,
    TurnBegin,
    TurnEnd,
)

LIMIT = 262_144
TRIGGER = 212_144
START = 1_772_460_000.0

STORY_PREVIEW = RewindPreview(
    target=Target(11),
    label='Fields with "" inside break the importer. Fix it, with a test.',
    steps=5,
    turns=1,
    messages=11,
    tokens_before=58_300,
    tokens_after=53_700,
    estimated=False,
    dropped=(
        DroppedMessage("tool", "pytest -q tests/csv", "Shell", failed=True, tokens=1_200),
        DroppedMessage("tool", "src/csv/tokenizer.py", "Edit", tokens=900),
        DroppedMessage("tool", "src/csv/tokenizer.py", "Read", tokens=2_100),
        DroppedMessage("tool", "1 of 3 done", "Todo", tokens=400),
    ),
    prompt="Fields",
)
"""The preview of a rewind to the last message of the story."""


@dataclass
class Teller:
    """Makes events in the order in which the engine publishes them, with the figures that this needs."""

    records: list[EventRecord] = field(default_factory=list)
    used: int = 5_200
    at: float = START
    line: list[tuple[str, int]] = field(default_factory=list)
    """uid and tokens of the live line's checkpoints."""
    n_lines: int = 0
    stored: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """The lines that the engine would have on disk: the whole line of every number."""
    per_step: int = 0
    _serial: int = 0
    _step: int = 0

    def tell(self, event: Event, *, after_s: float = 0.5) -> None:
        """Add one event."""
        self.at += after_s
        self.records.append(EventRecord(len(self.records) + 1, self.at, event))

    def status(self, *, sent: int | None = None, estimated: bool = False) -> None:
        """Add the state of the window."""
        self.tell(
            StatusUpdate(
                used=self.used,
                limit=LIMIT,
                trigger=TRIGGER,
                estimated=estimated,
                system=5_200,
                talk=max(0, (self.used - 5_200) * 4 // 10),
                tools=max(0, self.used - 5_200 - (self.used - 5_200) * 4 // 10),
                per_step=self.per_step,
                total_input=12 * self.used,
                total_cached=10 * self.used,
                total_output=self.used // 8,
                step_input=sent,
                step_output=None if sent is None else 40,
            )
        )

    def checkpoint(self, kind: CheckpointKind, label: str = "") -> int:
        """Add a checkpoint; return its id."""
        self._serial += 1
        uid = f"u{self._serial}"
        number = len(self.line)
        self.line.append((uid, self.used))
        self.tell(CheckpointCreated(number, uid, kind, label, tokens=self.used))
        return number

    def turn(self, text: str) -> int:
        """Add a message of the user."""
        self._step = 0
        self.tell(TurnBegin(text), after_s=20.0)
        return self.checkpoint("user", text)

    def begin_step(self) -> int:
        """Begin a step, whose model call has returned nothing yet."""
        self._step += 1
        self.tell(StepBegin(self._step))
        return self.checkpoint("step")

    def step(
        self,
        *calls: tuple[str, dict[str, object]],
        cost: int = 900,
        failed: bool = False,
        files: Sequence[str] = (),
        text: str = "",
    ) -> int:
        """Add a whole step: what the agent says, and the tools it calls."""
        number = self.begin_step()
        if text:
            self.tell(TextPart(text))
        self.status(sent=self.used)
        keys: list[str] = []
        for name, arguments in calls:
            self._serial += 1
            key = f"k{self._serial}"
            keys.append(key)
            whole = json.dumps(arguments)
            self.tell(ToolCall(key, name))
            self.tell(ToolCallPart(key, whole))
            self.tell(ToolStarted(key, name, whole))
        for index, key in enumerate(keys):
            blocks = tuple(DiffBlock(path, 3, 1, ()) for path in files) if index == 0 else ()
            self.tell(
                ToolResult(key, failed, "x" * (4 * cost), display=blocks, duration_s=2.4),
                after_s=2.4,
            )
        self.used += cost
        self.status()
        return number

    def end(self, reason: str = "done") -> None:
        """End the turn."""
        assert reason in ("done", "interrupted", "rejected", "error")
        self.tell(TurnEnd(reason))  # pyright: ignore[reportArgumentType]

    def store(self) -> int:
        """Store the live line; return its number, or 0 if it is only the beginning of a longer one."""
        for number, line in self.stored.items():
            if line[: len(self.line)] == self.line:
                return number if len(line) == len(self.line) else 0
        self.n_lines += 1
        self.stored[self.n_lines] = list(self.line)
        return self.n_lines

    def jump(self, to_line: int, stop: int | None = None, op: Operation = "jump") -> None:
        """Make a stored line live, up to before its checkpoint number `stop`."""
        left = self.store()
        line = self.stored[to_line]
        self.line = line[:stop]
        self.used = self.line[-1][1] if self.line else 5_200
        uid = line[len(self.line)][0] if len(line) > len(self.line) else ""
        self.tell(LineChanged(op, left, to_line, uid))
        self.status(estimated=True)

    def cut(
        self, number: int, reason: Operation, text: str = "", carried: tuple[str, ...] = ()
    ) -> int:
        """Cut the live line before checkpoint `number`; return the number of the line that was left."""
        left = self.store()
        uid, tokens = self.line[number]
        newest = len(self.line) - 1
        before = self.used
        self.used = tokens
        del self.line[number:]
        self.tell(
            ContextReverted(
                reason,
                number,
                uid,
                newest,
                left,
                7,
                4,
                before,
                tokens,
                text=text,
                carried=carried,
            )
        )
        return left

    def rewind(self, number: int) -> int:
        """Rewind, as the user does."""
        n = self.cut(number, "rewind")
        self.tell(LineChanged("rewind", n, 0, ""))
        self.status()
        return n

    def steer(self, text: str) -> None:
        """Add a message that the user sends while the agent works."""
        self.tell(SteerTaken("", text, number=3))

    def dmail(
        self, number: int, letter: str = "Use re.finditer.", carried: tuple[str, ...] = ()
    ) -> int:
        """Send a D-Mail of the agent to checkpoint `number`; return the line that was left."""
        sender = self.step(("SendDMail", {"message": letter, "checkpoint_id": number}), cost=700)
        n = self.cut(number, "dmail", letter, carried)
        self.status(estimated=True)
        self.checkpoint("dmail", f"D-Mail from #{sender}")
        self.used += 300
        self.status(estimated=True)
        return n

    def compact(self, after: int = 21_000) -> int:
        """Compact the context."""
        before = self.used
        self.tell(CompactionBegin(before, automatic=True))
        n = self.store()
        self.line = []
        self.used = after
        self.checkpoint("compaction")
        uid = self.line[0][0]
        self.tell(CompactionEnd(before, after, "A summary.", n), after_s=9.0)
        self.tell(LineChanged("compaction", n, 0, uid))
        self.status(estimated=True)
        return n


def until_folding() -> Teller:
    """Return the story up to the moment before the D-Mail."""
    t = Teller()
    t.turn("Build an importer for our bank statements.")
    for i in range(63):
        t.step(("Shell", {"command": f"make check-{i}"}), cost=3_260)
    t.compact()
    t.status()
    t.end()
    t.turn("Add a CSV importer")
    t.used = 22_800
    t.line[-1] = (t.line[-1][0], 22_800)
    t.records[-1] = EventRecord(
        t.records[-1].seq,
        t.at,
        CheckpointCreated(1, t.line[-1][0], "user", "Add a CSV importer", tokens=22_800),
    )
    t.step(
        ("WriteFile", {"path": "src/csv/importer.py", "content": "…"}),
        cost=3_100,
        files=("a", "b"),
    )
    t.step(("Shell", {"command": "make test"}), cost=2_200)
    t.end()
    t.turn("Use a regular expression for the whole line.")
    for i in range(13):
        if i % 2:
            t.step(("Shell", {"command": "pytest -q"}), cost=2_900, failed=True)
        else:
            t.step(("StrReplaceFile", {"path": "src/csv/tokenizer.py"}), cost=1_100)
    t.end("interrupted")
    t.rewind(4)
    t.turn("Split at the commas first.")
    t.step(text="I split the line at its commas, then join what is quoted.", cost=2_900)
    t.end()
    t.turn("Why is the import slow?")
    t.step(("Glob", {"pattern": "src/csv/*"}), cost=300)
    t.step(("ReadFile", {"path": "src/csv/importer.py"}), cost=1_100)
    t.step(("Grep", {"pattern": "slow"}), cost=800)
    t.step(("Shell", {"command": "head import.log"}), cost=1_900)
    t.step(("ReadFile", {"path": "import.log"}), cost=14_200)
    return t


def until_arrived() -> Teller:
    """Return the story up to the first step after the D-Mail."""
    t = until_folding()
    t.dmail(8)
    t.begin_step()
    return t


def whole_story() -> Teller:
    """Return the story that the pictures of the main screen show: step 5 of the last turn is running."""
    t = until_arrived()
    t.line.pop()
    t.records.pop()
    t.records.pop()
    t.step(("Grep", {"pattern": "find("}), cost=5_300)
    t.step(("Shell", {"command": "git diff"}), cost=6_000)
    t.end()
    t.turn('Fields with "" inside break the importer. Fix it, with a test.')
    t.step(("SetTodoList", {"todos": [{"status": "done"}, {}, {}]}), cost=400)
    t.step(("ReadFile", {"path": "src/csv/tokenizer.py"}), cost=2_100)
    t.step(("StrReplaceFile", {"path": "src/csv/tokenizer.py"}), cost=900, files=("c",))
    t.step(("Shell", {"command": "pytest -q tests/csv"}), cost=1_200, failed=True)
    t.per_step = 17_000
    t.begin_step()
    t.tell(TextPart("One index runs past the end of the last line. I add a"))
    t.status(sent=t.used)
    return t


def many_turns(count: int) -> Teller:
    """Return a session of so many turns of four steps each."""
    t = Teller()
    for i in range(count):
        t.turn(f"Turn {i}")
        for j in range(4):
            t.step(("Shell", {"command": f"run {i}.{j}"}), cost=10)
        t.end()
    return t


def moment_at(replay: Replay, position: int) -> ReplayState:
    """Return the state of a replay at a position, made in one go."""
    slices = replay.slices(position)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value
