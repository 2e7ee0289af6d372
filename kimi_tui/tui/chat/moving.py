"""A surface on which what a revert took away stands a moment longer, and goes.

Textual animates one number; every picture is drawn from it. The content behind is already in its final state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.drawn import DrawnSurface
from kimi_tui.tui.chat.lines import Line

if TYPE_CHECKING:
    from kimi_tui.tui.chat.blocks import Block
    from kimi_tui.tui.chat.motion import Motion


class MovingSurface(DrawnSurface):
    """Shows the motion of a fold in front of its rows."""

    motion_progress: reactive[float] = reactive(1.0, init=False)
    """How far the motion has come; 1 when nothing moves."""

    _motion: Motion | None = None

    @property
    def is_moving(self) -> bool:
        """Whether a motion covers the rows: their position must not change meanwhile."""
        return self._motion is not None

    def begin_motion(self, first: int | None, blocks: Sequence[Block]) -> None:
        """Let the rows from a block on go; nothing moves where the person wants stillness.

        Args:
            first: the first block that is gone; the rows still show it.
            blocks: what is there now.
        """
        from kimi_tui.tui.chat.motion import motion_of

        flow = self._flow
        if first is None or flow is None or not self.is_ready or not self.is_on_screen:
            return
        if app_of(self).animation_level == "none":
            return
        self.finish_motion()
        motion = motion_of(flow, first, self.top, self.size.height, blocks[first:])
        if motion is None:
            return
        self._motion = motion
        self.set_reactive(MovingSurface.motion_progress, 0.0)
        self.animate(
            "motion_progress",
            1.0,
            duration=motion.duration_s,
            easing="linear",
            on_complete=self.finish_motion,
        )

    def finish_motion(self) -> None:
        """End any motion in its final state (any key, click or streamed text does)."""
        if self._motion is None:
            return
        self._motion = None
        app_of(self).animator.force_stop_animation(self, "motion_progress")
        self.set_reactive(MovingSurface.motion_progress, 1.0)
        self.motion_ended()
        self.refresh(self.area)

    def motion_ended(self) -> None:
        """The rows are to be seen again."""

    def watch_motion_progress(self) -> None:
        """Draw the next picture of the motion."""
        if self._motion is not None:
            self.refresh(self.area)

    def covering(self, row: int) -> Line | None:
        """The picture of the motion, in front of what is already there."""
        motion = self._motion
        if motion is None or row < motion.start:
            return None
        return motion.row(row, self.motion_progress, self.glyphs)
