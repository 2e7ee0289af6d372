"""The engine's methods for letters, other lines, summaries and marks; what each does is in the modules that they call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kimi_tui.soul.by_hand import ByHand
from kimi_tui.soul.drafting import Drafting
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.line_reading import LineReading
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.protocol import RewindOutcome, Soul, Target
from kimi_tui.soul.recorder import Recorder
from kimi_tui.soul.replacing import newest_summary, replace_summary
from kimi_tui.soul.travel_protocol import LineComparison, LineMessage, WorldLineInfo
from kimi_tui.wire.events import Record

T = TypeVar("T")


class EmptySummary(SoulError):
    """A summary without words would lose everything it stands for."""

    def __init__(self) -> None:
        super().__init__("The summary is empty.", advice="Undo the compaction to be without it.")


@dataclass(frozen=True, slots=True)
class TravelParts:
    """What these methods need."""

    line: LiveLine
    marks: PersonMarks
    by_hand: ByHand
    drafting: Drafting
    reading: LineReading
    recorder: Recorder


class TravellingSoul(Soul):
    """The part of the engine that answers `TimeTravel`.

    Args:
        travel: what it needs.
    """

    def __init__(self, travel: TravelParts) -> None:
        self._travel = travel

    @abstractmethod
    async def _alone(self, work: Coroutine[Any, Any, T], *, stoppable: bool = False) -> T: ...

    async def dmail(self, target: Target, text: str, *, go_on: bool = False) -> RewindOutcome:
        """Send the person's letter to the agent's past self."""
        outcome = await self._alone(self._travel.by_hand.dmail(target, text))
        if go_on:
            await self.resume()
        return outcome

    async def draft_dmail(self, target: Target) -> str:
        """Have the model draft a letter to a checkpoint, about what followed it; nothing of that is kept."""
        return await self._alone(self._travel.drafting.draft(target), stoppable=True)

    async def carry(
        self,
        world_line: int,
        uid: str,
        number: int,
        *,
        note: str = "",
        to: Target | None = None,
        go_on: bool = False,
    ) -> RewindOutcome:
        """Send one message of a line that was left to the present, or to a checkpoint."""
        outcome = await self._alone(self._travel.by_hand.carry(world_line, uid, number, note, to))
        if go_on:
            await self.resume()
        return outcome

    async def summary(self) -> str:
        """The newest summary on the live line; empty where there is none."""
        return await self._alone(newest_summary(self._travel.line))

    async def edit_summary(self, text: str) -> None:
        """Put another text in the place of the newest summary on the live line."""
        if not text.strip():
            raise EmptySummary
        await self._alone(replace_summary(self._travel.line, text.strip()))

    @property
    def pins(self) -> frozenset[tuple[str, int]]:
        """Pinned messages, as (uid of the checkpoint, number behind it)."""
        return self._travel.marks.pins

    async def pin(self, uid: str, number: int = 0, pinned: bool = True) -> None:
        """Keep a message from being dropped by a compaction or a D-Mail, or no longer."""
        await self._travel.marks.pin(uid, number, pinned)

    @property
    def bookmarks(self) -> Mapping[str, str]:
        """The person's names of checkpoints, by uid."""
        return self._travel.marks.bookmarks

    async def bookmark(self, uid: str, name: str) -> None:
        """Give a checkpoint a name, or with an empty one take it away."""
        await self._travel.marks.bookmark(uid, name)

    async def world_lines(self) -> Sequence[WorldLineInfo]:
        """The lines that were left, in order of number."""
        return await self._travel.reading.world_lines()

    async def read_line(self, world_line: int) -> list[Record]:
        """The events of one line from its first checkpoint on."""
        await self._travel.recorder.flush()
        return await self._travel.reading.read(world_line)

    async def messages(self, world_line: int = 0) -> Sequence[LineMessage]:
        """All messages of a line, markers left out (0: the live one)."""
        return await self._alone(self._travel.reading.messages(world_line, self.pins))

    async def compare(self, world_line: int) -> LineComparison:
        """A line that was left beside the live one, from where they part."""
        await self._travel.recorder.flush()
        return await self._alone(self._travel.reading.compare(world_line, self.pins))
