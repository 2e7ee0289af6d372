"""Commands about the screen: focus, search, folding, copying, theme, settings, help, prompt history, editor, and quitting."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.tui.prompt.command import number
from kimi_tui.tui.screens import QuitChosen, SettingsOpened, ThemeChosen, app_of

if TYPE_CHECKING:
    from kimi_tui.tui.main.commands import MainParts


def timeline(main: MainParts, argument: str) -> None:
    """Open the timeline and give it the keys; or close it where it has them."""
    main.bench.focus_timeline()


def chat(main: MainParts, argument: str) -> None:
    """Give the chat the keys."""
    main.bench.focus_chat()


def search(main: MainParts, argument: str) -> None:
    """Look for a text in the chat or in the world line on view; an empty one is asked for."""
    main.bench.search(argument)


def turn(main: MainParts, argument: str) -> None:
    """Show the user's message before, or after, what is at the top of the chat."""
    if argument not in ("", "before", "after"):
        main.bench.tell(f"There is no /turn {argument[:20]}: before or after.", level="warning")
    else:
        main.bench.on_view.action_turn(1 if argument == "after" else -1)


def fold(main: MainParts, argument: str) -> None:
    """Fold or unfold the chosen block; where none is, the last one on view is chosen."""
    main.bench.focus_chat()
    main.bench.on_view.action_fold()


def link(main: MainParts, argument: str) -> None:
    """Open a link of the chosen block; where none is, the last one on view is chosen."""
    main.bench.focus_chat()
    main.bench.on_view.action_open_link()


def select(main: MainParts, argument: str) -> None:
    """Select all of the chat."""
    main.bench.focus_chat()
    main.bench.on_view.select_all()


def copy(main: MainParts, argument: str) -> None:
    """Copy the last answer, the newest code, or the Nth piece of code of the last answer that has some."""
    piece = number(argument)
    if not argument:
        main.bench.on_view.copy_answer()
    elif argument == "code" or piece:
        main.bench.on_view.copy_code(piece or 0)
    else:
        words = f"There is no /copy {argument[:20]}: code, the number of a piece, or nothing."
        main.bench.tell(words, level="warning")


def notices(main: MainParts, argument: str) -> None:
    """List the notices of this run."""
    from kimi_tui.tui.dialogs.text_screen import notices_screen

    app_of(main.bench.screen).push_screen(notices_screen(main.bench.notices))


async def palette(main: MainParts, argument: str) -> None:
    """Find a command by name, and run it."""
    from kimi_tui.tui.prompt.menu import PaletteScreen

    if name := await main.bench.ask(PaletteScreen(main.bench.commands, main.bench.keys)):
        await app_of(main.bench.screen).run_action(f"command('{name}')", main.bench.screen)


def help_page(main: MainParts, argument: str) -> None:
    """List all keys and commands, from those of the place on that has the keys."""
    from kimi_tui.tui.dialogs.help import HelpScreen

    app_of(main.bench.screen).push_screen(
        HelpScreen(main.bench.commands, main.bench.keys, main.bench.help_title)
    )


def theme(main: MainParts, argument: str) -> None:
    """Use other colours: the named ones, or the next."""
    app_of(main.bench.screen).post_message(ThemeChosen(argument))


def settings(main: MainParts, argument: str) -> None:
    """List the settings, to be changed."""
    app_of(main.bench.screen).post_message(SettingsOpened())


def history(main: MainParts, argument: str) -> None:
    """Search what was sent, in this folder and then in the others; while that is done, go to the one before."""
    main.bench.focus_prompt()
    if main.bench.prompt.area.search_sent():
        main.bench.start(_search_others(main))


async def _search_others(main: MainParts) -> None:
    from kimi_tui.app_paths import data_dir
    from kimi_tui.session.prompt_history import history_file, read_others

    own = history_file(data_dir(), Path(main.bench.transcript.work_dir))
    others = await asyncio.to_thread(read_others, data_dir() / "history", own)
    area = main.bench.prompt.area
    if area.completion is not None:
        area.completion.search_also(others)
        area.post_message(area.OffersChanged())


async def editor(main: MainParts, argument: str) -> None:
    """Write what stands in the prompt in an editor."""
    await main.prompt_modes.open_editor()


def suspend(main: MainParts, argument: str) -> None:
    """Go back to the shell for a while."""
    app_of(main.bench.screen).action_suspend_process()


def leave(main: MainParts, argument: str) -> None:
    """Quit."""
    app_of(main.bench.screen).post_message(QuitChosen())
