"""The contents of files that the store holds, as texts: read, and compared by lines."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.workspace.diff import LineDiff, diff_lines, text_of
from kimi_tui.workspace.entries import Entry
from kimi_tui.workspace.plan import FileChange
from kimi_tui.workspace.store import BlobDamaged, BlobStore

_MOST_COMPARED_BYTES = 2 << 20


class Texts:
    """Blocking; in the one thread that uses the store.

    Args:
        store: holds the contents.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def of(self, entry: Entry | None) -> str | None:
        """The text of a state of a file, empty where there is none; None where it is no text or too large to show."""
        if entry is None:
            return ""
        if not entry.kept or entry.size > _MOST_COMPARED_BYTES:
            return None
        try:
            content = self._store.get(entry.blob)
        except BlobDamaged:
            return None
        return text_of(content)

    def compared(
        self, before: Entry | None, after: Entry | None, max_rows: int | None
    ) -> LineDiff | None:
        """The difference of two states of a file, or None where they are no texts or too large to show.

        Args:
            before: None where there was no file.
            after: None where there is none.
            max_rows: at most so many rows are listed, None for all; the counts are whole anyway.
        """
        old, new = self.of(before), self.of(after)
        return None if old is None or new is None else diff_lines(old, new, max_rows)

    def compared_all(self, changes: Sequence[FileChange], most_rows: int) -> list[LineDiff | None]:
        """The same for each change of a plan, from what was to what is; `most_rows` are listed of all of them together."""
        found: list[LineDiff | None] = []
        room = most_rows
        for one in changes:
            diff = self.compared(one.then, one.now, max(0, room))
            room -= 0 if diff is None else len(diff.rows)
            found.append(diff)
        return found
