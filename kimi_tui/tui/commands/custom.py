"""The commands of files: found once a session is open, and sent to the agent as what the user says."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.tui.prompt.command import Command

if TYPE_CHECKING:
    from kimi_tui.config.custom_commands import CustomCommand
    from kimi_tui.tui.main.screen import MainScreen


async def learn(screen: MainScreen) -> None:
    """Find them, and offer them behind those of the program."""
    from kimi_tui.app_paths import config_dir, home_dir
    from kimi_tui.config.custom_commands import custom_commands

    work_dir = Path(screen.transcript.work_dir)
    found = await asyncio.to_thread(custom_commands, work_dir, config_dir(), home_dir())
    screen.commands.add(
        Command(one.name, one.help, one.help, partial(run, one), argument=one.argument)
        for one in found
    )


async def run(one: CustomCommand, screen: MainScreen, argument: str) -> None:
    """Say what its file says; one that the folder brings is shown before its first use, and again when it has changed."""
    from kimi_tui.app_paths import data_dir, short
    from kimi_tui.config.custom_commands import note_shown, were_shown

    if one.origin == "folder":
        root = await asyncio.to_thread(data_dir)
        if one.digest not in await asyncio.to_thread(were_shown, root):
            from kimi_tui.tui.dialogs.custom_command import CustomCommandScreen

            question = CustomCommandScreen(one.name, short(one.path), one.text)
            if not await screen.ask(question):
                screen.tell(f"/{one.name} was not sent.")
                screen.keep(f"/{one.name} {argument}".rstrip())
                return
            await asyncio.to_thread(note_shown, root, one.digest)
    screen.conversation.say(one.with_arguments(argument))
