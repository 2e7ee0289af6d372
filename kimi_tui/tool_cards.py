"""How the calls of tools look: `Card`, which every tool has, and the blocks that its results show (diffs, commands, lists, images).

Plain values that the tools, the wire and the views share, so that none of these knows a tool by its name. The card of a tool
travels with each of its calls, is recorded with them, and draws them also where the tool is not there any more. Only the tools
of `KNOWN` need none: records of earlier versions and of kimi-cli name them and say nothing else.
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
"""Characters of the name and of the type of an image that are kept."""
_MAX_SHORT = 40
_MAX_KEYS = 8
_MAX_KEY = 64


RequestKind = Literal["tool", "dmail", "plan", "question", "pause"]
"""How a question is put to the user: about a call, a D-Mail, a plan, as one of the agent's or of the program."""


# Display blocks.


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One row of a diff. `number` is the line's number on its own side, counted from 1."""

    sign: Literal[" ", "-", "+"]
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A change of one file. `lines` may be cut; `added` and `removed` always count the whole change."""

    path: str
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    created: bool = False


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A command that ran. `exit_code` is None where it was stopped or never ended."""

    command: str
    exit_code: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the agent's list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoBlock:
    """The whole list as it is after the call."""

    items: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class BriefBlock:
    """A fact in a few words for the right side of a card: `184 lines`, `6 files`, `no such file`."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image that went to the model, by its facts: what it shows is stored once, in the session, under its hash.

    Attributes:
        name: what the user knows it by, one clean line; empty where an older record only counts.
        media_type: `image/png` or the like.
        width, height: in pixels, as it was sent.
        n_bytes: its size.
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
        """The facts of an image, as they are read again where they were written."""
        name, n_bytes = one_line(image.name[:MAX_WORD]), len(image.data)
        return cls(name, image.media_type, image.width, image.height, n_bytes, image.sha256)

    @property
    def label(self) -> str:
        """It in a few words: `image shot.png 640x480`."""
        size = f"{self.width}x{self.height}" if self.width else ""
        return " ".join(word for word in ("image", self.name, size) if word)


def with_names(text: str, images: Sequence[ImageBlock]) -> str:
    """A text with the images that go with it by name, each on a line of its own."""
    names = [f"[{image.label}]" for image in images]
    return "\n".join([text, *names] if text.strip() else names or [text])


DisplayBlock = DiffBlock | ShellBlock | TodoBlock | BriefBlock | ImageBlock


# Cards.

Shows = Literal["output", "command", "diff", "list", "answers", "text", "letter"]
"""What a card shows below its first row, beside the blocks of the result, and what its calls are:

- `output`: nothing, and the output once it is unfolded.
- `command`: the last rows of the output. The target is a command, which the user may have replaced with their yes.
- `diff`: the call changes the file that its target names; its result has the diff.
- `list`: the agent's list, which the first of `keys` has whole.
- `answers`: the output, as questions with answers.
- `text`: the argument `text`, folded. Of a call that is done, the output where there is one: the text as the user changed it.
- `letter`: the argument `text`, whole. The call sends it to an earlier checkpoint.
"""
TargetKind = Literal["text", "path", "number", "progress"]
"""How a target is read: as one line of text, a path, a number, or how many entries of a list are done."""
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
"""The arguments that say what a call is about where its card does not name one, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Card:
    """How the calls of a tool look.

    Attributes:
        short: the tool's name on the screen; empty where its full name serves.
        keys: the arguments that say what a call is about, the first of which that is there does; empty for the likely ones.
        kind: how that is read.
        form: how it is written, with `{}` in its place: `job {}`.
        shows: what stands below the first row.
        text: the argument that is shown as a text.
    """

    short: str = ""
    keys: tuple[str, ...] = ()
    kind: TargetKind = "text"
    form: str = "{}"
    shows: Shows = "output"
    text: str = ""

    @property
    def is_command(self) -> bool:
        """Whether the calls run commands of a shell."""
        return self.shows == "command"

    @property
    def is_letter(self) -> bool:
        """Whether the calls send D-Mails."""
        return self.shows == "letter"


PLAIN = Card()
"""The card of a tool of which nothing is known."""
KNOWN: Mapping[str, Card] = {
    "Shell": Card("Shell", ("command",), shows="command"),
    "TaskOutput": Card("Output", ("id",), "number", "job {}"),
    "TaskStop": Card("Stop", ("id",), "number", "job {}"),
    "ReadFile": Card("Read", ("path",), "path"),
    "WriteFile": Card("Write", ("path",), "path", shows="diff"),
    "StrReplaceFile": Card("Edit", ("path",), "path", shows="diff"),
    "Glob": Card("Glob", ("pattern",)),
    "Grep": Card("Grep", ("pattern",), form='"{}"'),
    "SetTodoList": Card("Todo", ("todos",), "progress", shows="list"),
    "SendDMail": Card("D-Mail", ("checkpoint_id",), "number", "to #{}", "letter", "message"),
    "AskUserQuestion": Card("Ask", shows="answers"),
    "ExitPlanMode": Card("Plan", shows="text", text="plan"),
}
"""The cards of the tools that records name without a card: those of this program when cards were not recorded yet."""
COMMANDS = frozenset(name for name, card in KNOWN.items() if card.is_command)
"""Those of `KNOWN` that run commands."""
OWN_COMMAND = "Shell"
"""The tool in whose name a command that the user ran themselves is told."""
CardOf = Callable[[str], Card]
"""Returns the card of a tool by its full name."""
_SHORT = frozenset(card.short for card in KNOWN.values())


def card_of(tool: str, given: Card | None = None) -> Card:
    """The card of a tool by its full name: that of `KNOWN`, else the one that was given for it, else a plain one."""
    return KNOWN.get(tool) or given or PLAIN


def short_name(tool: str, card: Card | None = None) -> str:
    """How a tool is called on the screen: `Read`, and `server/tool` for tools of a server.

    Args:
        tool: its full name.
        card: its card, where it is not known by its name. The name of a tool of `KNOWN` in it counts for nothing.
    """
    known = KNOWN.get(tool)
    if known is not None:
        return known.short
    short = one_line(card.short[:_MAX_SHORT]) if card is not None else ""
    if short and short not in _SHORT:
        return short
    return one_line(tool.removeprefix("mcp__").replace("__", "/", 1)) or "tool"


def card_record(card: Card) -> dict[str, object]:
    """The card as a JSON object, without what it has in common with a plain one."""
    values: dict[str, object] = {**asdict(card), "keys": list(card.keys)}
    usual = {**asdict(PLAIN), "keys": list[str]()}
    return {name: value for name, value in values.items() if value != usual[name]}


def card_from(record: Mapping[str, object]) -> Card:
    """The card that a JSON object says, bounded; what makes no sense is as in a plain one."""
    short, form, text = (
        one_line(value[:_MAX_KEY]) if isinstance(value := record.get(key), str) else ""
        for key in ("short", "form", "text")
    )
    keys = lenient_json.listing(record.get("keys"))
    named = [one for one in keys[:_MAX_KEYS] if isinstance(one, str)]
    kind, shows = record.get("kind"), record.get("shows")
    return Card(
        short[:_MAX_SHORT],
        tuple(one[:_MAX_KEY] for one in named),
        cast(TargetKind, kind) if kind in get_args(TargetKind) else PLAIN.kind,
        form if "{}" in form else PLAIN.form,
        cast(Shows, shows) if shows in get_args(Shows) else PLAIN.shows,
        text,
    )
