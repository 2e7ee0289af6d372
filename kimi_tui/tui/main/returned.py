"""The messages that rewinds gave back to the prompt, and what becomes of them when a rewind is undone or done again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class _Returned:
    """A message of the live line before the rewind; `is_back` once it is on the live line again."""

    checkpoint_id: int
    text: str
    is_back: bool = False


class Returned:
    """Knows which message stands in the prompt because of a rewind, and no one's words."""

    def __init__(self) -> None:
        self._given: dict[str, _Returned] = {}
        self._standing = ""

    def gave(self, uid: str, checkpoint_id: int, text: str) -> None:
        """A rewind put the message of a checkpoint into the prompt.

        Args:
            uid: the checkpoint.
            checkpoint_id: its number.
            text: as it stands in the prompt.
        """
        self._given[uid] = _Returned(checkpoint_id, text)
        self._standing = uid

    def after(self, live: Collection[str], stands: str, *, again: bool) -> str | None:
        """What the prompt should hold after an operation, None for what it holds.

        Args:
            live: the checkpoints of the live line.
            stands: what the prompt holds.
            again: something that had been undone was done again.
        """
        standing = self._given.get(self._standing)
        is_untouched = standing is not None and standing.text == stands
        gone: list[str] = []
        for uid, one in self._given.items():
            if one.is_back and uid not in live:
                gone.append(uid)
            one.is_back = uid in live
        if again and gone and (is_untouched or not stands):
            # A rewind over several of them gave back the first.
            self._standing = min(gone, key=lambda uid: self._given[uid].checkpoint_id)
            return self._given[self._standing].text
        if standing is not None and is_untouched and standing.is_back:
            self._standing = ""
            return ""
        return None
