"""Makes apps of tests draw everything before a test looks, however busy the machine is, and nothing that no test sees."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App, ScreenStackError
from textual.geometry import Region
from textual.message_pump import MessagePump
from textual.pilot import Pilot, WaitForScreenTimeout
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.textual_patches.compositor import RowCompositor

N_ROUNDS = 200
"""Rounds after which a change must be an animation, such as a blinking cursor."""


def wait_for_it() -> None:
    """Have `Pilot.pause()` end when no widget has a message and the screen has nothing left to lay out or to draw.

    By itself it waits until the process seems to be idle, which it also seems to be while others have the processor, and
    draws once. What a layout brings about (a size, hence a scroll bar, hence another layout) is only drawn later. Nothing is
    drawn while a widget has a message, as the program's own timer does not: its tasks go first in each turn of the loop.
    """
    pause = Pilot.pause

    @functools.wraps(pause)
    async def paused(self: Pilot[Any], delay: float | None = None) -> None:
        await pause(self, delay)
        n_quiet = 0
        for _ in range(N_ROUNDS):
            if (screen := _screen(self.app)) is None:
                return
            if _has_messages(screen):
                n_quiet = 0
            elif _is_to_be_drawn(screen):
                n_quiet = 0
                screen._on_timer_update()
            else:
                n_quiet += 1
                if n_quiet > 1:
                    _draw_screen(screen)
                    return
            await asyncio.sleep(0)

    Pilot.pause = paused


def draw_what_is_looked_at() -> None:
    """Have widgets draw what has changed when a test looks or presses a key, and not in every frame before.

    It looks in `Pilot.pause()`, and before keys and the mouse, as a person does: some answers count only once they were
    seen. Frames that nobody sees were a good part of the work of these tests. An app that ends draws what is left, so nothing
    stays undrawn. A fixture says with `every_frame` where each frame is drawn, such as where callbacks are timed.
    """
    update, shut_down = Compositor.render_update, App._shutdown
    press, point = App._press_keys, Pilot._post_mouse_events

    @functools.wraps(press)
    async def pressed(self: App[Any], keys: Iterable[str]) -> None:
        if (screen := _screen(self)) is not None:
            _draw_screen(screen)
        await press(self, keys)

    @functools.wraps(point)
    async def pointed(self: Pilot[Any], *arguments: Any, **named: Any) -> bool:
        if (screen := _screen(self.app)) is not None:
            _draw_screen(screen)
        return await point(self, *arguments, **named)

    @functools.wraps(update)
    def drawn(self: Compositor, full: bool = False, screen_stack: Any = None, **named: Any) -> Any:
        if full:
            return update(self, full, screen_stack, **named)
        if _draws.every_frame:
            visible_screen_stack.set(screen_stack or [])
            _draw(self)
        return None

    @functools.wraps(shut_down)
    async def ended(self: App[Any]) -> None:
        if (screen := _screen(self)) is not None and self._exception is None:
            _draw_screen(screen)
        await shut_down(self)

    Compositor.render_update = drawn  # pyright: ignore[reportAttributeAccessIssue]
    App._shutdown = ended
    App._press_keys = pressed
    Pilot._post_mouse_events = pointed


class _Draws:
    """How much is drawn of the apps of this process."""

    every_frame = False
    """Whether each frame is."""


_draws = _Draws()


@contextmanager
def every_frame(is_wanted: bool = True) -> Iterator[None]:
    """Draw every frame meanwhile, or only what is looked at."""
    before, _draws.every_frame = _draws.every_frame, is_wanted
    try:
        yield
    finally:
        _draws.every_frame = before


def _draw(compositor: Compositor) -> None:
    """Have widgets draw the rows that have changed, without putting these together: nobody sees an app without a terminal."""
    if compositor._dirty_regions:
        crop = Region.from_union(compositor._dirty_regions).intersection(compositor.size.region)
        compositor._dirty_regions.clear()
        for _ in compositor._get_renders(crop):
            pass


def _draw_screen(screen: Screen[Any]) -> None:
    """Draw what has changed on a screen since it was drawn."""
    visible_screen_stack.set(screen.app._background_screens)
    _draw(screen._compositor)


def ask_the_busy() -> None:
    """Have a key, a click or a pause wait only for widgets that are busy.

    Textual sends a message to every widget and waits until each has answered: a good part of all messages of these tests.
    One that waits for a message would answer at once.
    """

    async def waited(self: Pilot[Any], timeout: float = 30.0) -> bool:
        await asyncio.sleep(0)
        if (screen := _screen(self.app)) is None:
            return False
        n_asked, all_answered = 0, asyncio.Event()

        def answered() -> None:
            nonlocal n_asked
            n_asked -= 1
            if not n_asked:
                all_answered.set()

        for pump in _pumps(screen):
            if not _is_waiting(pump) and pump.call_later(answered):
                n_asked += 1
        if not n_asked:
            return self.app._exception is None
        tasks = [
            asyncio.create_task(some.wait()) for some in (all_answered, self.app._exception_event)
        ]
        done, rest = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        if not done:
            raise WaitForScreenTimeout("Some widgets do not come to an end.")
        # These widgets may have sent messages to others.
        for _ in range(N_ROUNDS):
            if (now := _screen(self.app)) is None or all(map(_is_waiting, _pumps(now))):
                break
            await asyncio.sleep(0)
        return not n_asked

    Pilot._wait_for_screen = waited


def count_changes() -> None:
    """Count what changes a screen, so that `text_of` reads a screen again only after a change.

    A test that waits for words looks fifty times a second; where many wait, that was a good part of their work.
    """
    set_dirty, lay_out = Widget._set_dirty, Screen._refresh_layout
    _changes.append(0)

    @functools.wraps(set_dirty)
    def dirtied(self: Widget, *regions: Region) -> None:
        _changes[0] += 1
        set_dirty(self, *regions)

    @functools.wraps(lay_out)
    def laid_out(self: Screen[Any], *arguments: Any, **named: Any) -> None:
        lay_out(self, *arguments, **named)
        _changes[0] += 1

    Widget._set_dirty = dirtied
    Screen._refresh_layout = laid_out


_changes: list[int] = []
"""The number of changes of all screens in this process; empty where nobody counts them."""
_read: WeakKeyDictionary[App[Any], tuple[tuple[object, ...], str]] = WeakKeyDictionary()
"""The text that was read of each app, with what it was read of."""


def text_of(app: App[Any]) -> str:
    """Return the text that the user sees on the screen of an app, a line for each row."""
    of = (*_changes, app.size, *map(id, app.screen_stack))
    before, text = _read.get(app, ((), ""))
    if not _changes or before != of:
        text = "\n".join("".join(strip.text for strip in row).rstrip() for row in strips_of(app))
        _read[app] = of, text
    return text


def strips_of(app: App[Any]) -> list[list[Strip]]:
    """Return the rows of the screen of an app as the user sees them, each as the parts of its widgets, from the left."""
    size, compositor = app.size, app.screen._compositor
    # Textual sets this for each frame. Without it a dialog is drawn with an empty background, and keeps that.
    visible_screen_stack.set(app._background_screens)
    try:
        if not isinstance(compositor, RowCompositor):
            return [[strip] for strip in compositor.render_strips(size)]
        return _rows(compositor)[: size.height]
    except KeyError:
        # A widget that is being removed has no styles any more; the next layout leaves it out.
        return []


def _rows(compositor: RowCompositor) -> list[list[Strip]]:
    """Return the visible parts of each row, taken from the topmost widget first: strips are cut but not joined, which is slow."""
    size = compositor.size  # not always the app's
    gaps = [[(0, size.width)] for _ in range(size.height)]
    parts: list[dict[int, Strip]] = [{} for _ in gaps]
    for region, _, strips in compositor._get_renders(size.region):
        for y, strip in zip(region.line_range, strips, strict=False):
            left: list[tuple[int, int]] = []
            for start, end in gaps[y]:
                x, stop = max(start, region.x), min(end, region.right)
                if x >= stop:
                    left.append((start, end))
                    continue
                is_whole = stop - x == region.width
                parts[y][x] = strip if is_whole else strip.crop(x - region.x, stop - region.x)
                left += [gap for gap in ((start, x), (stop, end)) if gap[0] < gap[1]]
            gaps[y] = left
    return [[row[x] for x in sorted(row)] for row in parts]


def _is_waiting(pump: MessagePump) -> bool:
    """Return whether a widget waits for a message, and has finished with the one before."""
    come = pump._message_queue.ready_event
    return not come.is_set() and bool(come._waiters)


def _screen(app: App[Any]) -> Screen[Any] | None:
    try:
        return app.screen
    except ScreenStackError:
        return None


def _pumps(screen: Screen[Any]) -> tuple[MessagePump, ...]:
    return (screen.app, *screen.walk_children(with_self=True))


def _has_messages(screen: Screen[Any]) -> bool:
    return any(pump.message_queue_size for pump in _pumps(screen))


def _is_to_be_drawn(screen: Screen[Any]) -> bool:
    pending = (
        screen._layout_required,
        screen._scroll_required,
        screen._repaint_required,
        screen._dirty_widgets,
        screen._callbacks,
    )
    return any(pending)
