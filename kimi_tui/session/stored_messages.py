"""Messages of a line that is not the live one, read from its file when they are looked at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from kimi_tui.llm.message import Message
from kimi_tui.session.line import LineIndex
from kimi_tui.session.message_list import parse_message
from kimi_tui.session.storage import Storage, read_exactly


class StoredMessages(Sequence[Message]):
    """Some messages of a file.

    Args:
        storage: The disk.
        path: The file.
        index: Where they stand in it.
        numbers: Which; None for all.
    """

    def __init__(
        self, storage: Storage, path: Path, index: LineIndex, numbers: range | None = None
    ) -> None:
        self._storage = storage
        self._path = path
        self._index = index
        self._numbers = range(index.n_messages) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return StoredMessages(self._storage, self._path, self._index, self._numbers[index])
        offset, length = self._index.place(self._numbers[index])
        try:
            fd = self._storage.open(self._path, os.O_RDONLY)
            try:
                return parse_message(read_exactly(self._storage, fd, length, offset))
            finally:
                self._storage.close(fd)
        except OSError:
            return parse_message(b"")
