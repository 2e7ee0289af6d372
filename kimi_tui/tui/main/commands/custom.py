"""Custom commands, which are Markdown files (`config.custom_commands`): they are found when a session is open, and sent as
user messages.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from kimi_tui.foreign_text import visible
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, OneKeyScreen
from kimi_tui.tui.prompt.command import Command
from kimi_tui.tui.row_list import Words, plain
from kimi_tui.tui.rows import BLANK
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar

if TYPE_CHECKING:
    from kimi_tui.config.custom_commands import CustomCommand
    from kimi_tui.tui.main.commands import MainParts


async def learn(main: MainParts) -> None:
    """Find the custom commands and add them to the command table, after the program's own."""
    from kimi_tui.app_paths import config_dir, home_dir
    from kimi_tui.config.custom_commands import custom_commands
    from kimi_tui.soul.skills import folders_above

    work_dir = Path(main.bench.transcript.work_dir)
    every = await asyncio.to_thread(
        lambda: custom_commands(work_dir, config_dir(), home_dir(), folders_above(work_dir))
    )
    found = [one for one in every if one.for_user]
    n_called = Counter(one.short_name for one in found)
    taken = {command.name for command in main.bench.commands}
    main.bench.commands.add(
        Command(
            # A skill that has the name of another command is still there as /skill:name.
            f"skill:{one.name}" if one.is_skill and one.name in taken else one.name,
            one.help,
            one.help,
            partial(run, one),
            argument=one.argument,
            # A command of the work folder first opens the question whether it may be sent.
            opens=one.origin == "folder",
            # The name without the folder is an alias if it is unique.
            aliases=(
                *((one.short_name,) if n_called[one.short_name] == 1 and one.is_inner else ()),
                *((f"skill:{one.name}",) if one.is_skill else ()),
            ),
        )
        for one in found
    )


async def run(one: CustomCommand, main: MainParts, argument: str) -> None:
    """Send the text of a custom command to the agent.

    One that comes with the work folder is shown to the user before its first use, and again after it has changed.
    """
    from kimi_tui.app_paths import data_dir, short
    from kimi_tui.config.custom_commands import note_shown, were_shown

    if one.origin == "folder":
        root = await asyncio.to_thread(data_dir)
        if one.digest not in await asyncio.to_thread(were_shown, root):
            question = CustomCommandScreen(one.name, short(one.path), one.text)
            if not await main.bench.ask(question):
                main.bench.tell(f"/{one.name} was not sent.")
                main.bench.keep(f"/{one.name} {argument}".rstrip())
                return
            await asyncio.to_thread(note_shown, root, one.digest)
            if one.for_agent:
                # A skill that the user allows is one that the agent may use.
                soul = await main.conversation.opened()
                await soul.reload_skills()
    main.conversation.say(one.with_arguments(argument))


class CustomCommandScreen(ModalScreen[bool | None], OneKeyScreen[bool | None]):
    """Asks whether a custom command of the work folder may be sent, or its hooks may run. Its result is True for yes, None for no.

    Args:
        name: the word of the command.
        path: the path of its file, for the user.
        text: the text that it sends.
        intro: the sentence above the text.
        yes: the key and words of the yes.
        title: the title of the frame; empty for the command.
    """

    CSS_PATH = sheets("rows", "text_screen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Do not", show=False),
    ]

    def __init__(
        self,
        name: str,
        path: str,
        text: str,
        *,
        intro: str = "This command comes from a file in this folder. It sends this text to the agent:",
        yes: str = "y send it, and do not ask again for this command",
        title: str = "",
    ) -> None:
        super().__init__()
        self._intro = intro
        self._yes = yes
        self._title = title or f"/{name}"
        self._path = path
        self._text = text

    async def on_key(self, event: events.Key) -> None:
        """Answer yes or no by a letter that was pressed alone, after the question had been on the screen for a while."""
        if not event.is_printable:
            return
        answer = {"y": self._send, "n": self._refuse, "q": self._refuse}.get(event.key)
        if answer is not None:
            event.stop()
        if not await self.seen.answer_with(event, answer) and answer is not None:
            self.query_one(VerticalScroll).border_subtitle = frame_label(
                self, f"{TOO_EARLY}   Esc cancel"
            )

    def compose(self) -> ComposeResult:
        """Return the text, below its origin."""
        said = [plain(self._intro, "bright"), plain(visible(self._path)), BLANK]
        said += [plain(visible(line)) for line in self._text.split("\n")]
        frame = VerticalScroll(Words(*said))
        use_thin_scrollbar(frame, glyphs_of(self))
        frame.border_title = frame_label(self, self._title)
        frame.border_subtitle = frame_label(self, f"{self._yes}   Esc cancel")
        yield frame

    def _refuse(self) -> None:
        self.dismiss(None)

    def _send(self) -> None:
        """Answer yes if the end of the text is on the screen; otherwise scroll down a page."""
        frame = self.query_one(VerticalScroll)
        if frame.scroll_offset.y < frame.max_scroll_y:
            frame.border_subtitle = frame_label(
                self, "read to the end first: y or PageDown scrolls   Esc cancel"
            )
            frame.scroll_page_down(animate=False)
            self.seen.ask()  # the page must be read before a key counts
        else:
            self.dismiss(True)
