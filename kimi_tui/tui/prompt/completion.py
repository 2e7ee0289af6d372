"""Completion in the prompt: what the menu over it offers for what stands there, and what the keys of the field do meanwhile.

| key | commands, and values behind one | files behind an `@` | what was sent before (Ctrl+R) |
|---|---|---|---|
| Enter | runs the chosen one | puts it into the text | puts it into the field |
| Tab | writes out the chosen one, else the first | as Enter | as Enter |
| Up, Down | choose | choose | choose, as Ctrl+R |
| Esc | closes the menu, until other words stand there | as with commands | brings back what stood there |

Where nothing is offered these keys are those of the field, `PromptArea`, and of the screen. The field says what stands in
it, and puts into it what is chosen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
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
"""What Enter and the keys beside it are about while something is offered.

A `command` that Enter runs, or an `unfinished` one that Enter writes out, as something must follow it; `commands` of which none
is chosen; the `usage` of the one that is written, with nothing to choose; a `file` for the path that is typed, or the one that is
`written` there already; something that was `sent` before, or that nothing sent is like what is looked for: `unsent`. Empty for
nothing.
"""
MOST_OFFERED = 50
_TYPED_PATH = re.compile(r'(?:^|(?<=[\s(\[{]))@(?:"([^"]*)|([^\s"#]*))$')
_LONGEST_LINE = 1000
"""Letters of the line before the cursor that are looked at: a pasted one has no end."""
LISTED_S = 0.3
"""After so many seconds it is said that files are being listed; before, it would flicker."""
_PLAIN_PATH = re.compile(r"[^\s\"\\#]+")


def typed_mention(before: str) -> tuple[int, str] | None:
    """What is being typed of a path: where its `@` stands in the line, and the path so far; None where it is none.

    Args:
        before: the line up to the cursor.
    """
    found = _TYPED_PATH.search(before, max(0, len(before) - _LONGEST_LINE))
    if found is None:
        return None
    return found.start(), found[1] if found[1] is not None else found[2]


def mention(path: str) -> str:
    """A path as it is written in the prompt; quoted where a blank or a sign in it would end it."""
    if _PLAIN_PATH.fullmatch(path):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'


def _is_meant(first: Command | MenuOffer, text: str) -> bool:
    """Whether Enter is about the first row before the arrows have chosen.

    Not where a slash stands alone: first is what was used last then, which may have ended or undone something.
    """
    if not isinstance(first, Command) or not text:
        return True
    return text != "/" and first.is_begun_by(text) and first.is_named_by(text)


class Written(NamedTuple):
    """What stands in the prompt.

    Attributes:
        text: all of it.
        typed: its line up to the cursor.
        selection: where the cursor is.
        is_recalled: it was sent before, and the arrows go on through what was sent.
        is_looked_for: it is looked for among what was sent before.
        sent: that, oldest first.
    """

    text: str
    typed: str
    selection: Selection
    is_recalled: bool
    is_looked_for: bool
    sent: Sequence[str] = ()


class FolderFiles:
    """The files of the work folder, for a path that is being typed; listed in the background when they are asked for.

    Args:
        teller: gets the messages.
        tasks: run the listing.

    Attributes:
        folder: None until it is known: the session may be of another one than the program was started in.
        sandbox: what they are listed in; None for nothing.
        is_listing: whether they are not known yet, and listing them takes a while.
    """

    class Listed(Message):
        """Others are known now, or it takes a while until some are."""

    def __init__(self, teller: MessagePump, tasks: Callbacks) -> None:
        self._teller = teller
        self._tasks = tasks
        self.folder: Path | None = None
        self.sandbox: Sandbox | None = None
        self._files: FileList | None = None
        self.is_listing = False
        self._is_stale = True
        self._scans = False

    def matching(self, query: str, count: int) -> list[str]:
        """The likeliest files for what was typed of a path; the folder is scanned anew where it may have changed."""
        if self.folder is None:
            return []  # what is needed for it is being imported
        if self._files is None:
            from kimi_tui.tools.file_list import FileList

            self._files = FileList(self.folder, os.environ, self.sandbox)
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
        """They may be others by now: they are listed anew when a path is typed next."""
        self._is_stale = True


class Completion:
    """What is offered for what stands in the prompt, in a menu that is made when something is offered first.

    Args:
        commands: all of them.
        keys: those of the configuration, by action.
        values: what may follow the commands now.
        files: what is offered behind an `@`.

    Attributes:
        menu: what is offered; None before the first offer.
        files: as above.
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
        self.menu: CommandMenu | None = None
        self._finds = False
        """Whether anything that was sent has what is looked for."""
        self._others: Sequence[str] = ()
        """What was sent in other folders."""
        self._mention_at: int | None = None
        """Where the path begins that is being typed; None while none is."""
        self._closed_for: str | None = None
        self._listed_for = ""
        """The text for which the menu lists what it does."""
        self._followed: Written | None = None
        """What was followed last."""

    @property
    def is_choosing(self) -> bool:
        """Whether something can be chosen: it has the arrows, and Enter, Tab and Esc are about it."""
        return self.menu is not None and self.menu.active

    @property
    def command(self) -> Command | None:
        """The command that is chosen in the menu; None where there is none."""
        return self.menu.chosen if self.menu is not None else None

    @property
    def offer(self) -> MenuOffer | None:
        """The file, or what was sent before, that is chosen in the menu; None where there is none."""
        return self.menu.offer if self.menu is not None else None

    def offered(self, written: Written) -> Offered:
        """What the keys are about."""
        if written.is_looked_for:
            return "sent" if self._finds else "unsent"
        menu = self.menu
        if menu is None or not menu.active:
            return "usage" if menu is not None and menu.display else ""
        if menu.offer is not None:
            return "file" if self.taken(written) is not None else "written"
        if menu.chosen is None:
            return "commands"
        return "unfinished" if menu.chosen.needs_argument else "command"

    def is_behind(self, written: Written) -> bool:
        """Whether this was not followed yet."""
        return self._followed != written

    def follow(self, written: Written) -> bool:
        """Offer what fits what stands in the prompt now; whether the menu was made for that, and is to be shown."""
        self._followed, text = written, written.text
        if written.is_recalled and not written.is_looked_for:
            # The arrows go on through what was sent.
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
        """The commands that a text may become, or while an argument is typed the command with its values.

        Returns:
            them, and whether it is only a hint of what the argument may be.
        """
        begun = self._commands.argument_of(text)
        if begun is None:
            return self._commands.offered(text), False
        entries = self._commands.with_values(text, self._values())
        return entries or (begun,), not entries

    def offers(self, written: Written) -> Sequence[MenuOffer] | None:
        """What the menu offers in the place of commands; None for commands."""
        if written.is_looked_for:
            found = self._found(written.text, written.sent)
            self._finds = bool(found)
            return found
        is_message = "@" in written.text and not written.text.startswith("!")
        mentioned = typed_mention(written.typed) if is_message else None
        if mentioned is None:
            self._mention_at = None
            return None
        from kimi_tui.tui.prompt.menu import MenuOffer

        if self._mention_at != mentioned[0]:
            # What others have done to the files meanwhile is seen with the next path that is named.
            self._mention_at = mentioned[0]
            self.files.mark_stale()
        return [
            MenuOffer(
                mention(path) + ("" if path.endswith("/") else " "), shown_name(path), is_path=True
            )
            for path in self.files.matching(mentioned[1], MOST_OFFERED)
        ]

    def choose(self, step: int) -> bool:
        """Choose what is so many rows further down; False where nothing is offered."""
        if self.menu is None or not self.menu.active:
            return False
        self.menu.move(step)
        return True

    def taken(self, written: Written) -> MenuOffer | None:
        """The chosen file, or what was sent before, that is to be put into the prompt; None where it stands there, or none is chosen.

        What is only looked for with is never sent: found as it is written, it is taken as any other.
        """
        offer = self.offer
        if offer is None:
            return None
        stands = written.typed if offer.is_path else written.text
        if stands.endswith(offer.text.rstrip()) and not written.is_looked_for:
            return None
        return offer

    @property
    def written_out(self) -> str:
        """The chosen command, else the first, as it stands in the prompt; empty where none is offered."""
        command = self.menu.completion if self.menu is not None else None
        if command is None:
            return ""
        return f"/{command.name}" if " " in command.name else f"/{command.name} "

    def close(self, text: str) -> None:
        """Offer nothing until other words stand there."""
        self._closed_for = text
        if self.menu is not None:
            self.menu.show(())

    # --- the search of what was sent

    def open(self) -> None:
        """Offer again what was closed."""
        self._closed_for = None

    def search_also(self, others: Sequence[str]) -> None:
        """Search what was sent in other folders, too; the newest is last."""
        self._others = others

    def search_words(self, text: str) -> str:
        """What is said over the field while what was sent is searched for a text."""
        if self._finds:
            return "Search: Enter takes it, Ctrl+R goes on, Esc goes back"
        if text.strip():
            return "Nothing that was sent has these words; Esc goes back"
        return "Nothing was sent yet; Esc goes back"

    def _found(self, query: str, sent: Sequence[str]) -> list[MenuOffer]:
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
