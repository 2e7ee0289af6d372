"""What the agent says and thinks, and the model calls that fail while it does."""

from __future__ import annotations

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.chat.blocklist import NOTHING, BlockList, Change, both
from kimi_tui.tui.chat.blocks import AgentBlock, MarkBlock, RetryBlock, ThoughtBlock, ToolBlock
from kimi_tui.wire.events import StepRetry


class Speech:
    """Grows the open block of text or reasoning, and ends it."""

    __slots__ = ("_list", "_retry")

    def __init__(self, blocks: BlockList) -> None:
        self._list = blocks
        self._retry: RetryBlock | None = None

    @property
    def waiting(self) -> RetryBlock | None:
        """The countdown to the next attempt, while there is one."""
        return self._retry

    def add(self, kind: type[AgentBlock] | type[ThoughtBlock], text: str, at: float) -> Change:
        """More text or reasoning."""
        change = self.end_retry()
        last = self._list.last
        if isinstance(last, kind) and last.open:
            last.stream.add(text)
            if isinstance(last, ThoughtBlock):
                last.seconds = max(0.0, at - last.at)
            last.touch()
            return both(change, Change(self._list.end - 1))
        if not text.strip():
            # Many models begin with line ends; a block appears with the first word.
            return change
        change = self.close(at, change)
        block = self._list.new(kind, at)
        block.stream.add(text.lstrip("\n"))
        self._list.attempt.add(block.key)
        return both(change, self._list.append(block))

    def close(self, at: float, change: Change = NOTHING) -> Change:
        """Something else begins: the open block is complete."""
        last = self._list.last
        if isinstance(last, (AgentBlock, ThoughtBlock)) and last.open:
            last.open = False
            last.stream.end()
            if isinstance(last, ThoughtBlock):
                last.seconds = max(0.0, at - last.at)
            last.touch()
            return both(change, Change(self._list.end - 1))
        return change

    def settle(self, at: float) -> Change:
        """Close the open block and end a wait for a retry."""
        return self.close(at, self.end_retry())

    def retry(self, event: StepRetry, at: float) -> Change:
        """A call failed: what it had streamed goes, a countdown comes."""
        change = both(self.drop_attempt(), self.end_retry())
        block = self._list.new(RetryBlock, at)
        block.reason = one_line(event.reason)
        block.attempt = event.attempt
        block.max_attempts = event.max_attempts
        block.wait_s = event.wait_s
        block.due = at + event.wait_s
        self._retry = block
        return both(change, self._list.append(block))

    def drop_attempt(self) -> Change:
        """A call failed: what it had streamed is in no context, so it goes from here too."""
        blocks = self._list.blocks
        first = len(blocks)
        for index in range(len(blocks) - 1, -1, -1):
            if blocks[index].key in self._list.attempt:
                del blocks[index]
                first = index
        self._list.attempt.clear()
        return Change(first)

    def end_retry(self) -> Change:
        """The wait is over."""
        if self._retry is None:
            return NOTHING
        block, self._retry = self._retry, None
        return self._list.remove(block)

    def stopped(self, at: float) -> Change:
        """The person stopped it: one row says so, unless a card says it already."""
        change = self.settle(at)
        self._list.attempt.clear()
        last = self._list.last
        if isinstance(last, MarkBlock) or (isinstance(last, ToolBlock) and last.state == "stopped"):
            return change
        block = self._list.new(MarkBlock, at)
        block.glyph = "stopped"
        block.text = "Stopped by you"
        return both(change, self._list.append(block))
