"""Completion in the prompt: the offers of the menu (commands, values, files, sent messages), and the effects of keys meanwhile.

| key | commands, and values behind one | files behind an `@` | what was sent before (Ctrl+R) |
|---|---|---|---|
| Enter | runs the chosen one | puts it into the text | puts it into the field |
| Tab | writes out the chosen one, else the first | as Enter | as Enter |
| Up, Down | choose | choose | choose, as Ctrl+R |
| Esc | closes the menu, until other words stand there | as with commands | brings back what stood there |

`CommandTable` matches the commands (fuzzy, recently used first). If nothing is offered, these keys belong to the field,
`PromptArea`, and to the screen. The field passes its text as a `Written`, and inserts the chosen offer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.message import Message

from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.tui.prompt.command import Command

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.widgets.text_area import Selection

    from kimi_tui.tools.file_list import FileList
    from kimi_tui.tools.sandbox.sandbox import Sandbox
    from kimi_tui.tui.faults import Callbacks
    from kimi_tui.tui.prompt.command import CommandTable, Values
    from kimi_tui.tui.prompt.menu import CommandMenu, MenuOffer

Offered = Literal[
    "", "command", "unfinished", "commands", "usage", "file", "written", "sent", "unsent"
]
"""The kind of offer on which Enter, Tab, Esc and the arrows act; empty if there is none.

- `command`: one that Enter runs; `unfinished`: one that Enter writes out, as it needs an argument
- `commands`: several of which none is chosen; `usage`: a command is typed, and its usage is shown with nothing to choose
- `file`: a path for the one that is typed; `written`: the typed path is a file already
- `sent`: a message of the history that matches the search; `unsent`: none matches
"""
MOST_OFFERED = 50
_TYPED_PATH = re.compile(r'(?:^|(?<=[\s(\[{]))@(?:"([^"]*)|([^\s"#]*))$')
_LONGEST_RESOURCE = 300
_NAME_CHARS = 30
_LONGEST_LINE = 1000
"""The largest number of characters of the line before the cursor that are searched for an `@`, as a pasted line may be huge."""
LISTED_S = 0.3
"""Seconds after which the menu says that files are being listed; sooner, it would flicker."""
_PLAIN_PATH = re.compile(r"[^\s\"\\#]+")


def typed_mention(before: str) -> tuple[int, str] | None:
    """Return the path that is being typed after an `@`: the index of the `@` in the line and the path; None for none.

    Args:
        before: the line up to the cursor.
    """
    found = _TYPED_PATH.search(before, max(0, len(before) - _LONGEST_LINE))
    if found is None:
        return None
    return found.start(), found[1] if found[1] is not None else found[2]


def mention(path: str) -> str:
    """Return a path as it is written in the prompt; quoted if a space or a sign in it would end it."""
    if _PLAIN_PATH.fullmatch(path):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'


def _is_meant(first: Command | MenuOffer, text: str) -> bool:
    """Return whether Enter acts on the first row before the arrows have chosen one.

    It does not after a lone slash: the first row is then the command used last, which may have ended or undone something.
    """
    if not isinstance(first, Command) or not text:
        return True
    return text != "/" and first.is_begun_by(text) and first.is_named_by(text)


class Written(NamedTuple):
    """The state of the prompt's field, as completion needs it.

    Attributes:
        text: the whole text.
        typed: the cursor's line up to the cursor.
        selection: the selection, whose end is the cursor.
        is_recalled: whether the text is a message of the history, so that the arrows move on in the history.
        is_looked_for: whether the text is a search of the history (Ctrl+R).
        sent: the history, oldest first.
    """

    text: str
    typed: str
    selection: Selection
    is_recalled: bool
    is_looked_for: bool
    sent: Sequence[str] = ()


class FolderFiles:
    """The files of the work folder, to complete a path; listed in the background when first needed.

    Args:
        teller: the widget to which the messages are posted.
        tasks: runs the listing.

    Attributes:
        is_listing: whether the listing has been running for so long that the menu says so.
    """

    class Listed(Message):
        """The list of files has changed, or listing has been running for `LISTED_S`."""

    def __init__(self, teller: MessagePump, tasks: Callbacks) -> None:
        self._teller = teller
        self._tasks = tasks
        self._folder: tuple[Path, Sandbox | None] | None = None
        self._files: FileList | None = None
        self.is_listing = False
        self._is_stale = True
        self._scans = False

    def begin(self, folder: Path, sandbox: Sandbox | None) -> None:
        """Set the work folder, once the session is known: it may be another one than the program started in.

        Args:
            folder: the work folder.
            sandbox: the sandbox in which `rg` lists its files; None for none.
        """
        self._folder = (folder, sandbox)

    def matching(self, query: str, count: int) -> list[str]:
        """Return the best matches for a typed path; the folder is listed again in the background if it may have changed.

        Args:
            query: the path so far.
            count: the largest number of matches.
        """
        if self._folder is None:
            return []  # the modules for it are still being imported
        if self._files is None:
            from kimi_tui.tools.file_list import FileList

            self._files = FileList(self._folder[0], os.environ, self._folder[1])
        if self._is_stale and not self._scans:
            self._is_stale = False
            self._scans = True
            self._tasks.start(self._scan(self._files))
        return self._files.matching(query, count)

    async def _scan(self, files: FileList) -> None:
        late = self._tasks.call_later(LISTED_S, partial(self._take_long, files))
        try:
            await files.scan()
        finally:
            late.cancel()
            self._scans = self.is_listing = False
        self._teller.post_message(self.Listed())

    def _take_long(self, files: FileList) -> None:
        self.is_listing = not files.paths
        self._teller.post_message(self.Listed())

    def mark_stale(self) -> None:
        """Note that files may have changed: they are listed again when a path is typed next."""
        self._is_stale = True


class PromptCompletion:
    """The completion of one prompt, with its menu.

    Args:
        commands: all commands.
        keys: the configured keys, by action.
        values: returns the present values for arguments of commands.
        files: the files of the work folder.

    Attributes:
        resources: returns what an MCP server offers to be attached: `SERVER:ADDRESS`, and a name.
        menu: the menu widget, created with the first offer; None before.
        files: as above.
        followed: the state of the field for which the menu was updated last; None before.
    """

    def __init__(
        self,
        commands: CommandTable,
        keys: Mapping[str, str],
        values: Callable[[], Values],
        files: FolderFiles,
    ) -> None:
        self._commands = commands
        self._keys = keys
        self._values = values
        self.files = files
        self.resources: Callable[[], Iterable[tuple[str, str]]] = tuple
        self.menu: CommandMenu | None = None
        self._finds = False
        """Whether the search of the history found any message."""
        self._others: Sequence[str] = ()
        """The messages sent in other folders."""
        self._mention_at: int | None = None
        """The index in the line at which the typed path begins; None for none."""
        self._closed_for: str | None = None
        self._listed_for = ""
        """The text that the listed entries belong to."""
        self.followed: Written | None = None

    @property
    def is_choosing(self) -> bool:
        """Whether the menu has something to choose, so that the arrows, Enter, Tab and Esc act on it."""
        return self.menu is not None and self.menu.active

    @property
    def command(self) -> Command | None:
        """The chosen command; None if there is none."""
        return self.menu.chosen if self.menu is not None else None

    @property
    def offer(self) -> MenuOffer | None:
        """The chosen file or sent message; None if there is none."""
        return self.menu.offer if self.menu is not None else None

    @property
    def offered(self) -> Offered:
        """The kind of offer on which the keys act, for the field as it was when the menu was updated last."""
        if self.followed is not None and self.followed.is_looked_for:
            return "sent" if self._finds else "unsent"
        menu = self.menu
        if menu is None or not menu.active:
            return "usage" if menu is not None and menu.display else ""
        if menu.offer is not None:
            return "file" if self.taken is not None else "written"
        if menu.chosen is None:
            return "commands"
        return "unfinished" if menu.chosen.needs_argument else "command"

    def follow(self, written: Written) -> bool:
        """Update the menu for a state of the field.

        Returns:
            whether the menu was created by this call, so that it must be mounted.
        """
        self.followed, text = written, written.text
        if written.is_recalled and not written.is_looked_for:
            # The arrows move on in the sent messages.
            self.close(text)
        if text == self._closed_for:
            return False
        self._closed_for = None
        found, is_hint = self.offers(written), False
        if found is None:
            found, is_hint = self._commands_for(text) if text.startswith("/") else ((), False)
        is_first = self.menu is None
        if self.menu is None:
            if not found:
                return False
            from kimi_tui.tui.prompt.menu import CommandMenu

            self.menu = CommandMenu(self._keys)
        is_same_text, self._listed_for = text == self._listed_for, text
        self.menu.show(
            found,
            is_first_chosen=bool(found) and _is_meant(found[0], text),
            is_hint=is_hint,
            is_same_text=is_same_text,
        )
        return is_first

    def _commands_for(self, text: str) -> tuple[Sequence[Command], bool]:
        """Return the commands to offer for a text; while an argument is typed, its command with the values.

        Returns:
            the commands, and whether they only show the usage of one, with nothing to choose.
        """
        begun = self._commands.argument_of(text)
        if begun is None:
            return self._commands.offered(text), False
        entries = self._commands.with_values(text, self._values())
        return entries or (begun,), not entries

    def offers(self, written: Written) -> Sequence[MenuOffer] | None:
        """Return the files or sent messages that the menu offers; None if it offers commands."""
        if written.is_looked_for:
            found = self._matching_messages(written.text, written.sent)
            self._finds = bool(found)
            return found
        is_message = "@" in written.text and not written.text.startswith("!")
        mentioned = typed_mention(written.typed) if is_message else None
        if mentioned is None:
            self._mention_at = None
            return None
        from kimi_tui.tui.prompt.menu import MenuOffer

        if self._mention_at != mentioned[0]:
            # Changes of the files by others become visible with the next path that is typed.
            self._mention_at = mentioned[0]
            self.files.mark_stale()
        query = mentioned[1]
        files = [
            MenuOffer(
                mention(path) + ("" if path.endswith("/") else " "), shown_name(path), is_path=True
            )
            for path in self.files.matching(query, MOST_OFFERED)
        ]
        first, rest = self._matching_resources(query)
        if not query:
            first, rest = [], first
        return [*first, *files[: MOST_OFFERED - len(first) - len(rest)], *rest]

    def _matching_resources(self, query: str) -> tuple[list[MenuOffer], list[MenuOffer]]:
        """Return the resources of MCP servers that begin with a typed text, and others that contain it."""
        from kimi_tui.tui.prompt.menu import MenuOffer

        typed, begun, others = query.lower(), list[MenuOffer](), list[MenuOffer]()
        for written, name in self.resources():
            # A server chooses the address: what cannot be read, or would end the line, is not put into the prompt.
            if len(written) > _LONGEST_RESOURCE or not written.isprintable():
                continue
            offer = MenuOffer(
                f"{mention(written)} ", shown_name(written), shown_name(name)[:_NAME_CHARS], True
            )
            if written.lower().startswith(typed):
                begun.append(offer)
            elif typed in written.lower() or typed in name.lower():
                others.append(offer)
        most = MOST_OFFERED // 2
        return begun[:most], others[: most - min(len(begun), most)]

    def choose(self, step: int) -> bool:
        """Move the choice by a number of rows; return False if nothing is offered."""
        if self.menu is None or not self.menu.active:
            return False
        self.menu.move(step)
        return True

    @property
    def taken(self) -> MenuOffer | None:
        """The chosen file or sent message, to be inserted into the prompt; None if none is chosen, or it is there already.

        In a search of the history a message equal to the search text is inserted like any other, so that Enter never sends
        the search text itself.
        """
        offer, written = self.offer, self.followed
        if offer is None or written is None:
            return None
        stands = written.typed if offer.is_path else written.text
        if stands.endswith(offer.text.rstrip()) and not written.is_looked_for:
            return None
        return offer

    @property
    def written_out(self) -> str:
        """The text that Tab writes: the chosen command, else the first; empty if none is offered."""
        command = self.menu.completion if self.menu is not None else None
        if command is None:
            return ""
        return f"/{command.name}" if " " in command.name else f"/{command.name} "

    def close(self, text: str) -> None:
        """Close the menu until the text changes from this one."""
        self._closed_for = text
        if self.menu is not None:
            self.menu.show(())

    # --- the search of sent messages

    def open(self) -> None:
        """Offer again for the text for which the menu was closed."""
        self._closed_for = None

    def search_also(self, others: Sequence[str]) -> None:
        """Include the messages sent in other folders in the search; newest last."""
        self._others = others

    def search_words(self, text: str) -> str:
        """Return the row above the field while the history is searched for a text."""
        if self._finds:
            return "Search sent messages: Enter uses the selected one, Ctrl+R finds the next, Esc cancels"
        if text.strip():
            return "No sent message contains this text. Esc cancels the search."
        return "No message was sent yet. Esc cancels the search."

    def _matching_messages(self, query: str, sent: Sequence[str]) -> list[MenuOffer]:
        from kimi_tui.tui.prompt.menu import MenuOffer

        words = query.lower().strip()
        found: dict[str, MenuOffer] = {}
        for texts, note in ((sent, ""), (self._others, "other folder")):
            for text in reversed(texts):
                if len(found) == MOST_OFFERED:
                    break
                if words in text.lower() and text not in found:
                    found[text] = MenuOffer(text, one_line(text[:500]), note)
        return list(found.values())
