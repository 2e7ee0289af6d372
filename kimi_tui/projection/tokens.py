"""Token figures from events: in the window before each checkpoint (`CheckpointTokens`), and in the window now (`GaugeModel`).

The engine estimates the tokens before a checkpoint when it makes one; the server's own figure replaces the estimate when the
step has been answered. Estimates between two figures of the server, or before its first, are then fitted between these, as an
estimate does not know how the server counts. The same holds for the tokens that a D-Mail or a compaction left. Views, engine
and commands all use these figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    AnswerBroken,
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
    """A number of tokens: `measured` if it is the server's figure, `fitted` if it is an estimate fitted to one."""

    tokens: int
    measured: bool
    fitted: bool = False


class Changed(NamedTuple):
    """The changes by an event.

    Attributes:
        rows: the uids of checkpoints whose figures changed, a new one first.
        ends: the uids of D-Mails and compactions after which the tokens in the window changed, each with the difference.
    """

    rows: Sequence[str] = ()
    ends: Sequence[tuple[str, int]] = ()


UNCHANGED = Changed()


def fitted(tokens: int, estimate: int, figure: int, base: int = 0) -> int:
    """Fit the estimate of a part to the server's figure of the whole, and return it.

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
        # The estimates since the server's last figure, which is `_base` (0 before the first figure).
        self._guessed: dict[str, None] = {}
        self._guessed_ends: dict[str, None] = {}
        self._base = 0
        self._newest = ""
        self._is_step = False
        self._is_other_line = False
        self._summary = ""
        # The newest D-Mail or compaction that nothing has followed yet; `_leaves` is the figure of a D-Mail whose checkpoint
        # has not come yet.
        self._end = ""
        self._leaves: int | None = None
        self._used = 0
        # A record does not contain the estimates before its first turn.
        self._estimated = True

    def held(self) -> Iterable[TokenFigure]:
        """Return the figures, of which a long session has thousands."""
        return self._known.values()

    def get(self, uid: str) -> TokenFigure | None:
        """Return the tokens before a checkpoint; None if no event reported them."""
        return self._known.get(uid)

    def left_by(self, uid: str) -> TokenFigure | None:
        """Return the tokens after the D-Mail or the compaction of a checkpoint, an estimate until the next answer; None for
        any other checkpoint.
        """
        return self._ends.get(uid)

    def apply(self, event: Event) -> Changed:
        """Apply an event; return the figures that changed."""
        match event:
            case CheckpointCreated():
                return self._created(event)
            case StatusUpdate():
                return self._status(event)
            case ContextReverted():
                self._reverted(event)
            case CompactionEnd(error=""):
                self._ended(self._summary, event.tokens_after)
            case LineChanged(op=op) if op in SWITCHES:
                self._is_other_line = True
            case _:
                pass
        return UNCHANGED

    def _reverted(self, event: ContextReverted) -> None:
        cut = self._known.get(event.uid)
        if cut is not None and event.from_checkpoint >= event.checkpoint_id:
            # Checkpoints that left the line keep their figures.
            self._base = min(self._base, cut.tokens)
            there = (uid for uid in self._guessed if self._known[uid].tokens <= cut.tokens)
            self._guessed = dict.fromkeys(uid for uid in there if uid != event.uid)
            self._guessed_ends.clear()
        if event.reason == "dmail":
            self._leaves = event.tokens_after
            if event.uid in self._known and event.from_checkpoint < event.checkpoint_id:
                self._ended(event.uid, event.tokens_after)  # this event comes after its checkpoint

    def _ended(self, uid: str, tokens: int) -> None:
        self._leaves = None
        if uid:
            self._end, self._ends[uid] = uid, TokenFigure(tokens, measured=False)
            self._guessed_ends[uid] = None

    def _created(self, event: CheckpointCreated) -> Changed:
        # A turn's checkpoint precedes the user's message, so the last reported figure is that of the context before it.
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
            # No message followed it, so this figure is the tokens that it left.
            changed = Changed(ends=((self._end, event.used - self._ends[self._end].tokens),))
            self._ends[self._end] = TokenFigure(event.used, not event.estimated)
        if self._is_other_line or not event.estimated:
            self._settle(event.used)
        else:
            self._base = min(self._base, event.used)
        return changed

    def _fit(self, estimate: int, figure: int) -> Changed:
        """Fit the estimates since the server's last figure to its new one; `estimate` is the estimate of the same context."""
        if not self._guessed and not self._guessed_ends:
            self._end = ""
            return UNCHANGED
        rows, ends = list[str](), list[tuple[str, int]]()
        for uid in self._guessed:
            tokens = self._known[uid].tokens
            self._known[uid] = TokenFigure(
                fitted(tokens, estimate, figure, self._base), measured=False, fitted=True
            )
            rows.append(uid)
        for uid in self._guessed_ends:
            was = self._ends[uid].tokens
            # The answered step is the first thing after the checkpoint.
            is_same = uid == self._end
            now = figure if is_same else fitted(was, estimate, figure, self._base)
            # The answer shows how the server counts; the remaining difference belongs to the messages since then.
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
        """Apply an event."""
        match event:
            case ContextReverted(reason="dmail", uid=uid):
                # A D-Mail at the end removed nothing, and its event may come after its checkpoint.
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
    """Return the tokens that a D-Mail freed, by the server's next figure if there is one; 0 for one that only appended."""
    left = figures.left_by(uid)
    if cut.from_checkpoint < cut.checkpoint_id:
        return 0
    return max(0, cut.tokens_before - (left.tokens if left is not None else cut.tokens_after))


@dataclass(frozen=True, slots=True)
class FreedTokens:
    """The tokens in the window before and after the newest revert or compaction; 0 and 0 after a switch to another line.

    `serial` is the number of operations so far, which distinguishes a new one from the one before. `estimated` is true while
    `after` is not the server's figure.
    """

    reason: str = ""
    before: int = 0
    after: int = 0
    serial: int = 0
    estimated: bool = False


_BYTES_OF_TOKEN = 4
"""The approximate number of UTF-8 bytes per token: four letters, or a little more than one Chinese character."""
_SEEN = 10
_SEEN_OF_WINDOW = 400
"""The gauge is updated while an answer streams after each such part of the window, or after a fixed number of tokens if that is more."""


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
        # Whether later reports give a better figure of the tokens left; reports after a message of the user, or of another
        # line, do not.
        self._is_guess = False
        self._told: StatusUpdate | None = None
        """The report before the answer that is streaming now."""
        self._streamed = 0.0
        """The approximate number of tokens of that answer so far."""

    def apply(self, record: EventRecord) -> bool:
        """Apply one event; return whether the gauge may look different now."""
        match record.event:
            case TextPart(text) | ThinkPart(text):
                return self._stream(text)
            case ToolCall(arguments=text) | ToolCallPart(arguments=text):
                return self._stream(text)
            case AnswerBroken():
                self._told = None
                return False
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
                # The tokens freed on the line that was left do not concern this line.
                self._is_guess = False
                self.freed = FreedTokens(serial=self.freed.serial + 1)
            case ContextReverted() as event:
                self._drop(event.reason, event.tokens_before, event.tokens_after)
            case CompactionEnd() as event if not event.error:
                # The revert event of a compaction came before, without the final tokens of the window.
                self._drop("compaction", event.tokens_before, event.tokens_after)
            case _:
                return False
        return True

    def _stream(self, text: str) -> bool:
        """Count another piece of an answer; return whether the change is large enough to be visible."""
        if self._told is None:
            self._told, self._streamed = self.status, 0.0
        told = self._told
        n_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._streamed += n_bytes / _BYTES_OF_TOKEN
        grown = round(self._streamed * (told.correction or 1.0))
        if told.used + grown - self.status.used < max(_SEEN, told.limit // _SEEN_OF_WINDOW):
            return False
        self.status = told._replace(used=told.used + grown, talk=told.talk + grown, estimated=True)
        return True

    def _drop_streamed(self) -> bool:
        """Go back to the report before an answer of which nothing is kept."""
        told, self._told = self._told, None
        if told is None or told == self.status:
            return False
        self.status = told
        return True

    def _correct(self, status: StatusUpdate) -> None:
        """Replace the estimate of `freed.after` by the server's next figure, which is that of the first request since."""
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
        # The next report splits the figure anew; until then the system prompt keeps its size and the rest shrinks in proportion.
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
