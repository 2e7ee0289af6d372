"""The shared parts of all screens: access to the app and to style sheets, messages to the app, and base classes for questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

from textual.await_complete import AwaitComplete
from textual.message import Message
from textual.screen import Screen, ScreenResultType

from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.textual_patches.compositor import draw_changed_rows
from kimi_tui.tui.textual_patches.frames import draw_when_wanted

if TYPE_CHECKING:
    from textual import events
    from textual.app import App
    from textual.message_pump import MessagePump

    from kimi_tui.launch import Launch
    from kimi_tui.tool_cards import ImageBlock

STYLE_SHEETS = Path(__file__).parent.parent / "css"
"""The folder of the style sheets. Each screen names its own, so that those of screens not shown are not parsed."""

_app = attrgetter("app")


def app_of(node: MessagePump) -> App[object]:
    """Return the running app of a widget; `node.app` has an incomplete type."""
    return cast("App[object]", _app(node))


def sheets(*names: str) -> list[str | PurePath]:
    """Return the paths of style sheets by name, without `.tcss`."""
    return [STYLE_SHEETS / f"{name}.tcss" for name in names]


def add_sheets(node: MessagePump, *names: str) -> None:
    """Parse style sheets that were not needed until now; those that are known already cost nothing."""
    parse_sheets(node, sheets(*names))


def parse_sheets(node: MessagePump, paths: Iterable[str | PurePath]) -> None:
    """Parse style sheets by their paths, as `add_sheets` does by name."""
    stylesheet = app_of(node).stylesheet
    missing = [PurePath(path) for path in paths if not stylesheet.has_source(str(path), "")]
    if missing:
        stylesheet.read_all(missing)
        stylesheet.parse()


class AnswersOnce(Screen[ScreenResultType]):
    """A screen whose result is an answer; only the first `dismiss` counts.

    Otherwise a key that was still in a queue when the screen was dismissed would dismiss the screen below it. As a base class
    it comes after `ModalScreen`, as Textual takes a widget's default style from its first base.
    """

    HELP_TITLE: ClassVar[str] = ""
    """The title of the help's section on this screen's keys. If it is empty, the key of the help belongs to the screen itself."""
    _was_covered = False
    """Whether another screen was shown over this one."""

    def __init__(
        self,
        name: str | None = None,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(name, id, classes)
        draw_changed_rows(self)
        draw_when_wanted(self, Callbacks(report_of(self)).call_at)

    @property
    def accepts_keys(self) -> bool:
        """Whether an answer would count now."""
        return True

    @property
    def subject(self) -> object:
        """What it is about, if that is not the same for every screen of its class. `push_dialog` compares it."""
        return None

    def ignore_early_keys(self) -> None:
        """Called when the screen is drawn again, after a stop of the program (SIGCONT) or when the screen over it was closed.

        Keys that were pressed before the terminal has drawn it must not answer.
        """

    def on_screen_suspend(self) -> None:
        """Note that another screen is over this one."""
        self._was_covered = True

    def on_screen_resume(self) -> None:
        """Ignore keys until the screen is drawn again; Textual also sends this when it is shown for the first time."""
        if self._was_covered:
            self._was_covered = False
            self.ignore_early_keys()

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close with `result`, unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


def push_dialog(
    node: MessagePump,
    dialog: AnswersOnce[ScreenResultType],
    take: Callable[[ScreenResultType | None], None] | None = None,
) -> bool:
    """Push a screen, unless one of its class about the same subject is open, above or below others.

    Keys that came faster than screens open, such as a key of a command and Esc again and again, would else put the same
    screen over itself many times, and every frame is drawn through all of them.

    Args:
        node: a screen or widget of the app, or the app.
        dialog: the screen to push.
        take: called with its result; not if it is not pushed.

    Returns:
        whether it was pushed.
    """
    app = app_of(node)
    for screen in app.screen_stack:
        if isinstance(screen, type(dialog)) and screen.subject == dialog.subject:
            return False
    app.push_screen(dialog, take)
    return True


def push_once(
    screen: Screen[Any],
    question: AnswersOnce[ScreenResultType],
    take: Callable[[ScreenResultType | None], None],
) -> None:
    """Push a screen over another one, unless that is covered already, so that a key pressed twice opens it once.

    Args:
        screen: the screen below.
        question: the screen to push.
        take: called with its result.
    """
    # `is_current` would also hold below a transparent screen, and any screen is transparent before it has its colours.
    if app_of(screen).screen is screen:
        push_dialog(screen, question, take)


@runtime_checkable
class RefusesEarlyClicks(Protocol):
    """The protocol of a widget on which a click may be too early: meant for the former content of that place."""

    def refuses_click(self, event: events.MouseUp) -> bool:
        """Return whether a mouse button was released before the present content was shown, so that it must not count as a click."""
        ...


@runtime_checkable
class TakesTypedText(Protocol):
    """The protocol of a screen on which one key may answer, so that several characters which came at once are no keys."""

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted text now; the screen gets them as a paste."""
        ...


# These are messages of a screen to the app. They are plain classes, as dataclasses would take longer to define.


class OpeningFailed(Message):
    """The session cannot be opened: the app ends with this exit message and exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__()
        self.words = words
        self.code = code


class ModelMissing(Message):
    """The session cannot be opened before a model is chosen; `words` say why the configured one cannot be used, or its server cannot be
    asked; they are empty if that server only lists several.
    """

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class ImageChosen(Message):
    """An image is to be shown on a screen of its own; `load` reads it, and returns None if it is missing."""

    def __init__(self, facts: ImageBlock, load: Callable[[], Awaitable[bytes | None]]) -> None:
        super().__init__()
        self.facts = facts
        self.load = load


class SessionChosen(Message):
    """Another session was chosen, to replace this one."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


class ModelChosen(Message):
    """Another model was requested.

    Args:
        name: the model; empty if the user should choose it from a list.
        thinking: the present thinking setting, for the list.
        taken: the thinking settings that the present model supports.
    """

    def __init__(self, name: str, thinking: str = "", taken: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.name = name
        self.thinking = thinking
        self.taken = taken


class ThemeChosen(Message):
    """A theme was chosen by name; empty for the next one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class SettingsOpened(Message):
    """The user asked for the settings; `key` names the one to begin with, empty for the first."""

    def __init__(self, key: str = "") -> None:
        super().__init__()
        self.key = key


class QuitChosen(Message):
    """Posted when the user chose to quit."""
