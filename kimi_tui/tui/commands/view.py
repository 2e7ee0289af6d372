"""Commands about what is on the screen: where the keys go, what is searched and copied, lists, colours, and leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.tui.prompt.command import number
from kimi_tui.tui.screens import QuitChosen, SettingsOpened, ThemeChosen, app_of

if TYPE_CHECKING:
    from kimi_tui.tui.main.screen import MainScreen


def timeline(screen: MainScreen, argument: str) -> None:
    """Open the timeline and give it the keys; or close it where it has them."""
    screen.focus_timeline()


def chat(screen: MainScreen, argument: str) -> None:
    """Give the chat the keys."""
    screen.focus_chat()


def search(screen: MainScreen, argument: str) -> None:
    """Look for a text in the chat or in the world line on view; an empty one is asked for."""
    screen.search(argument)


def turn(screen: MainScreen, argument: str) -> None:
    """Show the user's message before, or after, what is at the top of the chat."""
    if argument not in ("", "before", "after"):
        screen.tell(f"There is no /turn {argument[:20]}: before or after.", level="warning")
    else:
        screen.on_view.action_turn(1 if argument == "after" else -1)


def fold(screen: MainScreen, argument: str) -> None:
    """Fold or unfold the chosen block; where none is, the last one on view is chosen."""
    screen.focus_chat()
    screen.on_view.action_fold()


def link(screen: MainScreen, argument: str) -> None:
    """Open a link of the chosen block; where none is, the last one on view is chosen."""
    screen.focus_chat()
    screen.on_view.action_open_link()


def select(screen: MainScreen, argument: str) -> None:
    """Select all of the chat."""
    screen.focus_chat()
    screen.on_view.select_all()


def copy(screen: MainScreen, argument: str) -> None:
    """Copy the last answer, the newest code, or the Nth piece of code of the last answer that has some."""
    piece = number(argument)
    if not argument:
        screen.on_view.copy_answer()
    elif argument == "code" or piece:
        screen.on_view.copy_code(piece or 0)
    else:
        words = f"There is no /copy {argument[:20]}: code, the number of a piece, or nothing."
        screen.tell(words, level="warning")


def notices(screen: MainScreen, argument: str) -> None:
    """List what was told, to be read again."""
    from kimi_tui.tui.dialogs.text_screen import NoticesScreen

    app_of(screen).push_screen(NoticesScreen(tuple(screen.told)))


async def palette(screen: MainScreen, argument: str) -> None:
    """Find a command by name, and run it."""
    from kimi_tui.tui.prompt.menu import PaletteScreen

    if name := await screen.ask(PaletteScreen(screen.commands, screen.keys)):
        screen.action_command(name)


def help_page(screen: MainScreen, argument: str) -> None:
    """List all keys and commands, from those of the place on that has the keys."""
    from kimi_tui.tui.dialogs.help import HelpScreen

    app_of(screen).push_screen(HelpScreen(screen.commands, screen.keys, screen.help_title))


def theme(screen: MainScreen, argument: str) -> None:
    """Use other colours: the named ones, or the next."""
    app_of(screen).post_message(ThemeChosen(argument))


def settings(screen: MainScreen, argument: str) -> None:
    """List the settings, to be changed."""
    app_of(screen).post_message(SettingsOpened())


def history(screen: MainScreen, argument: str) -> None:
    """Search what was sent, in this folder and then in the others; while that is done, go to the one before."""
    screen.focus_prompt()
    if screen.prompt.area.search_sent():
        screen.start(_search_others(screen))


async def _search_others(screen: MainScreen) -> None:
    from kimi_tui.app_paths import data_dir
    from kimi_tui.tui.prompt.history import history_file, read_others

    own = history_file(data_dir(), Path(screen.transcript.work_dir))
    others = await asyncio.to_thread(read_others, data_dir() / "history", own)
    screen.completion.search_also(others)
    screen.follow_prompt()


async def editor(screen: MainScreen, argument: str) -> None:
    """Write what stands in the prompt in an editor."""
    await screen.prompt_modes.edit()


def suspend(screen: MainScreen, argument: str) -> None:
    """Go back to the shell for a while."""
    app_of(screen).action_suspend_process()


def leave(screen: MainScreen, argument: str) -> None:
    """Quit."""
    screen.post_message(QuitChosen())
