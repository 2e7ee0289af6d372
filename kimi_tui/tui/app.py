"""The app: themes, glyphs, the first screen, and what happens when something breaks. Screens do the rest."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import PurePath
from typing import Any, ClassVar, cast

from textual import events, on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.theme import Theme

from kimi_tui.config.choosing import Choice
from kimi_tui.launch import Launch
from kimi_tui.tui.ending import listen
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.main.messages import (
    HelpWanted,
    LeaveWanted,
    ModelNeeded,
    ModelWanted,
    PaletteWanted,
    ReplayWanted,
    SessionWanted,
    StatisticsWanted,
    SuspendWanted,
    ThemeWanted,
    Unopened,
)
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.styles import sheets
from kimi_tui.tui.theme import DARK, FEW, TRUE_COLOUR, derived, themes_for


class KimiApp(App[None], inherit_bindings=False):
    """kimi-tui.

    Args:
        launch: what the command line asked for.
        colours: how many the terminal has; with few, the theme of sixteen is used whatever is configured.

    Attributes:
        launch: what the command line asked for, and what the first run made of it.
        glyphs: the signs in use.
        parting_words: one line to print once the terminal is restored; empty for none.
        kept_words: another one, on what of the demo is kept.
    """

    TITLE = "kimi-tui"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", id="quit", show=False, priority=True),
        Binding("ctrl+c", "quit", "Quit", show=False, system=True),
    ]

    def __init__(self, launch: Launch, *, colours: int = TRUE_COLOUR) -> None:
        self.launch = launch
        self._themes = themes_for(colours)
        chosen = self._themes["16" if colours <= FEW else launch.config.theme]
        # Set before Textual makes its style sheet, so that the sheet is parsed once and not again for another theme.
        self.set_reactive(App.theme, chosen.name)
        # Textual loads the styles of every screen but the first.
        super().__init__(css_path=[*sheets("app"), *self._first_sheets()])
        self.glyphs: Glyphs = ASCII if launch.config.glyphs == "ascii" else UNICODE
        self.parting_words = ""
        self.kept_words = ""
        self._open_screens: list[MainScreen] = []
        self._key_at = 0.0
        self.set_class(launch.config.glyphs == "ascii", "-ascii")
        if launch.config.reduced_motion:
            self.animation_level = "none"
        if launch.config.keys:
            self.set_keymap(dict(launch.config.keys))

    def get_driver_class(self) -> type[Driver]:
        """Textual's choice, but with a reading of the terminal that nothing can end."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        try:
            from kimi_tui.tui.terminal_input import TerminalInput
        except ImportError:  # it reads with parts of Textual that may move in a newer one
            return found
        return TerminalInput

    # --- screens

    def _is_first_run(self) -> bool:
        """Whether nothing says which model to ask."""
        return not self.launch.demo and not isinstance(self.launch.choice, Choice)

    def _first_sheets(self) -> list[str | PurePath]:
        if self.launch.replay:
            from kimi_tui.tui.replay.screen import ReplayScreen

            return ReplayScreen.SHEETS
        if not self._is_first_run():
            return MainScreen.SHEETS
        from kimi_tui.tui.first_run.welcome import WelcomeScreen

        return WelcomeScreen.SHEETS

    def get_default_screen(self) -> Screen[Any]:
        """The main screen, the first run, or a replay."""
        if self.launch.replay:
            from kimi_tui.tui.replay.screen import ReplayScreen

            return ReplayScreen(self.launch, self.size)
        if not self._is_first_run():
            return self._main_screen()
        from kimi_tui.tui.first_run.welcome import WelcomeScreen

        return WelcomeScreen(self.launch)

    def _main_screen(self) -> MainScreen:
        screen = MainScreen(self.launch, self.size, lambda: self._key_at)
        self._open_screens.append(screen)
        return screen

    @on(SessionWanted)
    async def _session_wanted(self, event: SessionWanted) -> None:
        """Another session takes the place of what is on the screen."""
        if not await self._may_leave():
            return
        self.launch = event.launch
        before = [screen for screen in self.screen_stack if isinstance(screen, MainScreen)]
        for screen in before:
            await self._end(screen)
            self._open_screens.remove(screen)
        await self.push_screen(self._main_screen())
        # The first screen of all cannot be taken away, so what was before stays below, empty. It is emptied when it is
        # covered: a widget that is drawn while it goes has no styles any more.
        for screen in before:
            await screen.remove_children()

    @on(ModelNeeded)
    def _model_needed(self, event: ModelNeeded) -> None:
        """There is a server but no model: the first run goes on from there."""
        from kimi_tui.tui.first_run.welcome import WelcomeScreen

        self.push_screen(WelcomeScreen(self.launch, event.words))

    @on(ModelWanted)
    def _model_wanted(self, event: ModelWanted) -> None:
        """A model by name is used at once, else one is chosen from a list."""
        from kimi_tui.tui.first_run.model_screen import ModelScreen, named

        if event.name:
            launch = named(self.launch, event.name)
            if launch is None and isinstance(self.screen, MainScreen):
                words = "A key is missing, or it is no name of a model."
                self.screen.tell(f"{event.name} cannot be used.", level="warning", advice=words)
            self._use(launch)
        else:
            self.push_screen(ModelScreen(self.launch), self._use)

    def _use(self, launch: Launch | None) -> None:
        if launch is None:
            return
        self.launch = launch
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                screen.conversation.use(launch)

    @on(PaletteWanted)
    def _palette_wanted(self) -> None:
        from kimi_tui.tui.main.palette import PaletteScreen

        self.push_screen(PaletteScreen(self.launch.config.keys), self._run)

    def _run(self, name: str | None) -> None:
        if name and isinstance(self.screen, MainScreen):
            self.screen.action_command(name)

    @on(HelpWanted)
    def _help_wanted(self) -> None:
        from kimi_tui.tui.main.help import HelpScreen

        self.push_screen(HelpScreen(self.launch.config.keys))

    @on(ReplayWanted)
    def _replay_wanted(self, event: ReplayWanted) -> None:
        from kimi_tui.tui.replay.screen import ReplayScreen

        self.push_screen(ReplayScreen(self.launch, self.size, event.session), self._go_on)

    def _go_on(self, launch: Launch | None) -> None:
        if launch is not None:
            self.post_message(SessionWanted(launch))

    @on(StatisticsWanted)
    def _statistics_wanted(self, event: StatisticsWanted) -> None:
        from kimi_tui.tui.main.statistics import StatisticsScreen

        self.push_screen(StatisticsScreen(event.title, event.figures))

    # --- colours

    @on(ThemeWanted)
    def _theme_wanted(self, event: ThemeWanted) -> None:
        themes = self._themes
        names = list(themes)
        current = next((name for name in names if themes[name].name == self.theme), names[0])
        following = names[(names.index(current) + 1) % len(names)]
        self.theme = themes.get(event.name, themes[following]).name

    def get_theme(self, theme_name: str) -> Theme | None:
        """One of ours, or of Textual's."""
        ours = next((theme for theme in self._themes.values() if theme.name == theme_name), None)
        return ours or super().get_theme(theme_name)

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Ours, and Textual's."""
        return {
            **super().available_themes,
            **{theme.name: theme for theme in self._themes.values()},
        }

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our names of colours for a theme that does not know them."""
        theme = self.current_theme
        if "page" in theme.variables:
            return {}
        return derived(
            theme.primary,
            theme.warning or DARK["warn"],
            theme.error or DARK["kind-error"],
            theme.success or DARK["ok"],
            dark=theme.dark,
        )

    # --- beginning and end

    def on_mount(self) -> None:
        """Once the first screen is drawn, let memory be collected again."""
        self.call_after_refresh(self._settle)
        if not self.is_headless:
            listen(self._ended_by_the_system)

    @on(Driver.SignalResume)
    def _woken(self) -> None:
        """After a suspension the terminal's screen is empty, and Textual draws only what has changed."""
        self.refresh(layout=True)

    def _ended_by_the_system(self, code: int) -> None:
        self.exit(return_code=code)

    async def on_unmount(self) -> None:
        """Whatever ended the app, commands that still run are stopped and sessions are saved and released."""
        for screen in self._open_screens:
            await self._end(screen, clean=self._exception is None)

    async def _end(self, screen: MainScreen, *, clean: bool = True) -> None:
        self.parting_words = await screen.end(clean=clean) or self.parting_words
        self.kept_words = screen.conversation.kept or self.kept_words

    def _settle(self) -> None:
        # What was imported stays for good: taking it out of the collector's sight spares every later collection.
        gc.freeze()
        # What a collection looks at in one go is small, so that none takes longer than a few milliseconds.
        gc.set_threshold(5_000, 5, 200)
        gc.enable()

    async def on_event(self, event: events.Event) -> None:
        """Note when a key was last pressed: an approval waits for a quiet keyboard."""
        if isinstance(event, events.Key | events.Paste):
            self._key_at = time.monotonic()
        await super().on_event(event)

    @on(Unopened)
    def _unopened(self, event: Unopened) -> None:
        self.parting_words = event.words
        self.exit(return_code=event.code)

    @on(SuspendWanted)
    def _suspend_wanted(self) -> None:
        self.action_suspend_process()

    @on(LeaveWanted)
    async def action_quit(self) -> None:
        """Quit after the session was saved and released; what cannot be saved is said first."""
        if self.return_code is not None:
            return  # it ends already, and with which code is settled
        if not await self._may_leave():
            return
        for screen in self._open_screens:
            await self._end(screen)
        self.exit(return_code=1 if self.parting_words else 0)

    async def _may_leave(self) -> bool:
        """Whether nothing would be lost by leaving the session, or the person wants it so."""
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen) and not await screen.may_end():
                return False
        return True

    def _handle_exception(self, error: Exception) -> None:
        """Never a traceback on the screen: it goes into the log, and one line says where that is.

        Overrides a private method of Textual, the only place that all errors of handlers, timers and drawing pass.
        """
        from kimi_tui.logging_setup import log_crash
        from kimi_tui.places import log_file, short

        path = log_file()
        choice = self.launch.choice
        log_crash(path, error, (choice.api_key,) if isinstance(choice, Choice) else ())
        if self._exception is None:
            self._exception = error
            cast("asyncio.Event", self._exception_event).set()
        self._return_code = 1
        self.parting_words = f"crashed; your session is saved, and the reason is in {short(path)}"
        self._close_messages_no_wait()
