"""`ModelTurns`: which request of which future leaves next.

The first requests of futures with the same model begin with the same tokens, which a server keeps once the first answer has begun.
So the first request of one of them leaves alone, and those of the others when its answer begins: the past is paid for once. Beyond
that, a server answers only so many requests of futures at the same time. The main line does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Wait = Literal["", "first", "turn"]
"""Why a future waits: for the first answer of another one, or because the server answers enough others."""


class ModelServer(NamedTuple):
    """The server, and the model with its settings, that the requests of several futures share."""

    url: str
    model: str = ""


@dataclass(slots=True)
class _ServerLine:
    most: int
    running: set[str] = field(default_factory=set[str])
    waiting: list[str] = field(default_factory=list[str])


class ModelTurns:
    """Gives turns to the futures of one set.

    Args:
        most: returns how many requests a server may get at once.
        go: called with the key of a future whose request may leave.
        waits: called with the key of a future, and why its request waits; empty when it leaves.
    """

    def __init__(
        self,
        most: Callable[[str], int],
        go: Callable[[str], object],
        waits: Callable[[str, Wait], object],
    ) -> None:
        self._most = most
        self._go = go
        self._waits = waits
        self._servers: dict[str, ModelServer] = {}
        self._lines: dict[str, _ServerLine] = {}
        self._leaders: dict[ModelServer, str] = {}
        self._warm: set[ModelServer] = set()

    def join(self, key: str, server: ModelServer) -> None:
        """Add a future. The first one of a model leads the others."""
        self._servers[key] = server
        self._lines.setdefault(server.url, _ServerLine(self._most(server.url)))
        self._leaders.setdefault(server, key)

    def ask(self, key: str) -> None:
        """A request of a future wants to leave."""
        line = self._line(key)
        if line is not None and key not in line.waiting:
            line.waiting.append(key)
            self._give(line)
            self._tell(line)

    def begun(self, key: str) -> None:
        """The answer to a request has begun, so that the server knows the past by now."""
        if (server := self._servers.get(key)) is not None and server not in self._warm:
            self._warm.add(server)
            self._give_all()

    def left(self, key: str) -> None:
        """A request has ended."""
        line = self._line(key)
        if line is not None:
            line.running.discard(key)
            if key in line.waiting:
                line.waiting.remove(key)
            self._give_all()

    def leave(self, key: str) -> None:
        """A future has ended: another one leads if it did."""
        self.left(key)
        server = self._servers.pop(key, None)
        if server is not None and self._leaders.get(server) == key:
            del self._leaders[server]
            for other, its in self._servers.items():
                if its == server:
                    self._leaders[server] = other
                    break
        self._give_all()

    def refused(self, key: str) -> None:
        """The server refused a request because of too many; from now on it gets one at a time."""
        if (line := self._line(key)) is not None:
            line.most = 1

    def _line(self, key: str) -> _ServerLine | None:
        server = self._servers.get(key)
        return None if server is None else self._lines[server.url]

    def _give_all(self) -> None:
        for line in self._lines.values():
            self._give(line)
            self._tell(line)

    def _give(self, line: _ServerLine) -> None:
        for key in list(line.waiting):
            if len(line.running) >= line.most:
                return
            if self._why(key) != "first":
                line.waiting.remove(key)
                line.running.add(key)
                self._waits(key, "")
                self._go(key)

    def _tell(self, line: _ServerLine) -> None:
        for key in line.waiting:
            self._waits(key, self._why(key) or "turn")

    def _why(self, key: str) -> Wait:
        server = self._servers[key]
        is_ahead = server in self._warm or self._leaders.get(server) == key
        return "" if is_ahead else "first"
