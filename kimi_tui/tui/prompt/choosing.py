"""What the prompt needs of a menu. Needed for types alone, so that no protocol is built before the first paint."""

from __future__ import annotations

from typing import Protocol


class Menu(Protocol):
    """Something to choose from with the arrows while the person types."""

    @property
    def active(self) -> bool:
        """Whether it has the arrows now."""
        ...

    def move(self, step: int) -> None:
        """Choose another entry."""
        ...
