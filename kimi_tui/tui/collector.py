"""When Python looks for cycles that nobody holds any more.

Not while a stored session is read: nearly all that is made then stays, and going through it again and again takes a tenth of
the time, in pauses of up to 0.1 s. What a long one left is taken out of the collector's sight, until another one is opened.
"""

from __future__ import annotations

import gc

LONG = 2_000
"""Events of a history that is worth it."""


class Collector:
    """Python's collector of cycles, of which there is one in a process."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_frozen = False

    def begin(self) -> None:
        """Collect from now on, unless a session is being read."""
        # What a collection looks at in one go is small, so that none takes longer than a few milliseconds.
        gc.set_threshold(5_000, 5, 200)
        if not self._is_held:
            gc.enable()

    def hold(self) -> None:
        """A stored session is read from here on."""
        if self._has_frozen:
            # What the one before left may be gone by now.
            gc.unfreeze()
            self._has_frozen = False
        gc.disable()
        self._is_held = True

    def release(self, n_events: int = 0) -> None:
        """It is read, or will not be; its history has so many events. Does nothing where nothing is held."""
        if not self._is_held:
            return
        self._is_held = False
        if n_events >= LONG:
            gc.freeze()
            self._has_frozen = True
        gc.enable()


COLLECTOR = Collector()
