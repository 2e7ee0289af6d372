"""The time travel of an editor's session: slash commands that show what they would take before they take it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import counted, some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.session.errors import SessionError
from kimi_tui.soul.checkpoint_table import CheckpointRow, list_checkpoints, shown_lines
from kimi_tui.soul.errors import SoulBusy, SoulError
from kimi_tui.soul.rewind_values import END, FilesChoice, FilesPreview, RewindPreview, Target
from kimi_tui.wire.events import LeftBehind, toll_words

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul

_MOST_ROWS = 60
_MOST_FILES = 12
_LABEL_CHARS = 80
_FILES_CHOICES: Mapping[str, FilesChoice] = {
    "restore-files": "restore",
    "restore": "restore",
    "keep-files": "keep",
    "keep": "keep",
    "files-only": "only",
    "only": "only",
}
"""The words that may follow the number of a checkpoint."""

Asker = Callable[[str, str, Sequence[tuple[str, str]]], Awaitable[str]]
"""Asks the person: a title, a text in Markdown, and the answers as pairs of value and words. It returns a value; empty for no."""


class EditorCommand(NamedTuple):
    """A slash command that the editor offers.

    Attributes:
        help: what it does, in one line.
        hint: its argument, as the editor shows it; empty for none.
    """

    help: str
    hint: str = ""


COMMANDS: Mapping[str, EditorCommand] = {
    "rewind": EditorCommand(
        "Rewind to just before a checkpoint, and restore its files if you want",
        "N [restore-files | keep-files | files-only]",
    ),
    "undo": EditorCommand(
        "Undo the last rewind, switch, D-Mail (a note to the past), compaction or clear"
    ),
    "redo": EditorCommand("Redo the last undo"),
    "checkpoints": EditorCommand("List the checkpoints of this conversation"),
    "worldlines": EditorCommand("List the other world lines (branches of this conversation)"),
    "switch": EditorCommand("Switch to a world line (a branch)", "K"),
    "compact": EditorCommand("Replace older messages with a summary", "what the summary must keep"),
}


class EditorTravel:
    """Carries out the commands.

    Args:
        soul: the engine.
        ask: asks the person before something is taken.
    """

    def __init__(self, soul: KimiSoul, ask: Asker) -> None:
        self._soul = soul
        self._ask = ask

    async def run(self, name: str, argument: str) -> str:
        """Carry out one of `COMMANDS`; return what to say, as Markdown. An error is returned as a sentence, too."""
        try:
            match name:
                case "rewind":
                    return await self._rewind(argument)
                case "switch":
                    return await self._switch(argument)
                case "undo":
                    return await self._undo()
                case "redo":
                    return (await self._soul.travel.redo()).text
                case "compact":
                    return await self._compact(argument)
                case "checkpoints":
                    return _table(await self._checkpoints())
                case _:
                    return await self._world_lines()
        except SoulError as error:
            return f"{error.message} {error.advice}".strip()
        except (SoulBusy, SessionError) as error:
            return str(error)
        except KeyError as error:
            return (
                str(error.args[0])
                if error.args
                else "There is no such checkpoint. /checkpoints lists them."
            )
        except OSError as error:
            return f"Nothing changed: {reason_of(error)}."

    async def _checkpoints(self) -> Sequence[CheckpointRow]:
        await self._soul.flush()
        return await in_daemon_thread(list_checkpoints, self._soul.session)

    async def _rewind(self, argument: str) -> str:
        number, _, said = argument.strip().removeprefix("#").partition(" ")
        if not (number.isascii() and number.isdecimal()):
            return "Which checkpoint? Write its number, for example /rewind 3; /checkpoints lists them."
        if (said := said.strip()) not in ("", *_FILES_CHOICES):
            return f'"{one_line(said)[:20]}" is not an option. After the number, write restore-files (conversation and files), keep-files (the conversation only) or files-only.'
        n = int(number[:9])
        return await self._go(Target(n), f"checkpoint #{n}", "Rewind to", said)

    async def _switch(self, argument: str) -> str:
        word = argument.strip()
        if not (word.isascii() and word.isdecimal()):
            return (
                "Which world line? Write its number, for example /switch 1; /worldlines lists them."
            )
        return await self._go(
            Target(END, int(word[:9])), f"world line {int(word[:9])}", "Switch to"
        )

    async def _go(self, target: Target, where: str, doing: str, said: str = "") -> str:
        """Go there after a question; with `said`, the choice about the files, the only yes is that one."""
        await self._soul.files_ready()
        preview = await self._soul.travel.preview(target)
        files = preview.files or FilesPreview()
        answers = [("keep", f"{doing} {where}, keep the files")]
        if files.restorable and not files.reason:
            n_files = counted(len(files.restorable), "file")
            answers = [
                ("restore", f"{doing} {where}, restore {n_files}"),
                ("only", f"Restore {n_files}, keep the conversation"),
                # Some editors offer only the last answer of a kind, which should change the least.
                *answers,
            ]
        if said:
            answers = [one for one in answers if one[0] == _FILES_CHOICES[said]]
        if not answers:
            return "There are no files to restore."
        removed = f"{counted(preview.steps, 'step')}, {counted(preview.messages, 'message')}"
        title = answers[0][1] if said else f"{doing} {where}: removes {removed}"
        chosen = await self._ask(title, _would(preview, files), answers)
        if chosen not in ("keep", "restore", "only"):
            return "Nothing changed."
        choice: FilesChoice = chosen
        outcome = await self._soul.travel.rewind(target, choice)
        words = (
            [f"Restored the files of {where}."]
            if choice == "only"
            else [f"The conversation is now at {where}."]
        )
        if choice != "only":
            words.append(
                f"{counted(outcome.messages_dropped, 'message')} removed from the context; /undo reverses this."
            )
        if outcome.changed:
            words.append(f"Files restored: {some_of(outcome.changed, _MOST_FILES)}.")
        if outcome.conflicts:
            words.append(
                f"Not restored, because also changed outside kimi-tui: {some_of(outcome.conflicts, _MOST_FILES)}."
            )
        if outcome.prompt:
            words.append(
                f"Your message at that checkpoint was: {one_line(outcome.prompt)[: _LABEL_CHARS * 4]}"
            )
        if choice != "only":
            words.append(
                "The editor still shows the removed messages; the agent no longer sees them."
            )
        return " ".join(words)

    async def _compact(self, argument: str) -> str:
        used = self._soul.status.used
        rows = [
            f"- a summary replaces the older messages of the context, which has {used:,} tokens",
            "- the summary is one request to the model",
            "- the messages become a world line (a branch); /undo restores them",
        ]
        answers = [("compact", "Compact the context")]
        if not await self._ask("Compact the context", "\n".join(rows), answers):
            return "Nothing changed."
        # The event of the compaction says what it did.
        return "" if await self._soul.compact(argument) else "Nothing was compacted."

    async def _undo(self) -> str:
        """Undo, after a question if the conversation has gone on since the operation, as the app does."""
        found = await self._soul.travel.preview_undo()
        files = found.files or FilesPreview()
        stays = tuple(one_line(one.path) for one in files.files if one.fate == "skip")
        toll = toll_words(LeftBehind(found.steps, found.messages, stays, ""), found.left_as)
        undo = [("undo", f"Undo {found.label}")]
        if toll and not await self._ask(f"Undo {found.label}", f"{toll}.", undo):
            return "Nothing changed."
        return (await self._soul.travel.undo()).text

    async def _world_lines(self) -> str:
        found = await self._soul.lines.all()
        if not found:
            return "There is no other world line yet. A rewind, D-Mail or compaction creates one."
        await self._soul.flush()
        names = await in_daemon_thread(shown_lines, self._soul.session)
        rows = [
            f"- **{line.n}** {one_line(names[line.n].name)[:_LABEL_CHARS] if line.n in names else ''} "
            f"({counted(line.n_messages, 'message')}, created by {line.reason})"
            for line in found[-_MOST_ROWS:]
        ]
        return "\n".join([*rows, "", "/switch K continues on one of them."])


def _would(preview: RewindPreview, files: FilesPreview) -> str:
    """Say what an operation would take, as Markdown."""
    about = "about " if preview.estimated else ""
    rows = [
        f"- removes {counted(preview.steps, 'step')}, {counted(preview.messages, 'message')}",
        f"- context: {about}{preview.tokens_before:,} tokens before, {about}{preview.tokens_after:,} after",
    ]
    if files.reason:
        rows.append(f"- files stay as they are: {one_line(files.reason)}")
    elif files.restorable:
        named = some_of([one_line(one.path) for one in files.restorable], _MOST_FILES)
        rows.append(f"- can restore {named}")
    if files.conflicts:
        named = some_of([one_line(one.path) for one in files.conflicts], _MOST_FILES)
        rows.append(f"- not restored, because also changed outside kimi-tui: {named}")
    if preview.servers:
        rows.append(
            f"- not undone: what these MCP servers did: {', '.join(map(one_line, preview.servers))}"
        )
    if preview.ran_commands:
        rows.append("- not undone: changes that commands made outside this folder")
    return "\n".join([*rows, "", "The removed messages become a world line (a branch)."])


def _table(rows: Sequence[CheckpointRow]) -> str:
    if not rows:
        return "There is no checkpoint yet."
    shown = [
        f"- **#{row.id}** {one_line(row.label)[:_LABEL_CHARS]}"
        + (f", {counted(row.files_changed, 'file')} changed" if row.files_changed else "")
        for row in rows[-_MOST_ROWS:]
    ]
    left = len(rows) - len(shown)
    head = [f"({left:,} earlier ones are not shown)", ""] if left > 0 else []
    return "\n".join([*head, *shown, "", "/rewind N rewinds to just before checkpoint N."])
