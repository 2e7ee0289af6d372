"""The contents of files that the store holds, as texts: read, and compared by lines."""

from __future__ import annotations

from kimi_tui.workspace.diff import LineDiff, diff_lines, text_of
from kimi_tui.workspace.entries import Entry
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
