"""The look of tool calls: `Card`, which every tool has, and the blocks that results show (diffs, commands, lists, images).

They are plain values that the tools, the wire and the views share, so that none of these needs to know a tool by its name.
The card of a tool is sent and recorded with each of its calls, and so draws them even after the tool is gone. Only the tools
of `KNOWN` need none: records of earlier versions and of kimi-cli contain only their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line

if TYPE_CHECKING:
    from kimi_tui.images import Image

MAX_WORD = 200
"""The largest number of characters of an image's name and type."""
_MAX_SHORT = 40
_MAX_KEYS = 8
_MAX_KEY = 64


RequestKind = Literal["tool", "dmail", "plan", "question", "pause"]
"""The kind of a question to the user: about a call, a D-Mail, a plan, or one of the agent or of the program."""


# -- display blocks


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One row of a diff. `number` is the line's number on its own side, counted from 1."""

    sign: Literal[" ", "-", "+"]
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A change of one file. `lines` may be shortened; `added` and `removed` are always of the whole change."""

    path: str
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    created: bool = False


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A command that ran. `exit_code` is None if it was stopped or never ended."""

    command: str
    exit_code: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the agent's todo list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoBlock:
    """The whole todo list after the call."""

    items: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class BriefBlock:
    """A fact in a few words for the right side of a card: `184 lines`, `6 files`, `no such file`."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """The facts about an image that was sent to the model; its data is stored once, in the session, under its hash.

    Attributes:
        name: the name that the user knows, one clean line; empty if an older record has only a count.
        media_type: `image/png` or the like.
        width, height: the size in pixels, as it was sent.
        n_bytes: the size in bytes.
        sha256: its hash in hexadecimal.
    """

    name: str = ""
    media_type: str = ""
    width: int = 0
    height: int = 0
    n_bytes: int = 0
    sha256: str = ""

    @classmethod
    def of(cls, image: Image) -> ImageBlock:
        """Return the facts of an image, as they are read back from a record."""
        name, n_bytes = one_line(image.name[:MAX_WORD]), len(image.data)
        return cls(name, image.media_type, image.width, image.height, n_bytes, image.sha256)

    @property
    def label(self) -> str:
        """A description in a few words: `image shot.png 640x480`."""
        size = f"{self.width}x{self.height}" if self.width else ""
        return " ".join(word for word in ("image", self.name, size) if word)


def with_names(text: str, images: Sequence[ImageBlock]) -> str:
    """Return a text with the names of its images, each on a line of its own."""
    names = [f"[{image.label}]" for image in images]
    return "\n".join([text, *names] if text.strip() else names or [text])


DisplayBlock = DiffBlock | ShellBlock | TodoBlock | BriefBlock | ImageBlock


# -- cards

Shows = Literal["output", "command", "diff", "list", "answers", "answer", "text", "letter"]
"""The content of a card below its first row, besides the blocks of the result:

- `output`: nothing; the output once the card is unfolded.
- `command`: the last rows of the output. The target is a command, which the user may have replaced with their yes.
- `diff`: the call changes the file that its target names; its result has the diff.
- `list`: the agent's list, which the argument named by the first of `keys` contains.
- `answers`: the output, as questions with answers.
- `answer`: the output, in Markdown, folded; while the call runs, the newest line of what it does.
- `text`: the argument `text`, folded. For a finished call, its output if there is one: the text as the user changed it.
- `letter`: the argument `text`, whole. The call sends it to an earlier checkpoint.
"""
TargetKind = Literal["text", "path", "number", "progress"]
"""The form of a target: one line of text, a path, a number, or the number of finished entries of a list."""
Does = Literal["other", "read", "edit", "execute", "search", "fetch", "think", "switch_mode"]
"""The kind of a tool's calls, in the words of the Agent Client Protocol."""
LIKELY_KEYS = (
    "question",
    "command",
    "path",
    "file_path",
    "url",
    "query",
    "pattern",
    "name",
    "description",
)
"""The arguments that describe a call if its card names none, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Card:
    """The look of a tool's calls.

    Attributes:
        short: the tool's name on the screen; empty to use its full name.
        keys: the arguments that may be the target of a call, of which the first present one is used; empty for `LIKELY_KEYS`.
        kind: the form of the target.
        form: the pattern in which the target is written, with `{}` in its place: `task {}`.
        shows: the content below the first row.
        text: the name of the argument that is shown as a text.
        does: what the calls do, as editors sort calls.
    """

    short: str = ""
    keys: tuple[str, ...] = ()
    kind: TargetKind = "text"
    form: str = "{}"
    shows: Shows = "output"
    text: str = ""
    does: Does = "other"

    @property
    def is_command(self) -> bool:
        """Whether the calls run commands of a shell."""
        return self.shows == "command"

    @property
    def is_letter(self) -> bool:
        """Whether the calls send D-Mails."""
        return self.shows == "letter"


PLAIN = Card()
"""The card of an unknown tool."""
KNOWN: Mapping[str, Card] = {
    "Shell": Card("Shell", ("command",), shows="command", does="execute"),
    "TaskOutput": Card("Output", ("id",), "number", "task {}", does="read"),
    "TaskStop": Card("Stop", ("id",), "number", "task {}"),
    "ReadFile": Card("Read", ("path",), "path", does="read"),
    "WriteFile": Card("Write", ("path",), "path", shows="diff", does="edit"),
    "StrReplaceFile": Card("Edit", ("path",), "path", shows="diff", does="edit"),
    "Glob": Card("Glob", ("pattern",), does="search"),
    "Grep": Card("Grep", ("pattern",), form='"{}"', does="search"),
    "FetchURL": Card("Fetch", ("url",), does="fetch"),
    "SearchWeb": Card("Search", ("query",), form='"{}"', does="search"),
    "SetTodoList": Card("Todo", ("todos",), "progress", shows="list"),
    "SendDMail": Card("D-Mail", ("checkpoint_id",), "number", "to #{}", "letter", "message"),
    "AskUserQuestion": Card("Ask", shows="answers"),
    "ExitPlanMode": Card("Plan", shows="text", text="plan", does="switch_mode"),
    # Editors know a sub-agent by this word, as Claude Code tells of its own.
    "Agent": Card("Agent", ("description",), shows="answer", does="think"),
}
"""The cards of the tools that records name without a card: those of this program before cards were recorded."""
COMMANDS = frozenset(name for name, card in KNOWN.items() if card.is_command)
"""The tools of `KNOWN` that run commands."""
OWN_COMMAND = "Shell"
"""The name of the tool for a command that the user ran."""
IN_THE_WAY = "The sandbox blocked"
"""The beginning of the sentence in a result about a refusal of the sandbox."""
ALLOWED_BY = "To allow it, add to the section [sandbox] of config.toml: "
"""The beginning of the last fact about a command whose read was refused, followed by the setting; a card shows it in rows of its own."""
CardOf = Callable[[str], Card]
"""A function that returns the card of a tool by its full name."""
_SHORT = frozenset(card.short for card in KNOWN.values())


def card_of(tool: str, given: Card | None = None) -> Card:
    """Return the card of a tool by its full name: that of `KNOWN`, else the given one, else a plain one."""
    return KNOWN.get(tool) or given or PLAIN


def short_name(tool: str, card: Card | None = None) -> str:
    """Return the name of a tool on the screen: `Read`, and `server/tool` for tools of a server.

    Args:
        tool: the full name of the tool.
        card: its card, if the name is not in `KNOWN`. A card cannot use the short name of a tool of `KNOWN`.
    """
    known = KNOWN.get(tool)
    if known is not None:
        return known.short
    short = one_line(card.short[:_MAX_SHORT]) if card is not None else ""
    if short and short not in _SHORT:
        return short
    return one_line(tool.removeprefix("mcp__").replace("__", "/", 1)) or "tool"


AGENT_NAMES = frozenset({"Agent", "Task"})
"""The names of the tool that starts sub-agents: ours, and that of other programs, by which a model may call it too."""
CALL_TOOL = "CallTool"
"""The tool that calls the one that its argument `tool` names, for servers whose tools are looked up."""


def server_of(tool: str) -> str:
    """Return the MCP server in the full name of a tool, `mcp__SERVER__TOOL`; empty if the name has none."""
    server = tool.removeprefix("mcp__").partition("__")[0] if tool.startswith("mcp__") else ""
    return one_line(server[:_MAX_SHORT])


def card_record(card: Card) -> dict[str, object]:
    """Return the card as a JSON object, without the fields that equal those of a plain card."""
    values: dict[str, object] = {**asdict(card), "keys": list(card.keys)}
    usual = {**asdict(PLAIN), "keys": list[str]()}
    return {name: value for name, value in values.items() if value != usual[name]}


def card_from(record: Mapping[str, object]) -> Card:
    """Return the card of a JSON object, bounded; invalid fields get the values of a plain card."""
    short, form, text = (
        one_line(value[:_MAX_KEY]) if isinstance(value := record.get(key), str) else ""
        for key in ("short", "form", "text")
    )
    keys = lenient_json.listing(record.get("keys"))
    named = [one for one in keys[:_MAX_KEYS] if isinstance(one, str)]
    kind, shows, does = record.get("kind"), record.get("shows"), record.get("does")
    return Card(
        short[:_MAX_SHORT],
        tuple(one[:_MAX_KEY] for one in named),
        cast(TargetKind, kind) if kind in get_args(TargetKind) else PLAIN.kind,
        form if "{}" in form else PLAIN.form,
        cast(Shows, shows) if shows in get_args(Shows) else PLAIN.shows,
        text,
        cast(Does, does) if does in get_args(Does) else PLAIN.does,
    )
