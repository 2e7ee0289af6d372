"""Commands about the screen: focus, search, folding, copying, theme, settings, help, prompt history, editor, and quitting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.prompt.command import number
from kimi_tui.tui.screens import QuitChosen, SettingsOpened, ThemeChosen, app_of, push_dialog

if TYPE_CHECKING:
    from kimi_tui.tui.main.commands import MainParts


def timeline(main: MainParts, argument: str) -> None:
    """Open and focus the timeline; or close it if it has the focus."""
    main.bench.focus_timeline()


def chat(main: MainParts, argument: str) -> None:
    """Focus the chat."""
    main.bench.focus_chat()


def search(main: MainParts, argument: str) -> None:
    """Search for a text in the chat or in the visible world line; without a text, ask for one."""
    main.bench.search(argument)


def turn(main: MainParts, argument: str) -> None:
    """Show the user's message before, or after, the top of the chat."""
    if argument not in ("", "before", "after"):
        main.bench.tell(
            f'"{argument[:20]}" is not an argument of /turn. Use before or after.', level="warning"
        )
    else:
        main.bench.on_view.action_turn(1 if argument == "after" else -1)


def fold(main: MainParts, argument: str) -> None:
    """Fold or unfold the chosen block; if there is none, the last visible one is chosen."""
    main.bench.focus_chat()
    main.bench.on_view.action_fold()


def link(main: MainParts, argument: str) -> None:
    """Open a link of the chosen block; if there is none, the last visible one is chosen."""
    main.bench.focus_chat()
    main.bench.on_view.action_open_link()


def select(main: MainParts, argument: str) -> None:
    """Select all of the chat."""
    main.bench.focus_chat()
    main.bench.on_view.select_all()


def copy(main: MainParts, argument: str) -> None:
    """Copy the last answer, the newest code, or the Nth piece of code of the last answer with code."""
    piece = number(argument)
    if not argument:
        main.bench.on_view.copy_answer()
    elif argument == "code" or piece:
        main.bench.on_view.copy_code(piece or 0)
    else:
        words = f'"{argument[:20]}" is not an argument of /copy. Use code, the number of a code block, or no argument.'
        main.bench.tell(words, level="warning")


def notices(main: MainParts, argument: str) -> None:
    """List the notices of this run."""
    from kimi_tui.tui.dialogs.text_screen import notices_screen

    push_dialog(main.bench.screen, notices_screen(main.bench.notices))


async def palette(main: MainParts, argument: str) -> None:
    """Find a command by name, and run it."""
    from kimi_tui.tui.prompt.menu import PaletteScreen

    if name := await main.bench.ask(PaletteScreen(main.bench.commands, main.bench.keys)):
        await app_of(main.bench.screen).run_action(f"command('{name}')", main.bench.screen)


def help_page(main: MainParts, argument: str) -> None:
    """List all keys and commands, starting with those of the focused part."""
    from kimi_tui.tui.dialogs.help import HelpScreen

    bench = main.bench
    push_dialog(bench.screen, HelpScreen(bench.commands, bench.keys, bench.help_title))


def legend(main: MainParts, argument: str) -> None:
    """Explain the signs of the timeline and the gauge: the help, scrolled to them."""
    from kimi_tui.tui.dialogs.help import LEGEND, HelpScreen

    bench = main.bench
    push_dialog(bench.screen, HelpScreen(bench.commands, bench.keys, LEGEND))


def theme(main: MainParts, argument: str) -> None:
    """Use another theme: the named one, or the next."""
    app_of(main.bench.screen).post_message(ThemeChosen(argument))


def settings(main: MainParts, argument: str) -> None:
    """Open the settings."""
    app_of(main.bench.screen).post_message(SettingsOpened())


def statusline(main: MainParts, argument: str) -> None:
    """Open the settings at the status line."""
    app_of(main.bench.screen).post_message(SettingsOpened("statusline.items"))


def history(main: MainParts, argument: str) -> None:
    """Search the sent messages, of this folder and then of the others; during a search, go to the message before."""
    main.bench.focus_prompt()
    if main.bench.prompt.area.search_sent():
        main.bench.start(_search_others(main))


async def _search_others(main: MainParts) -> None:
    from kimi_tui.app_paths import data_dir
    from kimi_tui.session.prompt_history import history_file, read_others

    own = history_file(data_dir(), Path(main.bench.transcript.work_dir))
    others = await in_daemon_thread(read_others, data_dir() / "history", own)
    area = main.bench.prompt.area
    if area.completion is not None:
        area.completion.search_also(others)
        area.post_message(area.OffersChanged())


async def editor(main: MainParts, argument: str) -> None:
    """Edit the text of the prompt in an editor."""
    await main.prompt_modes.open_editor()


def suspend(main: MainParts, argument: str) -> None:
    """Return to the shell for a while."""
    app_of(main.bench.screen).action_suspend_process()


def leave(main: MainParts, argument: str) -> None:
    """Quit."""
    app_of(main.bench.screen).post_message(QuitChosen())
