"""Replaces private parts of Textual's `App`: style sheets, errors, focus, presses, driver, bindings, and the current app."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context
from pathlib import PurePath
from typing import Any, cast

from textual._context import active_app, active_message_pump
from textual.app import App
from textual.binding import Binding
from textual.css.stylesheet import CssSource, Stylesheet
from textual.css.types import CSSLocation
from textual.dom import DOMNode
from textual.driver import Driver
from textual.screen import Screen


class PatchedApp(App[None], inherit_bindings=False):
    """An app with hooks that are called when a screen is to be styled and when an error ends the app.

    It has no messages of Textual's own (`notify`): each screen would get a widget for them, and lay it out with every frame.
    """

    def __init__(self, *, css_path: list[str | PurePath]) -> None:
        super().__init__(css_path=css_path)
        self._disable_notifications = True

    def _load_screen_css(self, screen: Screen[Any]) -> None:
        """Call `screen_styled` first. Textual has no hook before it parses the style sheets of a screen."""
        self.screen_styled(screen)
        super()._load_screen_css(screen)  # pyright: ignore[reportUnknownMemberType]

    def screen_styled(self, screen: Screen[Any]) -> None:
        """Override this: it is called before a screen is styled."""

    def skip_styling(self, screen: Screen[Any]) -> None:
        """Count a screen as styled with the style sheets as they are.

        Textual counts the changes of style sheets for each screen, and styles all of one again that missed some.
        """
        screen._css_update_count = self._css_update_count

    def _watch_app_focus(self, focus: bool) -> None:
        """Keep the focused widget while another window has the keyboard focus.

        Textual blurs the widget at once, and an Enter that was pressed just before would be lost on its way. Only the watcher
        does that.
        """
        if focus:
            super()._watch_app_focus(focus)
        else:
            self.screen.update_node_styles()

    def forget_press(self) -> None:
        """Forget the pressed mouse button, so that its release makes no click. Textual makes one of each press with its release."""
        self._mouse_down_widget = None

    @property
    def has_crashed(self) -> bool:
        """Whether an error ends the app. Textual makes it public only after the app has ended."""
        return self._exception is not None

    def _handle_exception(self, error: Exception) -> None:
        """Call `crashed`, and end. Textual would keep the traceback for the screen that the user gets back.

        This is the only method through which all errors of handlers, timers and drawing pass.
        """
        self.crashed(error)
        if self._exception is None:
            self._exception = error
            cast("Any", self._exception_event).set()
        # The app may be ending already, by a signal.
        self._return_code = self._return_code or 1
        self._close_messages_no_wait()

    def crashed(self, error: Exception) -> None:
        """Override this: it is called with an error that ends the app."""


def driver_of(app: App[Any]) -> Driver | None:
    """Return the driver of the terminal; None before the app has it. Textual has no public way to the one that writes and suspends."""
    return app._driver


def end_by(app: App[Any], error: Exception) -> None:
    """End the app by an error that was raised outside its queues, such as in the thread that reads."""
    app._handle_exception(error)


def keymap_of(app: App[Any]) -> Mapping[str, str]:
    """Return the keys that were set for actions. Textual has `set_keymap` and no way to read it."""
    return app._keymap


def bindings_of(node: DOMNode, key: str) -> Sequence[Binding]:
    """Return the bindings of a key in a node. The public `active_bindings` are those of the focused widget alone."""
    return node._bindings.key_to_bindings.get(key, ())


def parse_source(stylesheet: Stylesheet, place: CSSLocation, source: CssSource) -> None:
    """Parse one source of a style sheet into its cache. The public `parse` takes all of them in one go, 50 ms for ours."""
    stylesheet._parse_rules(
        source.content, place, source.is_defaults, source.tie_breaker, source.scope
    )


def app_context() -> Context:
    """Return a `contextvars` context with the current app, but no widget or worker.

    Textual finds the app of a callback by two context variables, which only its private module has.
    """
    context = Context()
    app = active_app.get(None)
    if app is not None:
        context.run(active_app.set, app)
        context.run(active_message_pump.set, app)
    return context
