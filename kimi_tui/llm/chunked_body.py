"""Chunked HTTP bodies, all chunks that have come in one piece: servers send every token in a chunk of its own.

The HTTP library takes each of them through an event, a state machine and five generators, which costs more than all
that is done with the token afterwards. Whatever is not a whole plain chunk goes to its own reader, as do all errors.
"""

from __future__ import annotations

import re
from typing import Any, cast

from h11 import SEND_BODY, Data, EndOfMessage
from h11._readers import READERS, ChunkedReader
from h11._receivebuffer import ReceiveBuffer

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_END = b"\r\n"


class ChunkedBody:
    """Reads one body, as h11's `ChunkedReader` does."""

    def __init__(self) -> None:
        self._reader = ChunkedReader()
        self._is_between = True
        """Whether a chunk begins here, behind the end of the last one where the reader wants that."""
        self._wants_end = False

    def __call__(self, buffer: ReceiveBuffer) -> Data | EndOfMessage | None:
        """The next piece of the body, or its end; None where more bytes are needed."""
        if self._is_between:
            came = bytes(buffer)
            start = len(_END) if self._wants_end and came.startswith(_END) else 0
            chunks, end = whole_chunks(came, start)
            if chunks:
                buffer.maybe_extract_at_most(end)
                self._reader, self._wants_end = ChunkedReader(), False
                return Data(b"".join(chunks))
        event = self._reader(buffer)
        self._is_between = self._wants_end = isinstance(event, Data) and event.chunk_end
        return event

    def read_eof(self) -> None:
        """The connection was closed within the body: the reader raises what h11 has for that."""
        self._reader.read_eof()


def whole_chunks(came: bytes, start: int) -> tuple[list[bytes], int]:
    """The plain chunks that are whole, from a place on, and where the next one begins; the last one is left."""
    chunks: list[bytes] = []
    while (found := _SIZE.match(came, start)) is not None:
        first = found.end()
        end = first + int(found[1], 16)
        if end == first or came[end : end + len(_END)] != _END:
            break
        chunks.append(came[first:end])
        start = end + len(_END)
    return chunks, start


def install() -> None:
    """Let the HTTP library read bodies so."""
    bodies = cast("dict[str, Any]", READERS[SEND_BODY])
    bodies["chunked"] = ChunkedBody
