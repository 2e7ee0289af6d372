"""What only the record knows of the messages of a line: what the card of a result draws, and where a letter came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kimi_tui.soul.record_pieces import pieces
from kimi_tui.wire import events as ev
from kimi_tui.wire.display import DisplayBlock
from kimi_tui.wire.events import Record


class LetterFacts(NamedTuple):
    """From which checkpoint a letter was sent, and the tokens that went with what it undid."""

    sent_from: int = -1
    saved: int = 0


class LineFacts:
    """Looks things up in a record.

    Args:
        records: all of it; none where nothing need be known.
    """

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._pieces = pieces(records)
        self._letters: dict[str, LetterFacts] = {}
        letter: LetterFacts | None = None
        for record in records:
            match record.event:
                case ev.ContextReverted(reason="dmail") as cut:
                    # A letter at the end undid nothing.
                    undid = cut.from_checkpoint >= cut.checkpoint_id
                    saved = max(0, cut.tokens_before - cut.tokens_after) if undid else 0
                    letter = LetterFacts(cut.from_checkpoint, saved)
                case ev.CheckpointCreated(kind="dmail", uid=uid) if letter is not None:
                    self._letters[uid] = letter
                    letter = None
                case _:
                    pass

    def display(self, uid: str, call_id: str) -> tuple[DisplayBlock, ...]:
        """What the card of a result draws beside its text; nothing where it is not known."""
        for record in self._pieces.get(uid, ()) if call_id else ():
            if isinstance(record.event, ev.ToolResult) and record.event.id == call_id:
                return record.event.display
        return ()

    def letter(self, uid: str) -> LetterFacts:
        """Where the letter of a checkpoint came from."""
        return self._letters.get(uid, LetterFacts())
