"""Token figures from events: in the window before each checkpoint (`CheckpointTokens`), and in the window now (`GaugeModel`).

The engine estimates the tokens before a checkpoint when it makes one; the server's own figure replaces the estimate when the
step has been answered. Estimates between two figures of the server, or before its first, are then fitted between these, as an
estimate does not know how the server counts. The same holds for the tokens that a D-Mail or a compaction left. Views, engine
and commands all use these figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    LineChanged,
    StatusUpdate,
    StepInterrupted,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
)


class TokenFigure(NamedTuple):
    """A number of tokens: `measured` where it is the server's figure, `fitted` where it is an estimate fitted to one."""

    tokens: int
    measured: bool
    fitted: bool = False


class Changed(NamedTuple):
    """What an event changed.

    Attributes:
        rows: the uids of checkpoints whose figures changed, a new one first.
        ends: the uids of D-Mails and compactions after which the tokens in the window changed, each with the difference.
    """

    rows: Sequence[str] = ()
    ends: Sequence[tuple[str, int]] = ()


UNCHANGED = Changed()


def fitted(tokens: int, estimate: int, figure: int, base: int = 0) -> int:
    """Fit the estimate of a part to the server's figure of the whole.

    Args:
        tokens: the estimate of the part.
        estimate: the estimate of the whole.
        figure: the server's figure of the whole.
        base: the server's figure before that; 0 for none.
    """
    least, share = min(base, figure), (min(tokens, estimate) - base) / max(1, estimate - base)
    return least + round((figure - least) * max(0.0, share))


class CheckpointTokens:
    """The tokens in the window before each checkpoint of a session, on any line, and after D-Mails and compactions, by uid."""

    def __init__(self) -> None:
        self._known: dict[str, TokenFigure] = {}
        self._ends: dict[str, TokenFigure] = {}
        # What was estimated since the server's last figure, which was `_base`; 0 before the first.
        self._guessed: dict[str, None] = {}
        self._guessed_ends: dict[str, None] = {}
        self._base = 0
        self._newest = ""
        self._is_step = False
        self._is_other_line = False
        self._summary = ""
        # The D-Mail or compaction behind which nothing came yet; of a D-Mail at first what it leaves.
        self._end = ""
        self._leaves: int | None = None
        self._used = 0
        # A record does not tell what was estimated before its first turn.
        self._estimated = True

    def get(self, uid: str) -> TokenFigure | None:
        """The tokens before a checkpoint; None where no event reported them."""
        return self._known.get(uid)

    def left_by(self, uid: str) -> TokenFigure | None:
        """The tokens after the D-Mail or the compaction of a checkpoint, an estimate until the next answer; None for any other checkpoint."""
        return self._ends.get(uid)

    def apply(self, event: Event) -> Changed:
        """Take in an event."""
        match event:
            case CheckpointCreated():
                return self._created(event)
            case StatusUpdate():
                return self._status(event)
            case ContextReverted():
                self._cut(event)
            case CompactionEnd(error=""):
                self._ended(self._summary, event.tokens_after)
            case LineChanged(op=op) if op in SWITCHES:
                self._is_other_line = True
            case _:
                pass
        return UNCHANGED

    def _cut(self, event: ContextReverted) -> None:
        cut = self._known.get(event.uid)
        if cut is not None and event.from_checkpoint >= event.checkpoint_id:
            # What is not on the line any more keeps the figure it has.
            self._base = min(self._base, cut.tokens)
            there = (uid for uid in self._guessed if self._known[uid].tokens <= cut.tokens)
            self._guessed = dict.fromkeys(uid for uid in there if uid != event.uid)
            self._guessed_ends.clear()
        if event.reason == "dmail":
            self._leaves = event.tokens_after
            if event.uid in self._known and event.from_checkpoint < event.checkpoint_id:
                self._ended(event.uid, event.tokens_after)  # told behind its checkpoint

    def _ended(self, uid: str, tokens: int) -> None:
        self._leaves = None
        if uid:
            self._end, self._ends[uid] = uid, TokenFigure(tokens, measured=False)
            self._guessed_ends[uid] = None

    def _created(self, event: CheckpointCreated) -> Changed:
        # A turn's checkpoint stands before the user's message, so the last report is what was sent up to it.
        is_reported = event.kind == "user" and not event.was and not self._estimated
        measured = event.measured or is_reported
        figure = TokenFigure(event.tokens or self._used, measured)
        self._newest, self._is_step = event.uid, event.kind == "step"
        self._known[event.uid] = figure
        more = UNCHANGED
        if event.id == 0 or self._is_other_line:
            self._settle(0 if event.id == 0 else figure.tokens)
        if measured:
            more = self._fit(figure.tokens, figure.tokens)
            self._settle(figure.tokens)
        elif not event.fitted:
            self._guessed[event.uid] = None
        self._end = self._end if self._is_step else ""
        if event.kind in SUMMARIES:
            self._summary = event.uid
            self._base = min(self._base, figure.tokens)
        elif event.kind == "dmail" and self._leaves is not None:
            self._ended(event.uid, self._leaves)
        return Changed((event.uid, *more.rows), more.ends)

    def _settle(self, base: int) -> None:
        """Keep the estimates so far as they are; only later ones are fitted from here on."""
        self._base, self._is_other_line = base, False
        if self._guessed:
            self._guessed.clear()
        if self._guessed_ends:
            self._guessed_ends.clear()

    def _status(self, event: StatusUpdate) -> Changed:
        self._used, self._estimated = event.used, event.estimated
        changed = UNCHANGED
        was = self._known.get(self._newest)
        if event.step_input is not None and was is not None and self._is_step and not was.measured:
            more = UNCHANGED
            if not event.estimated:
                self._guessed.pop(self._newest, None)
                more = self._fit(was.tokens, event.step_input)
            self._known[self._newest] = TokenFigure(event.step_input, not event.estimated)
            changed = Changed((self._newest, *more.rows), more.ends)
        elif self._end and not self._is_step:
            # Nothing was said behind it: this is what it left.
            changed = Changed(ends=((self._end, event.used - self._ends[self._end].tokens),))
            self._ends[self._end] = TokenFigure(event.used, not event.estimated)
        if self._is_other_line or not event.estimated:
            self._settle(event.used)
        else:
            self._base = min(self._base, event.used)
        return changed

    def _fit(self, estimate: int, figure: int) -> Changed:
        """Fit the estimates since the last figure of the server to its new one, for which the estimate was so many tokens."""
        if not self._guessed and not self._guessed_ends:
            self._end = ""
            return UNCHANGED
        rows, ends = list[str](), list[tuple[str, int]]()
        for uid in self._guessed:
            tokens = self._known[uid].tokens
            if self._base <= tokens:
                self._known[uid] = TokenFigure(
                    fitted(tokens, estimate, figure, self._base), measured=False, fitted=True
                )
                rows.append(uid)
        for uid in self._guessed_ends:
            was = self._ends[uid].tokens
            # The step that was answered is the first thing behind it.
            is_same = uid == self._end
            now = figure if is_same else fitted(was, estimate, figure, self._base)
            # An answer has told how the server counts: what is left of the estimate is the share of what was said since.
            self._ends[uid] = TokenFigure(now, measured=True, fitted=not is_same)
            ends.append((uid, now - was))
        self._end = ""
        return Changed(rows, ends)


class DMailCuts:
    """The D-Mails of a record, each with the uid of the checkpoint at which it was delivered; empty where that is not recorded."""

    def __init__(self) -> None:
        self.all: list[tuple[str, ContextReverted]] = []
        self._arrived = ""
        self._is_sent = False

    def apply(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case ContextReverted(reason="dmail", uid=uid):
                # One at the end took nothing back, and may be told of behind its checkpoint.
                has_arrived = uid == self._arrived and event.from_checkpoint < event.checkpoint_id
                self.all.append((uid if has_arrived else "", event))
                self._is_sent = not has_arrived
            case CheckpointCreated(kind="dmail", uid=uid):
                self._arrived = uid
                if self._is_sent:
                    self.all[-1] = (uid, self.all[-1][1])
                    self._is_sent = False
            case _:
                pass


def saved_by(uid: str, cut: ContextReverted, figures: CheckpointTokens) -> int:
    """The tokens that a D-Mail freed, by the server's next figure where there is one; 0 for one that only appended."""
    left = figures.left_by(uid)
    if cut.from_checkpoint < cut.checkpoint_id:
        return 0
    return max(0, cut.tokens_before - (left.tokens if left is not None else cut.tokens_after))


@dataclass(frozen=True, slots=True)
class FreedTokens:
    """The tokens in the window before and after the newest revert or compaction; 0 and 0 after a switch to another line.

    `serial` counts operations, to tell a new one from the one before.
    `estimated` is true while `after` is not the server's figure.
    """

    reason: str = ""
    before: int = 0
    after: int = 0
    serial: int = 0
    estimated: bool = False


_BYTES_OF_TOKEN = 4
"""About as many bytes of UTF-8 make a token: four letters, or a little more than one sign of Chinese."""
_SEEN = 10
_SEEN_OF_WINDOW = 400
"""The gauge moves with an answer that streams by so many tokens, or by such a part of the window where that is more."""


class GaugeModel:
    """The state of the gauge, reduced from events.

    Attributes:
        status: the newest report of the window; while an answer streams, and after a revert or compaction, an estimate of it
            until the next report.
        freed: the tokens that the newest rewind, D-Mail or compaction freed.
    """

    def __init__(self) -> None:
        self.status = StatusUpdate(used=0, limit=0, trigger=0)
        self.freed = FreedTokens()
        self._is_step = False
        # Whether reports to come tell better what was left: not those behind what the user says, or of another line.
        self._is_guess = False
        self._told: StatusUpdate | None = None
        """The report that was there when the answer began that streams now."""
        self._streamed = 0.0
        """About how many tokens have come of it."""

    def apply(self, record: EventRecord) -> bool:
        """Apply one event; returns whether the gauge may look different now."""
        match record.event:
            case TextPart(text) | ThinkPart(text):
                return self._stream(text)
            case ToolCall(arguments=text) | ToolCallPart(arguments=text):
                return self._stream(text)
            case StepRetry() | StepInterrupted(failed=True):
                return self._drop_streamed()
            case StatusUpdate() as status:
                self._told = None
                freed = self.freed
                self._correct(status)
                if status == self.status and self.freed == freed:
                    return False
                self.status = status
            case CheckpointCreated(kind=kind):
                self._is_step = kind == "step"
                self._is_guess = self._is_guess and kind != "user"
                return False
            case LineChanged(op="jump" | "undo" | "redo"):
                # What the line that was left had lost says nothing of this one.
                self._is_guess = False
                self.freed = FreedTokens(serial=self.freed.serial + 1)
            case ContextReverted() as event:
                self._drop(event.reason, event.tokens_before, event.tokens_after)
            case CompactionEnd() as event if not event.error:
                # The revert of a compaction was an event before, but did not say how far the window falls.
                self._drop("compaction", event.tokens_before, event.tokens_after)
            case _:
                return False
        return True

    def _stream(self, text: str) -> bool:
        """Count more of an answer in; true where that is enough to be seen."""
        if self._told is None:
            self._told, self._streamed = self.status, 0.0
        told = self._told
        self._streamed += len(text.encode("utf-8", "surrogatepass")) / _BYTES_OF_TOKEN
        grown = round(self._streamed * (told.correction or 1.0))
        if told.used + grown - self.status.used < max(_SEEN, told.limit // _SEEN_OF_WINDOW):
            return False
        self.status = told._replace(used=told.used + grown, talk=told.talk + grown, estimated=True)
        return True

    def _drop_streamed(self) -> bool:
        """Go back to the report before an answer of which nothing stays."""
        told, self._told = self._told, None
        if told is None or told == self.status:
            return False
        self.status = told
        return True

    def _correct(self, status: StatusUpdate) -> None:
        """Replace the estimate of `freed.after` by the server's next figure: that of the first request since."""
        if self._is_guess:
            sent = status.step_input if self._is_step else None
            after = status.used if sent is None else sent
            self.freed = replace(self.freed, after=after, estimated=status.estimated)
            self._is_guess = sent is None and status.estimated

    def _drop(self, reason: str, before: int, after: int) -> None:
        self.freed = FreedTokens(reason, before, after, self.freed.serial + 1, estimated=True)
        self._is_guess, self._told = True, None
        status = self.status
        if status.used <= 0:
            self.status = status._replace(used=after, estimated=True)
            return
        # The next report splits anew; until then the system prompt keeps its size and the rest shrinks in proportion.
        system = min(status.system, after)
        rest = max(1, status.talk + status.tools)
        talk = (after - system) * status.talk // rest
        self.status = status._replace(
            used=after,
            estimated=True,
            system=system,
            talk=talk,
            tools=max(0, after - system - talk),
        )
