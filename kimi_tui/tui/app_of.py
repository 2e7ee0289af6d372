"""The app that a widget belongs to, with a type: Textual leaves the app's own type open."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from textual.app import App
    from textual.message_pump import MessagePump

_app = attrgetter("app")


def app_of(node: MessagePump) -> App[object]:
    """The running app."""
    return cast("App[object]", _app(node))
