"""Replaces private parts of Textual's widgets: when the styles of rows are computed, the theme and wrapping of a text area, and the
size of a scrolling view.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

if TYPE_CHECKING:
    from textual.reactive import Reactive
    from textual.widget import Widget as _Widget
else:
    # A base that is a node of Textual would hide the style sheet of the base that is named after it.
    _Widget = object

_COMPACT = cast("Reactive[bool]", attrgetter("compact")(TextArea))


class LateStyled(_Widget):
    """A widget whose component classes get their styles when one is first asked for.

    Textual computes those of every component class of a widget whenever the widget gets styles, a third of a millisecond
    each. A widget that paints rows has up to forty of them, and paints a few.
    """

    @classmethod
    @lru_cache(maxsize=None)  # noqa: UP033 - the decorator of the method that it replaces, for its type
    def _get_component_classes(cls) -> frozenset[str]:
        """Return no classes, so that Textual computes none; there is no public way to say so."""
        return frozenset()

    def get_component_styles(self, *names: str) -> RenderStyles:
        """Return the styles of component classes. Raises KeyError for a widget that is not in the app."""
        for name in names:
            if name not in self._component_styles:
                if not self.is_attached:
                    raise KeyError(name)
                self._component_styles[name] = self._computed(name)
        return super().get_component_styles(*names)

    def _computed(self, name: str) -> RenderStyles:
        node = DOMNode(classes=name)
        node._attach(self)
        self.app.stylesheet.apply(node, animate=False)  # pyright: ignore[reportUnknownMemberType]
        return node.styles

    def notify_style_update(self) -> None:
        """Compute the styles again that were asked for, and draw the widget again if one has changed, as Textual does."""
        super().notify_style_update()
        before = dict(self._component_styles)
        self._component_styles.update((name, self._computed(name)) for name in before)
        if before != self._component_styles:
            self.refresh()


class PatchedTextArea(TextArea):
    """A text area whose theme can be read, whose text can be wrapped again, and in which many lines can be undone."""

    @property
    def styled_theme(self) -> TextAreaTheme:
        """The theme with the colours of the style sheets. The public `theme` is its name."""
        return self._theme

    def be_compact(self) -> None:
        """Have no border; call it in the constructor. Textual's argument `compact` would style the field before it is mounted."""
        self.set_reactive(_COMPACT, True)
        self.add_class("-textual-compact", update=False)

    def _recompute_cursor_offset(self) -> None:
        """Compute the cell of the cursor, which is moved into the text if it is outside.

        An undo or redo that makes the scrollbar appear or go asks for it between its change of the text and of the selection,
        and Textual would raise an exception.
        """
        location = self.clamp_visitable(self.cursor_location)
        self._cursor_offset = self.wrapped_document.location_to_offset(location)

    def rewrap(self) -> None:
        """Wrap the text for another width of the field, at the next frame. Textual does so when the widget has another size."""
        self._rewrap_and_refresh_virtual_size()


def set_content_size(view: ScrollView, size: Size) -> None:
    """Fit the scrollbars of a view to the size of its content, which was set without its watchers.

    Setting `virtual_size` lays out the whole screen, for each row that a long answer gets.
    """
    view._scroll_update(size)
