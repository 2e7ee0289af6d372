"""`KimiApp`, the Textual app: the first screen, themes, clipboard, links, quitting, and errors that nothing else caught.

The screens contain everything about sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, cast
from weakref import WeakKeyDictionary, WeakSet

from textual import events, on
from textual.actions import SkipAction
from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.errors import NoWidget
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import TextArea

from kimi_tui.app_paths import kimi_cli_config_file, log_file, log_words, reason_of, short
from kimi_tui.config.file import save_setting
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import AUTO, THEMES, ConfigError
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import sentences
from kimi_tui.launch import Launch
from kimi_tui.own_process import COLLECTOR
from kimi_tui.tui.desktop import (
    WindowStatus,
    asks_tmux,
    clipboard_advice,
    clipboard_part,
    copy_to_desktop,
    has_desktop,
    text_amount,
    tmux_clipboard_sequence,
    tmux_option,
)
from kimi_tui.tui.faults import (
    FAULT,
    Callbacks,
    fault_advice,
    reported,
    use_sure_timers,
)
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.key_names import key_named
from kimi_tui.tui.keyboard import TypeAhead
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.notices import STAYS_S, ShowsNotices
from kimi_tui.tui.palette import FEW, TRUE_COLOUR, guess_light
from kimi_tui.tui.prompt.image_chips import ImageChips
from kimi_tui.tui.row_list import RowList
from kimi_tui.tui.screens import (
    AnswersOnce,
    ImageChosen,
    ModelChosen,
    ModelMissing,
    OpeningFailed,
    QuitChosen,
    RefusesEarlyClicks,
    SessionChosen,
    SettingsOpened,
    TakesTypedText,
    ThemeChosen,
    parse_sheets,
    push_dialog,
    sheets,
)
from kimi_tui.tui.shutdown import (
    COMMON,
    SIGNALS,
    Ending,
    QuitWatchdog,
    end_interrupts,
    listen,
)
from kimi_tui.tui.slices import in_slices
from kimi_tui.tui.terminal_input import (
    AheadPassedOn,
    BackgroundTold,
    ExtendedKeysTold,
    Graphics,
    InputResumed,
    TerminalGone,
    TerminalInput,
    TextTypedAhead,
)
from kimi_tui.tui.textual_patches.app import PatchedApp, bindings_of, driver_of, parse_source
from kimi_tui.tui.textual_patches.compositor import draw_all
from kimi_tui.tui.theme import KIMI_SIXTEEN, OURS, borrowed, theme_of, themes_for
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.tui.typed_bursts import TypedPaste, TypedText

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kimi_tui.demo import Demo
    from kimi_tui.instant.prompt import InstantPrompt
    from kimi_tui.tui.dialogs.settings import SettingsScreen
    from kimi_tui.tui.model_setup.models import ModelPick
    from kimi_tui.tui.notices import Level
    from kimi_tui.tui.prompt.area import Draft
    from kimi_tui.tui.prompt.command import CommandTable


MOUSE_OFF = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
LEFT_BUTTON = 1
LONGEST_HOLD_S = 0.5
"""Seconds for which the first frame may wait for keys that were pressed before it."""
COPIED_NAME = "copied.txt"
"""A file in a session's folder: the last copied text that was too long for the terminal's clipboard."""
EARLIER_KEYS_S = 0.5
"""The longest that quitting waits for the field to handle the keys before."""
LAST_KEYS_S = 1.0
"""The most seconds for which the end by a signal waits until the keys that were read before have been handled."""
HELD_S = 0.02
"""Seconds between two checks whether keys are still held back."""
KEEPING_S = 0.5
"""Seconds within which drafts are stored when the program is ended from outside the event loop."""
GRAPHICS_ANSWER_S = 0.7
"""Seconds within which the terminal must answer which graphics protocol it has."""
COLLECT_S = 1.0
"""Seconds from the first frame until the garbage collector runs: what is made meanwhile, the engine above all, stays, and the first
collection would hold up the first key.
"""
STYLE_SLICE_S = 0.003
"""Seconds for which widgets are styled for another theme before keys are handled."""
QUIT_KEYS = frozenset({"ctrl+c", "ctrl+d", "ctrl+q"})

_add_mode = cast(
    "Callable[[App[None]], Callable[[str, Callable[[], Screen[Any]]], None]]",
    attrgetter("add_mode"),
)
"""`App.add_mode` with a complete type: Textual's own leaves the type of the screens open."""


class KimiApp(PatchedApp, inherit_bindings=False):
    """The Textual app of kimi-tui.

    Args:
        launch: the launch from the command line.
        colours: the number of the terminal's colours; with few, the theme of sixteen colours is used whatever is configured.
        instant: the instant prompt that has the terminal; None if none was painted.

    Attributes:
        launch: the launch from the command line, as the first run changed it.
        glyphs: the set of signs in use, Unicode or ASCII.
        window_status: window title, progress and notifications of the terminal.
        images: the images behind the chips in prompts. They belong to the app: a message may move to another session.
        exit_message: one line to print once the terminal is restored; empty for none. So are the next three.
        demo_notice: a sentence about the files of the demo that are kept.
        unsent_text: the text that could be neither sent nor stored, with the reason.
        resume_hint: how to resume the session.
    """

    TITLE = "kimi-tui"
    DEFAULT_MODE = "session-0"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", id="quit", show=False, priority=True),
        Binding("ctrl+c", "quit_if_again", "Quit", show=False, system=True),
        # The binding of the screen below is not reached from a widget that floats over it.
        Binding("ctrl+c", "quit_over_dialog", "Quit", show=False, priority=True),
        # Dialogs over the main screen need the key too, as the key bindings of the screen below are not reached.
        Binding(
            "ctrl+z", "suspend_unless_written", "Suspend", id="suspend", show=False, priority=True
        ),
        # This comes before the fields and lists of dialogs over the main screen, which has the same key.
        Binding("f1", "help", "Help", id="help", show=False, priority=True),
        Binding("ctrl+l", "draw_anew", "Draw the screen anew", id="redraw", show=False),
    ]

    def __init__(
        self,
        launch: Launch,
        *,
        colours: int = TRUE_COLOUR,
        instant: InstantPrompt | None = None,
    ) -> None:
        use_sure_timers()
        self.launch = launch
        self._instant = self._typed_into = instant
        self._end_code: int | None = None
        """The exit code with which a signal, or the loss of the terminal, ends the app; None before."""
        self._first_frame = ExitStack()
        """Holds the first frame back until what was typed before is in it."""
        self._has_said_goodbye = False
        self._ending = Ending(self._restore_terminal, self._settled_code)
        self._quit_keys = QuitWatchdog(
            lambda: self.return_code is not None, self._ending.end_at_once
        )
        self._themes = themes_for(colours)
        told = instant.is_light if instant is not None else None
        self._is_light = bool(guess_light(os.environ) if told is None else told)
        """Whether the terminal is light."""
        self._follows = colours > FEW and launch.config.theme == AUTO
        """Whether the theme is dark or light as the terminal is."""
        chosen = self._theme_named("16" if colours <= FEW else launch.config.theme)
        # This is set before Textual makes its style sheet, so that the sheet is parsed once and not again for another theme.
        self.set_reactive(App.theme, chosen.name)
        # Textual loads the styles of every screen but the first.
        super().__init__(css_path=[*sheets("app", "rows"), *self._first_sheets()])
        self.glyphs: Glyphs = ASCII if launch.config.glyphs == "ascii" else UNICODE
        self.exit_message = ""
        self.demo_notice = ""
        self.unsent_text = ""
        self.resume_hint = ""
        self.window_status = WindowStatus(self._write, launch.config.notify)
        self._open_screens: list[MainScreen] = []
        self._n_sessions = 0
        self._ahead: TypeAhead | None = None
        """The keys held back for the screen of a session, or without one."""
        self._taken_as_text: WeakSet[events.Key] = WeakSet()
        """Keys whose text was taken as pasted, and which are still to come."""
        self._pressed_on: WeakKeyDictionary[events.Key, list[DOMNode]] = WeakKeyDictionary()
        """The widget that had the focus when a key was passed on, and the widgets that contain it."""
        self._quits_again = False
        """Whether a notice says that Ctrl+C quits if it is pressed again."""
        self.images = ImageChips(self.glyphs.cut)
        self._graphics: Graphics | None = None
        """The graphics protocol of the terminal; None before it was queried."""
        self._clipboard_advice: str | None = None
        """The obstacle that may keep copies from the clipboard; None before the first copy."""
        self._reported: set[tuple[str, str, int]] = set()
        self.set_class(launch.config.glyphs == "ascii", "-ascii")
        if launch.config.reduced_motion:
            self.animation_level = "none"
        if launch.config.keys:
            self.set_keymap(dict(launch.config.keys))

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver class, but reading the terminal with `TerminalInput`, which no input can end."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        made = partial(
            TerminalInput,
            key_read=self._key_read,
            asks_background=self._follows,
            splits_alt=self.launch.config.prompt.vim,
            chords=frozenset(",".join(self.launch.config.keys.values()).split(",")),
            instant=self._instant,
        )
        return cast("type[Driver]", made)

    def _key_read(self, key: str) -> None:
        """Count presses of the keys that quit. Called in the input thread, since the event loop may be blocked."""
        if key in QUIT_KEYS:
            self._quit_keys.pressed()

    @property
    def _terminal(self) -> TerminalInput | None:
        """The driver that reads the terminal; None if the app runs without a terminal, as in tests."""
        driver = driver_of(self)
        return driver if isinstance(driver, TerminalInput) else None

    # --- screens

    def _is_first_run(self) -> bool:
        """Return whether a model is needed and none is configured."""
        has_own = self.launch.demo or bool(self.launch.external_agent)
        return not has_own and not isinstance(self.launch.choice, ModelChoice)

    def _first_sheets(self) -> list[str | PurePath]:
        if self.launch.replay:
            from kimi_tui.tui.replay.screen import ReplayScreen

            return ReplayScreen.SHEETS
        if not self._is_first_run():
            return self._picking_sheets() if self.launch.picks else MainScreen.SHEETS
        from kimi_tui.tui.model_setup.welcome import WelcomeScreen

        return WelcomeScreen.SHEETS

    @staticmethod
    def _picking_sheets() -> list[str | PurePath]:
        from kimi_tui.tui.sessions.screen import SessionsScreen

        return SessionsScreen.SHEETS

    def screen_styled(self, screen: Screen[Any]) -> None:
        """Parse the style sheets of a screen that is to be shown, and no others.

        Textual parses those of all screens and widgets, and styles all visible widgets, which takes 50 ms before a dialog can
        be drawn. None of our sheets has a rule for another screen.
        """
        parse_sheets(self, screen.css_path)

    def get_default_screen(self) -> Screen[Any]:
        """Return the main screen, the list of sessions, the first run, or a replay."""
        if self.launch.replay:
            from kimi_tui.tui.replay.screen import ReplayScreen

            return ReplayScreen(self.launch, self.size)
        if not self._is_first_run() and self.launch.picks:
            from kimi_tui.tui.sessions.screen import SessionsScreen

            return SessionsScreen(self.launch)
        if not self._is_first_run():
            return self._main_screen()
        from kimi_tui.tui.model_setup.welcome import WelcomeScreen

        return WelcomeScreen(self.launch)

    def _main_screen(self) -> MainScreen:
        stored = self._instant.stored if self._instant is not None else None
        if stored is not None and (stored.look.columns, stored.look.rows) != self.size:
            stored = None
        screen = MainScreen(self.launch, self.size, self.images, self.window_status, stored)
        self._open_screens.append(screen)
        return screen

    def _following_screen(self) -> Screen[Any]:
        """Return the main screen of another session, or the list of sessions if a model had to be chosen before it."""
        if self.launch.picks:
            from kimi_tui.tui.sessions.screen import SessionsScreen

            return SessionsScreen(self.launch)
        screen = self._main_screen()
        # The screen is styled when it is mounted; Textual would parse all style sheets before that, and once more after.
        self.skip_styling(screen)
        return screen

    @on(SessionChosen)
    async def _session_chosen(self, event: SessionChosen) -> None:
        """Replace the session on the screen by another one."""
        before = [screen for screen in self.screen_stack if isinstance(screen, MainScreen)]
        if not await self._may_leave(for_another=True):
            for screen in before:
                screen.bench.type_ahead.stay()
            return
        # The approval mode continues from the present one, and not from the one at the start of the program.
        modes = [screen.conversation.state.mode for screen in before]
        self.launch = event.launch._replace(mode=modes[-1]) if modes else event.launch
        drafts = [screen.take_draft() for screen in before]
        for screen in before:
            await self._end(screen, goes_on=event.launch.in_demo)
            self._open_screens.remove(screen)
        # Each session has a mode of its own, with which everything on its screen disappears, floating or not.
        left = self.current_mode
        if left == self.DEFAULT_MODE:
            # Textual removes only modes that were added, and created the first one itself.
            _add_mode(self)(left, Screen)
        self._n_sessions += 1
        following = f"session-{self._n_sessions}"
        _add_mode(self)(following, self._following_screen)
        await self.switch_mode(following)
        await self._take_along(before, drafts)
        await self.remove_mode(left)
        self._drop_watchers()

    async def _take_along(self, before: Sequence[MainScreen], drafts: Sequence[Draft]) -> None:
        """Move unsent text of the session that is left into the prompt of the next one."""
        following = self.screen
        for screen, draft in zip(before, drafts, strict=True):
            if isinstance(following, MainScreen):
                following.bench.give_draft(draft)
            await screen.bench.type_ahead.hand_over()

    def _drop_watchers(self) -> None:
        """Remove deleted widgets from the theme's watchers, as Textual's text areas stay there until the theme changes."""
        watchers: dict[str, list[tuple[MessagePump, object]]] = getattr(self, "__watchers", {})
        for listed in watchers.values():
            listed[:] = [watcher for watcher in listed if watcher[0].is_running]

    @on(InputResumed)
    @on(events.AppFocus)
    def _ignore_early_keys(self) -> None:
        """Ignore keys and clicks directly after the window was suspended or in the background.

        The keys may have been pressed before the user saw the screen, and a click may only bring the window to the front.
        """
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen | AnswersOnce):
                screen.ignore_early_keys()

    # --- links

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        """Open an address in a graphical browser; if there is none, copy it to the clipboard and show a notice.

        Textual's own method may start a text browser in this terminal, on top of the program.
        """
        del new_tab
        from kimi_tui.tui.painter import is_web_address

        if is_web_address(url):
            self.run_worker(reported(self, partial(self._browse, url)), group="browser")

    async def _browse(self, url: str) -> None:
        from kimi_tui.tui.desktop import open_in_browser

        opened = await asyncio.to_thread(open_in_browser, url, dict(os.environ), self._work_dirs())
        from kimi_tui.tui.transcript.markdown import shown_address

        shown = shown_address(url)
        if opened:
            self._tell(f"Opened {shown}")
        else:
            self.copy_to_clipboard(url, f"No browser can be opened from here: copied {shown}")

    def _work_dirs(self) -> list[Path]:
        """Return the folder in which the program was started, and the work folders of the sessions on screens."""
        shown = [one for screen in self.screen_stack for one in screen.query(Transcript)]
        return [self.launch.work_dir, *(Path(one.work_dir) for one in shown)]

    @on(ModelMissing)
    def _model_missing(self, event: ModelMissing) -> None:
        """Continue with the first run at the choice of a model: there is no model, or the configured one cannot be used."""
        from kimi_tui.tui.model_setup.welcome import WelcomeScreen

        self.push_screen(WelcomeScreen(self.launch, event.words))

    @on(ModelChosen)
    def _model_chosen(self, event: ModelChosen) -> None:
        """Use the model with that name at once; without a name let the user choose from a list."""
        if event.name:
            work = partial(self._use_by_name, event.name)
            self.run_worker(reported(self, work), group="model", exclusive=True)
            return
        from kimi_tui.tui.model_setup.screens import ModelScreen

        push_dialog(self, ModelScreen(self.launch, event.thinking, event.taken), self._use)

    async def _use_by_name(self, name: str) -> None:
        from kimi_tui.tui.model_setup.models import model_by_name

        launch = await model_by_name(self.launch, name)
        if not isinstance(launch, str):
            await self._use_and_remember(launch)
        else:
            self._tell(launch, level="warning", advice="/model lists the available models.")

    def _use(self, pick: ModelPick | None) -> None:
        if pick is not None:
            work = partial(self._use_and_remember, *pick)
            self.run_worker(reported(self, work), group="model", exclusive=True)

    async def _use_and_remember(
        self, launch: Launch, thinking: str | None = None, here: bool = False
    ) -> None:
        """Continue with another model, which becomes the default if the former one was; one that cannot be used changes nothing."""
        from kimi_tui.tui.model_setup.models import ModelPick, remember_model, why_refused

        if (refused := await why_refused(launch)) is not None:
            advice = sentences(refused.advice, "The model stays the same.")
            self._tell(refused.message, level="warning", advice=advice)
            return
        pick = ModelPick(launch, thinking, here)
        chosen = await remember_model(self.launch, pick, os.environ)
        self.launch = chosen.launch
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                screen.conversation.use(chosen.launch, chosen.holds, thinking)

    def _write(self, sequence: str) -> None:
        """Write a control sequence to the terminal, between two frames."""
        driver = driver_of(self)
        if driver is not None:
            driver.write(sequence)

    # --- the clipboard

    @on(Transcript.Copied)
    def _copied(self, event: Transcript.Copied) -> None:
        self.copy_to_clipboard(event.text, event.words)

    def copy_to_clipboard(self, text: str, words: str = "") -> None:
        """Copy text to the clipboard of the terminal, and of the desktop if that is on this machine; show a notice.

        Args:
            text: the text to copy; if it is too long for terminals, the terminal gets only its beginning.
            words: the sentence of the notice; by default it says how much was copied.
        """
        taken = clipboard_part(text)
        super().copy_to_clipboard(taken)
        if asks_tmux(os.environ):
            # This is for the terminal outside tmux, which passes the sequence on but may keep no clipboard.
            self._write(tmux_clipboard_sequence(taken, os.environ))
        words = words or f"Copied {text_amount(text)}."
        if has_desktop(os.environ):
            work = partial(self._copy_on_desktop, text, taken, words)
            self.run_worker(reported(self, work), name="copy on the desktop")
            return
        self._say_copied(text, taken, words)

    async def _copy_on_desktop(self, text: str, taken: str, words: str) -> None:
        environ, folders = dict(os.environ), self._work_dirs()
        if await asyncio.to_thread(copy_to_desktop, text, environ, folders):
            self._tell(words)
        else:
            self._say_copied(text, taken, words)

    def _say_copied(self, text: str, taken: str, words: str) -> None:
        if taken != text or (self._clipboard_advice is None and asks_tmux(os.environ)):
            work = partial(self._tell_copied, text, taken, words)
            self.run_worker(reported(self, work), name="tell what was copied")
            return
        if self._clipboard_advice is None:
            self._clipboard_advice = clipboard_advice(os.environ)
        self._tell(words, advice=self._clipboard_advice)

    async def _tell_copied(self, text: str, taken: str, words: str) -> None:
        """Show a notice about the copied text, and for a text too long for terminals the file that contains all of it."""
        if self._clipboard_advice is None:
            asks = asks_tmux(os.environ)
            environ, folders = dict(os.environ), self._work_dirs()
            option = await asyncio.to_thread(tmux_option, environ, folders) if asks else ""
            self._clipboard_advice = clipboard_advice(os.environ, option)
        advice = self._clipboard_advice
        if taken != text:
            words = f"Copied the first {text_amount(taken)} of {text_amount(text)}. Terminals accept no more."
            advice = f"{await self._keep_copied(text)} {advice}".strip()
        self._tell(words, advice=advice)

    async def _keep_copied(self, text: str) -> str:
        """Write a text that is too long for terminals into the session's folder.

        Returns:
            a sentence about its place; empty without a session.
        """
        shown = (one for one in self.screen_stack if isinstance(one, MainScreen))
        soul = next((one.conversation.soul for one in shown), None)
        if soul is None:
            return ""
        session = soul.session
        path = session.dir / COPIED_NAME

        def write() -> None:
            session.storage.replace_file(path, text.encode("utf-8", "replace"))

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            return f"The full text could not be written to {short(path)}: {reason_of(error, named_in_text=path)}."
        return f"The full text is in {COPIED_NAME} in {short(session.dir)}"

    # --- pictures

    @on(ImageChosen)
    def _image_chosen(self, event: ImageChosen) -> None:
        from kimi_tui.tui.dialogs.picture import PictureScreen, PictureTerminal

        terminal = PictureTerminal(self.graphics, self.draw_at)
        push_dialog(self, PictureScreen(event.facts, event.load, terminal))

    async def graphics(self) -> Graphics:
        """Return the graphics protocol of the terminal (`""` for none). The terminal is queried once, when first needed."""
        terminal = self._terminal
        if self._graphics is None and terminal is not None:
            loop = asyncio.get_running_loop()
            answered: asyncio.Future[Graphics] = loop.create_future()

            def settle(found: Graphics) -> None:
                if not answered.done():
                    answered.set_result(found)

            terminal.ask_for_graphics(partial(loop.call_soon_threadsafe, settle))
            try:
                self._graphics = await asyncio.wait_for(answered, GRAPHICS_ANSWER_S)
            except TimeoutError:
                self._graphics = ""
                terminal.expect_no_graphics()
        return self._graphics or ""

    def draw_at(self, x: int, y: int, sequence: str) -> None:
        """Write a drawing sequence at a cell, between two frames; the cursor keeps its place.

        Args:
            x: column of the cell.
            y: row of the cell.
            sequence: bytes of the terminal's graphics protocol, as text.
        """
        self._write(f"\x1b7\x1b[{y + 1};{x + 1}H{sequence}\x1b8")

    # --- colours

    @on(ThemeChosen)
    def _theme_chosen(self, event: ThemeChosen) -> None:
        """Use the theme with that name, or the next one, and store it for later starts."""
        wanted = event.name.strip().lower()
        if wanted and wanted not in THEMES:
            known = f"{', '.join(THEMES[:-1])} or {THEMES[-1]}"
            self._tell(
                f'There is no theme "{event.name[:20]}".', level="warning", advice=f"{known}."
            )
            return
        themes = self._themes
        current = next((one for one in OURS if themes[one].name == self.theme), OURS[-1])
        chosen = wanted or OURS[(OURS.index(current) + 1) % len(OURS)]
        self.show_theme(chosen)
        self.run_worker(
            reported(self, partial(self._keep_theme, chosen)), group="theme", exclusive=True
        )

    def show_theme(self, name: str) -> None:
        """Use the theme with that name in this run."""
        was_following, self._follows = self._follows, name == AUTO
        if self._follows and not was_following and self._terminal is not None:
            self._terminal.ask_background()
        self.theme = self._theme_named(name).name

    def refresh_css(self, animate: bool = True) -> None:
        """Parse the style sheets for another theme and style all widgets, in slices; no frame is drawn before the last one."""
        if not self.screen_stack:
            super().refresh_css(animate)
            return
        work = partial(self._style_anew, animate)
        self.run_worker(reported(self, work), group="colours", exclusive=True)

    async def _style_anew(self, animate: bool) -> None:
        self.stylesheet.set_variables(self.get_css_variables())
        with self.batch_update():
            await in_slices(self._styled(animate), STYLE_SLICE_S)
        for screen in self.screen_stack:
            self.skip_styling(screen)
        # Widgets whose colours changed are drawn by now.
        self.screen.refresh(repaint=False, layout=True)

    def _styled(self, animate: bool) -> Generator[None]:
        stylesheet = self.stylesheet
        # The style sheet stores the rules of each source, and joins them to one list when it is asked for that.
        for place, source in list(stylesheet.source.items()):
            parse_source(stylesheet, place, source)
            yield
        stylesheet.parse()
        stylesheet.update_nodes([self], animate=animate)
        yield
        # The app's own children are the screen on top, which would be styled twice.
        for screen in self.screen_stack:
            for one in screen.walk_children(with_self=True):
                if one.is_attached:
                    stylesheet.update_nodes([one], animate=animate)
                yield

    def _theme_named(self, name: str) -> Theme:
        followed = "light" if self._is_light else "dark"
        return theme_of(followed if name == AUTO else name, self._themes)

    @on(BackgroundTold)
    def _background_told(self, event: BackgroundTold) -> None:
        self._is_light = event.light
        if self._follows:
            self.theme = self._theme_named(AUTO).name

    @on(SettingsOpened)
    async def _settings_opened(self, event: SettingsOpened) -> None:
        await in_daemon_thread(import_module, "kimi_tui.tui.dialogs.settings")
        from kimi_tui.tui.dialogs.settings import ConfigurationFile, SettingsScreen

        path, theirs = self.launch.config_path, kimi_cli_config_file()
        copied = theirs if not path.exists() and theirs.exists() else None
        file = ConfigurationFile(path, copied, self.launch.given, kept=not self.launch.demo)
        for screen in self._open_screens:
            file = file._replace(used=screen.conversation.used_values)
        push_dialog(self, SettingsScreen(self.launch.config, file, self._commands, event.key))

    # The class is imported when it is opened, so its messages are named by their handlers.

    def on_settings_screen_theme_previewed(self, event: SettingsScreen.ThemePreviewed) -> None:
        """Show a theme without keeping it."""
        self.show_theme(event.name)

    def on_settings_screen_setting_saved(self, event: SettingsScreen.SettingSaved) -> None:
        """Apply a setting that was changed in the settings screen, as far as it can change while the program runs."""
        key, config = event.key, event.config
        self.launch = self.launch._replace(config=config)
        for screen in self._open_screens:
            screen.conversation.use_config(config)
        if key == "theme":
            self.show_theme(config.theme)
        elif key == "prompt.vim":
            if self._terminal is not None:
                self._terminal.splits_alt = config.prompt.vim
            for screen in self._open_screens:
                screen.prompt.area.use_vim(on=config.prompt.vim)
        elif key.startswith("statusline."):
            for screen in self._open_screens:
                screen.show_status_line(config.statusline)
        elif key == "reduced_motion":
            self.animation_level = "none" if config.reduced_motion else "full"

    async def _keep_theme(self, name: str) -> None:
        """Start with these colours from now on."""
        path = self.launch.config_path
        if self.launch.demo or (not path.exists() and kimi_cli_config_file().exists()):
            # A file of our own would replace kimi-cli's, which names the model.
            self._tell(f"The theme is {name} until you quit.")
            return
        try:
            await asyncio.to_thread(save_setting, path, "theme", name)
        except (ConfigError, OSError) as error:
            words = f"The theme is {name} until you quit, because it could not be saved: {reason_of(error)}"
            self._tell(words, level="warning")
        else:
            self._tell(f"The theme is {name}.")

    def _tell(self, words: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice on the topmost screen that can; do nothing if there is none."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ShowsNotices):
                screen.tell(words, level=level, advice=advice)
                return

    def get_theme(self, theme_name: str) -> Theme | None:
        """Return a theme of ours, or of Textual."""
        # Every widget that is styled asks for it.
        for theme in self._themes.values():
            if theme.name == theme_name:
                return theme
        return super().get_theme(theme_name)

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Our themes, and Textual's."""
        ours = {theme.name: theme for theme in self._themes.values()}
        return {**super().available_themes, **ours}

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our names of colours, for a theme that does not know them."""
        theme = self.current_theme
        if "page" in theme.variables:
            return {}
        return (KIMI_SIXTEEN if theme.ansi else borrowed(theme)).variables

    # --- start and end

    async def run_async(self, **options: Any) -> None:
        """Run the app. Signals that end it are handled from the start, and not only after the terminal is taken over."""
        listen(Callbacks(self.report), self._ended_by_the_system, COMMON)
        try:
            await super().run_async(**options)
        finally:
            end_interrupts()

    def on_load(self) -> None:
        """Hold the first frame back until what was typed before is in it: the instant prompt is on the screen."""
        if self._instant is not None:
            self._first_frame.enter_context(self.batch_update())

    def on_ready(self) -> None:
        """Have the instant prompt hand over: the first frame can be drawn."""
        if self._instant is not None:
            self._instant.ready.set()
            self.set_timer(LONGEST_HOLD_S, self._draw_first)

    @on(TextTypedAhead)
    def _typed_ahead(self, event: TextTypedAhead) -> None:
        """Put text into the prompt that was typed before the app read the terminal. No key has come yet."""
        if self.return_code is not None:
            return  # the instant prompt keeps it
        for screen in self._open_screens:
            screen.bench.last_key_at = event.at
            screen.prompt.area.write(event.text)
        if self._typed_into is not None:
            self._typed_into.n_taken = 0

    @on(AheadPassedOn)
    def _ahead_passed_on(self, event: AheadPassedOn) -> None:
        """Note when the widget with the focus has handled keys that were pressed before, and draw the first frame after all of them."""
        (self.focused or self.screen).call_later(partial(self._took, event))

    def _took(self, event: AheadPassedOn) -> None:
        if self._typed_into is not None and self.return_code is None:
            self._typed_into.n_taken = event.n_pieces
        if event.is_all:
            self._typed_into = None
            self._draw_first()
            if self._end_code is not None:
                self._end_behind_keys()

    @property
    def _is_left_behind(self) -> bool:
        """Whether the app exits before it has taken what was typed ahead. The instant prompt keeps that, so it must not go into the
        draft as well.
        """
        return self._typed_into is not None and self.return_code is not None

    def _draw_first(self) -> None:
        if self._instant is not None:
            self._instant = None
            self._first_frame.close()
            self.screen.refresh()

    def on_mount(self) -> None:
        """Postpone work until the first screen is drawn."""
        self.call_after_refresh(self._settle)
        asyncio.get_running_loop().set_exception_handler(self._unheard)

    @on(Driver.SignalResume)
    def _resumed(self) -> None:
        """Draw everything after a suspension (SIGCONT): the terminal is empty, and Textual draws only changes."""
        self.refresh(layout=True)
        self._ignore_early_keys()  # until it is drawn on the terminal

    def on_resize(self, event: events.Resize) -> None:
        """Redraw everything if the window has the same size as before: it had another size for a moment, whose remains are visible."""
        for screen in self.screen_stack:
            draw_all(screen, event.size)

    def action_draw_anew(self) -> None:
        """Redraw everything on a terminal whose modes are set anew: it may be another terminal, or show the output of other programs."""
        if (terminal := self._terminal) is not None:
            terminal.renew_modes(is_asked=True)
        for screen in self.screen_stack:
            draw_all(screen, self.size)
        self.refresh(layout=True)

    @on(Footer.HintClicked)
    def _hint_clicked(self, event: Footer.HintClicked) -> None:
        """Press the key of the clicked hint. A question has rows of its own for that, which check whether they were visible."""
        asks = any(one.bench.question is not None for one in self._open_screens)
        key = key_named(event.key, self.launch.config.keys)
        if key and not asks:
            self.post_message(events.Key(key, event.key if len(event.key) == 1 else None))

    @on(ExtendedKeysTold)
    def _extended_keys_told(self) -> None:
        """Update the names of keys to those that this terminal sends."""
        for screen in self._open_screens:
            screen.bench.update_footer()

    @on(TerminalGone)
    def _terminal_gone(self) -> None:
        self._ended_by_the_system(128 + signal.SIGHUP)

    def _ended_by_the_system(self, code: int) -> None:
        self._ending.begin()
        if self._end_code is not None or self.return_code is not None:
            return  # it is ending already, with a settled exit code
        self._end_code = code
        typed_into = self._typed_into
        if typed_into is not None and not typed_into.ready.is_set():
            # No key was passed on yet: the instant prompt keeps them all.
            self._end_now()
            return
        # A timer of Textual's does nothing before the app runs.
        Callbacks(self.report).call_later(LAST_KEYS_S, self._end_now)
        if typed_into is None:
            self._end_behind_keys()

    def _end_behind_keys(self) -> None:
        """Exit when the keys that were read have had all their effects: a widget of an app that exits tells its parents nothing."""
        if not self.is_running or not self.call_later(self._pass_keys):
            self._end_now()

    def _pass_keys(self) -> None:
        holders = (self._ahead, *(screen.bench.type_ahead for screen in self._open_screens))
        if any(one is not None and one.is_holding for one in holders):
            Callbacks(self.report).call_later(HELD_S, self._end_behind_keys)
            return
        # A widget tells those above it of a key, and one of these may answer with a message to one below: hence the second pass.
        pumps = list((self.focused or self.screen).ancestors_with_self)
        self._pass_up(pumps * 2, 0)

    def _pass_up(self, pumps: Sequence[MessagePump], at: int) -> None:
        """Exit when each of these from a place on, one after the other, has handled the messages that it has by then."""
        while at < len(pumps):
            if pumps[at].call_later(self._pass_up, pumps, at + 1):
                return
            at += 1
        self._end_now()

    def _end_now(self) -> None:
        if self.return_code is None and self._end_code is not None:
            self.exit(return_code=self._end_code)

    async def on_unmount(self) -> None:
        """Stop running commands, and save and release sessions, whatever ended the app."""
        for screen in self._open_screens:
            await self._end(screen, clean=not self.has_crashed)
        self.window_status.end()
        if not self.is_headless:
            self._ending.begin()

    def _settled_code(self) -> int:
        """Return the exit code; a failure if none was settled."""
        return 1 if self.return_code is None else self.return_code

    def _restore_terminal(self) -> None:
        """Restore the terminal and print the exit messages. May be called in a thread."""
        driver = driver_of(self)
        if driver is not None and not self._has_said_goodbye:
            with suppress(Exception):
                # The driver does this too, but only in the main thread.
                driver.write(MOUSE_OFF)
                self.window_status.end()
                driver.stop_application_mode()
                driver.close()
        if not self._has_said_goodbye:
            # A hanging disk must not keep the messages from being printed.
            keeping = threading.Thread(target=self._keep_what_is_left, daemon=True)
            keeping.start()
            keeping.join(KEEPING_S)
        self.print_exit_messages()
        sys.stderr.flush()
        if self._typed_into is not None:
            self._typed_into.keep()

    def _keep_what_is_left(self) -> None:
        """Store the drafts, and log what the event loop was doing when it did not end in time. Called in a thread."""
        for screen in self._open_screens:
            with suppress(Exception):
                screen.conversation.keep_at_once()
                self.unsent_text = screen.conversation.unsent_text or self.unsent_text
                self.resume_hint = screen.conversation.resume_hint or self.resume_hint
        if self.return_code is None and not self.exit_message:
            from kimi_tui.logging_setup import log_hang

            self.exit_message = "kimi-tui hung and was killed"
            with suppress(Exception):
                path = log_file()
                log_hang(path, self._secrets)
                self.exit_message += f". {log_words()}"

    def log_interrupt(self, error: BaseException) -> bool:
        """Log an exception that ends a program, such as KeyboardInterrupt, and set the exit message to a line about it.

        Returns:
            False if the app had not yet taken over the terminal: then there is no message.
        """
        if driver_of(self) is None:
            return False
        from kimi_tui.logging_setup import log_crash

        path = log_file()
        log_crash(path, error, self._secrets)
        name = type(error).__name__
        self.exit_message = f"kimi-tui was ended by {name}. {log_words()}"
        return True

    def print_exit_messages(self) -> None:
        """Print the exit messages, such as how to resume the session, once. The terminal must have been restored."""
        if self._has_said_goodbye:
            return
        self._has_said_goodbye = True
        for words in (self.exit_message, self.unsent_text, self.demo_notice, self.resume_hint):
            if words:
                print(f"kimi-tui: {words}", file=sys.__stderr__)

    async def _end(
        self, screen: MainScreen, *, clean: bool = True, goes_on: Demo | None = None
    ) -> None:
        self.exit_message = await screen.end(clean=clean, goes_on=goes_on) or self.exit_message
        self.demo_notice = screen.conversation.kept or self.demo_notice
        self.unsent_text = screen.conversation.unsent_text or self.unsent_text
        self.resume_hint = screen.conversation.resume_hint or self.resume_hint

    def _settle(self) -> None:
        self.set_timer(COLLECT_S, COLLECTOR.begin)
        if not self.is_headless:
            listen(Callbacks(self.report), self._ended_by_the_system, set(SIGNALS) - set(COMMON))

    async def on_event(self, event: events.Event) -> None:
        """Note when a key was last pressed, for approvals, and drop clicks on a widget that appeared after the press."""
        is_typed = isinstance(event, events.Key | events.Paste | TypedPaste | TypedText)
        if is_typed and not event.is_forwarded and self._is_left_behind:
            return
        if isinstance(event, TypedPaste):
            # In a field of one line each pasted key acts as if it were pressed.
            is_text = self._takes_lines() or self._takes_typed(event.text)
            for one in [events.Paste(event.text)] if is_text else event.keys:
                one.time = event.time
                one.set_sender(self)
                await self.on_event(one)
            return
        if isinstance(event, TypedText):
            if self._takes_typed(event.text):
                self._taken_as_text.update(event.keys)
                paste = events.Paste(event.text)
                paste.time = event.time
                paste.set_sender(self)
                await self.on_event(paste)
            return
        if isinstance(event, events.Key) and event in self._taken_as_text:
            self._taken_as_text.discard(event)
            return
        if isinstance(event, events.MouseEvent) and not event.is_forwarded:
            pointed = self._pointed_at(event)
            if pointed is not None and pointed.parent is None:
                return  # the widget was removed since the last frame: Textual asks for its parents
            is_up = isinstance(event, events.MouseUp)
            if is_up and event.button not in (0, LEFT_BUTTON):
                self.forget_press()  # a click with another button does nothing
            if is_up and isinstance(pointed, RefusesEarlyClicks) and pointed.refuses_click(event):
                self.forget_press()  # so that no click comes of it
        if isinstance(event, events.MouseDown) and not event.is_forwarded:
            # Any other key does the same: a user who does something else between two presses does not mean to quit.
            if self._quits_again:
                self._warn_of_quitting("")
            for screen in self._open_screens:
                screen.quitting.cancel()
        if isinstance(event, events.Key | events.Paste):
            for screen in self._open_screens:
                screen.bench.last_key_at = event.time
            if self._quits_again and not (isinstance(event, events.Key) and event.key == "ctrl+c"):
                self._warn_of_quitting("")
            if await self._comes_ahead(event):
                return
        places: list[DOMNode] = []
        if isinstance(event, events.Key):
            if event.is_forwarded:
                places = self._pressed_on.pop(event, [])
            elif self.focused is not None:
                self._pressed_on[event] = self.focused.ancestors_with_self
        if isinstance(event, events.Key) and places and places[0] is not self.focused:
            await self._act_there(event.key, places)
        else:
            await super().on_event(event)
        if isinstance(event, events.Key) and event.key in QUIT_KEYS:
            self._quit_keys.handled()

    def _takes_lines(self) -> bool:
        """Return whether a pasted text becomes text of several lines now."""
        from textual.widgets import Input

        screen, focused = self.screen, self.focused
        if isinstance(screen, MainScreen) and not isinstance(focused, Input):
            return not screen.bench.timeline_pane.has_keys or screen.bench.timeline_pane.acts
        return isinstance(focused, TextArea)

    def _takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted text now, because one key could answer or choose."""
        screen = self.screen
        is_several = "\n" in text and isinstance(self.focused, RowList)
        return is_several or (isinstance(screen, TakesTypedText) and screen.takes_typed(text))

    async def _comes_ahead(self, event: events.Key | events.Paste) -> bool:
        """Return whether a key or paste is held back, or was handled, before it is passed on."""
        ahead = self._ahead
        if ahead is not None and ahead.is_holding and not event.is_forwarded:
            return ahead.intercept(event)
        session = next((one for one in self.screen_stack if isinstance(one, MainScreen)), None)
        if session is not None and await session.intercept(event):
            return True
        if event.is_forwarded or isinstance(self.screen, MainScreen):
            return False
        if ahead is None or ahead.screen is not self.screen:
            ahead = self._ahead = TypeAhead(self.screen, self.on_event, of_fields=True)
        return ahead.intercept(event)

    def _pointed_at(self, event: events.MouseEvent) -> Widget | None:
        try:
            return self.get_widget_at(event.x, event.y)[0]
        except NoWidget:
            return None

    async def _act_there(self, key: str, places: Sequence[DOMNode]) -> None:
        """Run the binding of a key in the widgets that had the focus when it was pressed; the focus has moved since."""
        if self.screen not in places:
            return  # another screen was opened over it, or closed
        for place in places:
            if not place.is_attached:
                continue
            for binding in bindings_of(place, key):
                if not binding.priority and await self.run_action(binding.action, place):
                    return
            if place.is_modal:
                return

    @on(OpeningFailed)
    def _opening_failed(self, event: OpeningFailed) -> None:
        self.exit_message = event.words
        self.exit(return_code=event.code)

    def action_suspend_unless_written(self) -> None:
        """Return to the shell for a while; a field gets the key first, to undo or to suspend."""
        if isinstance(self.focused, TextArea):
            raise SkipAction
        self.action_suspend_process()

    def action_help(self) -> None:
        """List all keys, starting with those of the screen over the main one."""
        screen = self.screen
        title = screen.HELP_TITLE if isinstance(screen, AnswersOnce) else ""
        if not title:
            raise SkipAction
        from kimi_tui.tui.dialogs.help import HelpScreen

        push_dialog(self, HelpScreen(self._commands, self.launch.config.keys, title))

    @property
    def _commands(self) -> CommandTable:
        """All commands, including those of files if a session is open."""
        from kimi_tui.tui.main.commands.table import COMMANDS

        return next((one.commands for one in self._open_screens), COMMANDS)

    @on(QuitChosen)
    async def action_quit(self) -> None:
        """Quit after the session was saved and released; the user is told first about unsaved text."""
        if self.return_code is not None:
            return  # it is ending already, with a settled exit code
        await self._handle_earlier_keys()
        if not await self._may_leave():
            return
        for screen in self._open_screens:
            await self._end(screen)
        self.exit(return_code=1 if self.exit_message else 0)

    async def _handle_earlier_keys(self) -> None:
        """Wait until the field has handled the keys before the present one, which its own queue may still hold."""
        handled = asyncio.Event()
        if self.focused is not None and self.focused.call_later(handled.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(handled.wait(), EARLIER_KEYS_S)

    def action_quit_if_again(self) -> None:
        """Show a notice that pressing the key again quits; quit if that notice is visible already."""
        if self._quits_again:
            self.post_message(QuitChosen())
            return
        words = [screen.quitting.first_press("Ctrl+C") for screen in self._open_screens]
        self._warn_of_quitting(words[-1] if words else "Press Ctrl+C again to quit.")
        self.set_timer(STAYS_S, lambda: self._warn_of_quitting(""))

    def action_quit_over_dialog(self) -> None:
        """Act as `action_quit_if_again`, over a dialog; a selection in its field is copied as well."""
        if not self.screen.is_modal:
            raise SkipAction
        from textual.widgets import Input

        self.action_quit_if_again()
        field = self.focused
        if isinstance(field, Input | TextArea) and field.selected_text:
            raise SkipAction

    def _warn_of_quitting(self, words: str) -> None:
        self._quits_again = bool(words)
        for screen in self.screen_stack:
            for footer in screen.query(Footer):
                footer.urgent = words

    async def _may_leave(self, *, for_another: bool = False) -> bool:
        """Return whether leaving the session would lose nothing, or the user accepts the loss.

        Args:
            for_another: whether another session replaces it; else the program ends.
        """
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen) and not await screen.quitting.may_quit(
                for_another=for_another
            ):
                return False
        return True

    def report(self, error: Exception) -> None:
        """Log an error that the program survives, with its traceback, and show it to the user as a notice of one line.

        The same error again is logged without its traceback, and not shown.
        """
        from kimi_tui.logging_setup import log_fault, log_fault_again

        if (place := _place(error)) in self._reported:
            log_fault_again(*place)
            return
        self._reported.add(place)
        log_fault(log_file(), error, self._secrets)
        self._tell(FAULT, level="warning", advice=fault_advice())

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler of the event loop: log an exception that neither we nor a library caught."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.report(error)
        else:
            loop.default_exception_handler(context)

    @property
    def _secrets(self) -> tuple[str, ...]:
        choice = self.launch.choice
        return choice.secrets if isinstance(choice, ModelChoice) else ()

    def crashed(self, error: Exception) -> None:
        """Log the traceback of a fatal error and set the exit message to one line that names the log."""
        from kimi_tui.logging_setup import log_crash

        path = log_file()
        log_crash(path, error, self._secrets)
        is_saved = not any(screen.conversation.state.unsaved for screen in self._open_screens)
        what = (
            "your session is saved"
            if is_saved
            else "part of your session could not be saved to the disk"
        )
        self.exit_message = f"crashed; {what}. {log_words()}"


def _place(error: BaseException) -> tuple[str, str, int]:
    """Return the kind of an error, and the place where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return type(error).__name__, "", 0
    return type(error).__name__, last.tb_frame.f_code.co_filename, last.tb_lineno
