"""The prompt's other uses: shell commands of the user (`!`), notes for AGENTS.md (`#`), and writing in an editor.

Also the rows above the prompt, which name the mode and list waiting messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from textual.app import App, SuspendNotSupported

from kimi_tui.app_paths import reason_of, short
from kimi_tui.display_names import CHIP_START
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.tui.faults import start_detached
from kimi_tui.tui.keyboard import SeenQuestion
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.prompt.completion import typed_mention
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.textual_patches.app import driver_of

NOTES = "AGENTS.md"
T = TypeVar("T")


def is_command(text: str) -> bool:
    """Return whether a text is a shell command of the user's own, maybe still empty; a space before it makes any text a message.

    That is one line of `!` or `!!` with what begins a command. Several lines, `!!! note` and `![picture](a.png)` are messages:
    such text is pasted, and nobody meant to run it.
    """
    if not text.startswith("!") or "\n" in text.rstrip():
        return False
    first = text[2 if text.startswith("!!") else 1 :].lstrip()[:1]
    return not first or first.isalpha() or first in "./~"


def is_note(text: str) -> bool:
    """Return whether a text is a note for AGENTS.md (`#`), maybe still empty; with several lines, or several #, it is a message."""
    return text.startswith("#") and text[1:2] != "#" and "\n" not in text.rstrip()


class PromptModes:
    """Runs shell commands and stores notes that are typed into the prompt, and opens its text in an editor.

    Args:
        bench: the workbench with the prompt.
        conversation: runs the shell commands, and has the waiting messages.
    """

    def __init__(self, bench: Workbench, conversation: ConversationController) -> None:
        self._bench = bench
        self._conversation = conversation
        self._to_note = ""
        """The note that the user was asked to confirm; empty for none."""
        self._asked = SeenQuestion(bench.screen)
        """Whether the question about the note was painted."""
        self._edits = False
        """Whether an editor is running."""

    # --- what is said over the field

    def waiting(self) -> list[str]:
        """Return the rows above the field that list the messages waiting for the end of the turn."""
        conversation = self._conversation
        rows = [
            f"queued until the turn ends: {one_line(text)}" for text in conversation.follow_ups[-3:]
        ]
        if (more := len(conversation.follow_ups) - len(rows)) > 0:
            rows.insert(0, f"queued until the turn ends: {more} more")
        return rows

    def writing(self) -> str:
        """Return the row above the field that says what the text is: a shell command or a note; empty for a message."""
        area = self._bench.prompt.area
        if area.text.strip() not in ("", self._to_note):
            self._to_note = ""
        completion = area.completion
        if completion is not None and area.is_searching:
            return completion.search_words(area.text)
        if (chip := area.chip) is not None and area.selection.end[1] < chip[2]:
            what = "the image" if chip[0].startswith(CHIP_START) else "the pasted text"
            return f"Enter or Space opens {what}, Backspace removes it"
        work_dir = Path(self._bench.transcript.work_dir)
        where = short(work_dir)
        is_listing = completion is not None and completion.files.is_listing
        if is_listing and typed_mention(area.typed) is not None:
            return f"Listing the files of {where} …"
        if is_command(area.text):
            told = (
                "the agent does not see it"
                if area.text.startswith("!!")
                else "the agent sees the output"
            )
            later = " after the turn" if self._conversation.state.running else ""
            return f"Runs{later} outside the sandbox; {told}. It runs in {where}"
        if area.text.startswith("!"):
            why = (
                "it has more than one line"
                if "\n" in area.text.rstrip()
                else "no command begins like that"
            )
            return f"This is sent to the agent as a message, not run as a command: {why}"
        if is_note(area.text):
            return f"Adds a line to {short(work_dir / NOTES)}"
        state = self._conversation.state
        if state.running and area.text and not area.text.startswith("/"):
            if state.waits_for_own:
                return "Enter sends it when your command has ended"
            if not state.takes_steers:
                return "Enter sends it when the turn has ended"
            return "Enter sends it to the working agent; Tab queues it for after the turn"
        return ""

    # --- commands and notes

    def forget_note(self) -> None:
        """Forget which note was asked about: nobody may have seen that."""
        self._to_note = ""

    def handle(self, text: str) -> bool:
        """Run a sent text that is a shell command, or store one that is a note; return False for any other."""
        if is_command(text):
            self._run(text)
        elif is_note(text):
            self._note(text.strip())
        else:
            return False
        return True

    def _run(self, text: str) -> None:
        bench = self._bench
        told = not text.startswith("!!")
        command = text[1 if told else 2 :].strip()
        if not command:
            bench.tell(
                "Type a command after the !",
                advice="!! hides the command and its output from the agent.",
            )
            bench.keep(text)
            return
        bench.add_to_history(text)
        if not self._conversation.state.running:
            bench.transcript.scroll_to_end()
        self._conversation.run_command(command, text, told=told)

    def _note(self, text: str) -> None:
        bench = self._bench
        path = Path(bench.transcript.work_dir) / NOTES
        note = text[1:].strip()
        if not note:
            bench.tell("Type a note after the #", advice=f"It is added to {short(path)}.")
            bench.keep(text)
            return
        if self._to_note != text or not self._asked.accepts(bench.prompt.area.key_at):
            self._to_note = text
            self._asked.ask(is_expected=True)
            bench.tell(
                f"Add this line to {short(path)}?",
                advice="Enter adds it. Put a space before the # to send it as a message.",
            )
            bench.keep(text)
            return
        self._to_note = ""
        bench.add_to_history(text)
        bench.start(self._write_note(path, note))

    async def _write_note(self, path: Path, note: str) -> None:
        try:
            await asyncio.to_thread(append_note, path, note)
        except OSError as error:
            self._bench.tell(
                f"The note was not added to {short(path)}: {reason_of(error, named_in_text=path)}.",
                level="error",
            )
            self._bench.keep(f"#{note}")
            return
        self._bench.tell(f"Added to {short(path)}. The agent reads it when a session starts.")

    # --- the editor

    async def open_editor(self) -> None:
        """Edit the text of the prompt in the user's own editor (`$VISUAL`, `$EDITOR`)."""
        bench = self._bench
        if self._edits:
            return  # the keys were pressed twice; two editors cannot share a terminal
        import shlex

        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
        try:
            argv = shlex.split(editor)
        except ValueError:
            argv = []
        if not argv:
            argv = await asyncio.to_thread(usual_editor, Path(bench.transcript.work_dir))
        if not argv:
            bench.tell(
                "No editor is set, and neither vi nor nano was found.",
                advice="Set $VISUAL or $EDITOR, for example EDITOR=vim.",
            )
            return
        self._edits = True
        try:
            program = await asyncio.to_thread(_editor, argv[0], Path(bench.transcript.work_dir))
            if program is None:
                bench.tell(
                    f'The editor "{argv[0]}" is not on the PATH, or is in a folder to which sandboxed commands can write.',
                    advice="Set $VISUAL or $EDITOR to another one.",
                    level="error",
                )
                return
            argv[0] = program
            text = await in_terminal(
                app_of(bench.screen), lambda: edited(argv, bench.prompt.area.message)
            )
        except SuspendNotSupported:
            bench.tell("No editor can be started here: it needs a terminal.", level="warning")
            return
        except OSError as error:
            bench.tell(f"{argv[0]} could not be started: {reason_of(error)}.", level="error")
            return
        finally:
            self._edits = False
        if text is None:
            bench.tell(f"{argv[0]} ended with an error. The draft is unchanged.", level="warning")
        else:
            if not text.strip() and (draft := bench.prompt.area.message).strip():
                bench.add_to_history(draft)
                bench.tell(
                    "The file was empty, so the prompt is empty now. Press Up to get the draft again."
                )
            bench.prompt.area.put(text)
        bench.focus_prompt()


async def in_terminal(app: App[object], work: Callable[[], T]) -> T:
    """Run a function, such as an editor, that has the terminal to itself; the agent works on and is drawn afterwards.

    Args:
        app: the app, which is suspended meanwhile.
        work: the function; called in a thread.

    Returns:
        the result of the function.

    Raises:
        SuspendNotSupported: the app has no terminal.
    """
    driver = driver_of(app)
    with app.suspend():
        # No output can be written while the function runs: the thread that writes has ended.
        if driver is not None:
            driver.write = lambda data: None
        with app.batch_update():
            # An error raised inside of `suspend` would leave the terminal as it is.
            done = start_detached(asyncio.to_thread(work))
            await asyncio.wait([done])
        if driver is not None:
            del driver.write
    app.refresh(layout=True)
    return done.result()


def append_note(path: Path, note: str) -> None:
    """Append a line to a file of notes, creating the file where it is missing.

    Raises:
        OSError: the file cannot be written, is a link, or has further hard links, which may be outside of the folder.
    """
    handle = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        found = os.fstat(handle)
        if found.st_nlink > 1:
            raise OSError(errno.EMLINK, "the file has a second hard link")
        size = found.st_size
        begins = not size or os.pread(handle, 1, size - 1) == b"\n"
        os.write(handle, f"{'' if begins else chr(10)}- {note}\n".encode("utf-8", "replace"))
    finally:
        os.close(handle)


def _editor(name: str, work_dir: Path) -> str | None:
    from kimi_tui.tools.programs import find_program

    return find_program(name, os.environ, work_dir)


def usual_editor(work_dir: Path) -> list[str]:
    """Return the command of the editor if none is set: vi, else nano; empty if there is neither.

    Args:
        work_dir: programs below it are not run.
    """
    from kimi_tui.tools.programs import find_program

    found = (find_program(name, os.environ, work_dir) for name in ("vi", "nano"))
    return [program for program in found if program is not None][:1]


def edited(argv: Sequence[str], text: str) -> str | None:
    """Edit a text in an editor. Blocks until the editor ends.

    Args:
        argv: the editor's command.
        text: the text.

    Returns:
        the edited text; None if the editor failed or left no file.

    Raises:
        OSError: the editor cannot be run, or the file with the text not be written.
    """
    import tempfile

    handle, name = tempfile.mkstemp(prefix="kimi-tui-", suffix=".md")
    try:
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        if subprocess.call([*argv, name]) != 0:
            return None
        with contextlib.suppress(FileNotFoundError):
            return Path(name).read_text(encoding="utf-8", errors="replace").rstrip("\n")
        return None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
