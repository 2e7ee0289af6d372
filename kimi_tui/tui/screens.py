"""What all screens share: the app with a type, style sheets, what they tell the app, why a session cannot be
opened, and that a question is answered once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

from textual.await_complete import AwaitComplete
from textual.message import Message
from textual.screen import Screen, ScreenResultType

from kimi_tui.tui.compositor import draw_changed_rows

if TYPE_CHECKING:
    from textual import events
    from textual.app import App
    from textual.message_pump import MessagePump

    from kimi_tui.launch import Launch
    from kimi_tui.wire.display import ImageBlock

STYLE_SHEETS = Path(__file__).parent.parent / "css"
"""The folder of the style sheets. Each screen names its own, so that what is not shown is not parsed."""

_app = attrgetter("app")


def app_of(node: MessagePump) -> App[object]:
    """The running app. `node.app` is the same, but of a type that Textual leaves open."""
    return cast("App[object]", _app(node))


def sheets(*names: str) -> list[str | PurePath]:
    """The paths of style sheets by name, without `.tcss`."""
    return [STYLE_SHEETS / f"{name}.tcss" for name in names]


def add_sheets(node: MessagePump, *names: str) -> None:
    """Parse style sheets that were not needed until now; those that are known already cost nothing."""
    parse_sheets(node, sheets(*names))


def parse_sheets(node: MessagePump, paths: Iterable[str | PurePath]) -> None:
    """As `add_sheets`, by their paths."""
    stylesheet = app_of(node).stylesheet
    missing = [PurePath(path) for path in paths if not stylesheet.has_source(str(path), "")]
    if missing:
        stylesheet.read_all(missing)
        stylesheet.parse()


class AnswersOnce(Screen[ScreenResultType]):
    """A screen that is dismissed with an answer; only the first one counts.

    A key that was on its way already when it was closed would else close what is below it.
    Beside `ModalScreen` it comes second: Textual takes the looks of a widget from its first base.
    """

    HELP_TITLE: ClassVar[str] = ""
    """What stands in the help over its keys. With it the key of the help opens that; without it is the screen's own."""

    def __init__(
        self,
        name: str | None = None,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(name, id, classes)
        draw_changed_rows(self)

    @property
    def armed(self) -> bool:
        """Whether an answer would count now."""
        return True

    def woken(self) -> None:
        """Called when the program goes on after it was stopped: what was typed meanwhile must answer nothing."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close with `result`, unless it is closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()


def push_once(
    screen: Screen[Any],
    question: Screen[ScreenResultType],
    take: Callable[[ScreenResultType | None], None],
) -> None:
    """Show `question` over `screen`, unless something stands over it: a key pressed twice asks once.

    Args:
        screen: which was asked for it.
        question: the screen to show.
        take: gets its answer.
    """
    app = app_of(screen)
    # Not `is_current`: that holds below a screen that can be seen through, as any can before it has its colours.
    if app.screen is screen:
        app.push_screen(question, take)


@runtime_checkable
class VoidsClicks(Protocol):
    """A widget on which a click may come too early: one that was meant for what stood there before."""

    def voids(self, event: events.MouseUp) -> bool:
        """Whether a button was let go before this stood there."""
        ...


class CannotOpen(Exception):
    """The session asked for cannot be opened. `code` is the exit code where nothing else is left to do."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DiskRefuses(CannotOpen):
    """The disk does not take or give what the session needs, and may do so when it is asked again."""


class NoModelNamed(CannotOpen):
    """A server was named without a model. `listed` is false where it does not say either which ones it has."""

    def __init__(self, message: str, code: int, *, listed: bool) -> None:
        super().__init__(message, code)
        self.listed = listed


# What a screen tells the app. Plain classes: dataclasses would take longer to define than all of them.


class OpeningFailed(Message):
    """The session cannot be opened: end with these words and this exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__()
        self.words = words
        self.code = code


class ModelMissing(Message):
    """The session cannot be opened before a model is chosen; `words` say why its server cannot be asked, or nothing."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class ImageChosen(Message):
    """An image is to be shown on a screen of its own; `load` reads it, None where it is not there any more."""

    def __init__(self, facts: ImageBlock, load: Callable[[], Awaitable[bytes | None]]) -> None:
        super().__init__()
        self.facts = facts
        self.load = load


class SessionChosen(Message):
    """Another session was chosen, to take the place of this one."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


class ModelChosen(Message):
    """Another model is to be asked.

    Args:
        name: of the model; empty where the user is to choose it from a list.
        thinking: what is set of thinking now, for the list.
        taken: what the model in use takes there.
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
    """The settings are to be listed, to be changed."""


class QuitChosen(Message):
    """Posted when the user chose to quit."""
