"""Conversations as streams of wire events, for tests of what draws them."""

from __future__ import annotations

import json
import time
from typing import Any

from kimi_tui.tool_cards import (
    BriefBlock,
    DiffBlock,
    DiffLine,
    DisplayBlock,
    ShellBlock,
    TodoBlock,
    TodoItem,
)
from kimi_tui.wire.events import (
    CheckpointCreated,
    ContextReverted,
    Event,
    EventRecord,
    MarksChanged,
    StatusUpdate,
    StepBegin,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnBegin,
    TurnEnd,
)


def named(*names: tuple[str, str]) -> EventRecord:
    """Return a record that names checkpoints, by uid."""
    return EventRecord(0, 0.0, MarksChanged(names))


def pinned(*pins: tuple[str, int]) -> EventRecord:
    """Return a record that pins messages, by the uids of checkpoints and the messages' numbers."""
    return EventRecord(0, 0.0, MarksChanged(pins=pins))


class Conversation:
    """Makes the events that the soul would publish. `records` has all of them; `take` returns the newest."""

    def __init__(self, *, started: float | None = None, tokens: int = 20_000) -> None:
        self.records: list[EventRecord] = []
        self.now = time.time() if started is None else started
        self.tokens = tokens
        self.checkpoint = 0
        self._taken = 0
        self._calls = 0
        self._step = 0

    def take(self) -> list[EventRecord]:
        """Return the records since the last call."""
        new = self.records[self._taken :]
        self._taken = len(self.records)
        return new

    def tell(self, event: Event, *, after_s: float = 0.0) -> None:
        """Add one event."""
        self.now += after_s
        self.records.append(EventRecord(len(self.records) + 1, self.now, event))

    def user(self, text: str) -> None:
        """Add a message of the user: a turn with its checkpoint."""
        self.tell(TurnBegin(text))
        self.mark("user", text)
        self._step = 0

    def mark(self, kind: Any, label: str = "") -> None:
        """Add a checkpoint."""
        uid = f"uid{self.checkpoint}-{len(self.records)}"
        self.tell(CheckpointCreated(self.checkpoint, uid, kind, label, self.tokens))
        self.checkpoint += 1

    def step(self, *, think: str = "", think_s: float = 0.0, text: str = "") -> None:
        """Add a model call that begins and says something."""
        self._step += 1
        self.tell(StepBegin(self._step))
        self.mark("step")
        self.tell(StatusUpdate(self.tokens, 262_144, 212_000, step_input=self.tokens))
        if think:
            half = len(think) // 2
            self.tell(ThinkPart(think[:half]))
            self.tell(ThinkPart(think[half:]), after_s=think_s)
        if text:
            self.tell(TextPart(text))

    def tool(
        self,
        name: str,
        arguments: dict[str, Any],
        output: str = "",
        *display: DisplayBlock,
        cost: int = 1_000,
        error: bool = False,
        **result: Any,
    ) -> None:
        """Add a tool call from its beginning to its result."""
        key = self.call(name, arguments)
        self.tell(ToolStarted(key, name, json.dumps(arguments)))
        self.tell(ToolResult(key, error, output, display=display, **result))
        self.tokens += cost
        self.tell(StatusUpdate(self.tokens, 262_144, 212_000))

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Add a tool call that the model writes; return its key."""
        self._calls += 1
        key = f"call{self._calls}"
        self.tell(ToolCall(key, name, json.dumps(arguments)))
        return key

    def end(self, reason: Any = "done", **more: Any) -> None:
        """End the turn."""
        self.tell(TurnEnd(reason, **more))

    def letter(
        self,
        to: int,
        text: str,
        *,
        world_line: int = 3,
        after: int | None = None,
        carried: tuple[str, ...] = (),
    ) -> None:
        """Add a D-Mail that arrives: the line is cut and goes on."""
        before = self.tokens
        self.tokens = before - 18_400 if after is None else after
        self.tell(
            ContextReverted(
                "dmail",
                to,
                f"uid{to}",
                self.checkpoint - 1,
                world_line,
                8,
                5,
                before,
                self.tokens,
                text=text,
                carried=carried,
            )
        )
        self.checkpoint = to
        self.mark("dmail", f"from #{to}")


TOKENIZER_DIFF = DiffBlock(
    "src/csv/tokenizer.py",
    3,
    1,
    (
        DiffLine(" ", 41, "        if ch == QUOTE:"),
        DiffLine("-", 42, "            return self._field(start, i)"),
        DiffLine("+", 42, "            if text[i + 1 : i + 2] != QUOTE:"),
        DiffLine("+", 43, "                return self._field(start, i)"),
        DiffLine("+", 44, "            i += 1"),
    ),
)


def quoted_fields() -> Conversation:
    """Return the conversation of the main picture: a diagnosis, a list, an edit and a test that fails, still streaming."""
    talk = Conversation(tokens=53_700)
    talk.checkpoint = 11
    talk.user('Fields with "" inside break the importer. Fix it, with a test.')
    talk.checkpoint = 12
    talk.step(
        think="\n".join(f"Thought number {n} about quotes." for n in range(12)),
        think_s=6.0,
        text=(
            "The tokenizer ends a field at the first quote. It never looks at the next character, so an escaped "
            "quote ends the field too early:\n\n"
            '```python\nif ch == QUOTE:\n  return self._field(start, i)   # "" is an escape, not the end\n```\n\n'
            '1. Write a test that fails on "a ""quoted"" word"\n'
            "2. Look one character ahead before closing a field\n3. Run the whole suite\n"
        ),
    )
    todo = TodoBlock(
        (
            TodoItem("A test that fails", "done"),
            TodoItem("Look one character ahead", "in_progress"),
            TodoItem("Run the whole suite", "pending"),
        )
    )
    talk.tool("SetTodoList", {"todos": []}, "updated", todo, cost=0)
    talk.step()
    talk.tool(
        "ReadFile",
        {"path": "src/csv/tokenizer.py"},
        "text\n" * 184,
        BriefBlock("184 lines"),
        cost=2_100,
    )
    talk.step()
    talk.tool(
        "StrReplaceFile",
        {"path": "src/csv/tokenizer.py", "edit": {}},
        "ok",
        TOKENIZER_DIFF,
        cost=900,
    )
    talk.step()
    talk.tool(
        "Shell",
        {"command": "pytest -q tests/csv"},
        "FAILED tests/csv/test_quotes.py::test_escaped - IndexError\n1 failed, 6 passed in 0.41s\n",
        ShellBlock("pytest -q tests/csv", 1, 2.4),
        cost=1_200,
        error=True,
    )
    talk.step(text="One index runs past the end of the last line. I add a")
    return talk


def slow_import() -> Conversation:
    """Return the conversation of the D-Mail pictures, up to the D-Mail being written."""
    talk = Conversation(tokens=31_000)
    talk.checkpoint = 6
    talk.user("Why is the import slow?")
    talk.step(text="I look at what the importer does with each line.")
    talk.tool("Glob", {"pattern": "src/csv/*"}, "", BriefBlock("6 files"), cost=300)
    talk.step()
    talk.tool(
        "ReadFile", {"path": "src/csv/importer.py"}, "x\n", BriefBlock("212 lines"), cost=1_100
    )
    talk.step()
    talk.tool("Grep", {"pattern": "slow"}, "x", BriefBlock("4 matches"), cost=800)
    talk.step()
    talk.tool(
        "Shell",
        {"command": "head import.log"},
        "",
        ShellBlock("head import.log", 0, 0.1),
        cost=1_900,
    )
    talk.step(text="The log may name the line. I read it.")
    log = "\n".join(f"2026-03-02 09:14:07 INFO  row {n} in 0.8 ms" for n in range(1, 2001))
    talk.tool(
        "ReadFile",
        {"path": "import.log"},
        log,
        BriefBlock("40 MB, cut at 2,000 lines"),
        cost=14_200,
    )
    return talk


LETTER = (
    "Do not read import.log whole: it is 40 MB and says nothing. The time goes into str.find on line 212, once per "
    "character. Use re.finditer."
)
