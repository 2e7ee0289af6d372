"""What a turn and a compaction by key do, from the first word to the last save, with every failure as a told end.

Who may start them, and how they are stopped, is the engine's part (`kimi_soul`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kimi_tui.llm.errors import LLMError, LLMNotSet, ToolsNotSupported
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.session import Session
from kimi_tui.soul.compacting import Compactor
from kimi_tui.soul.errors import NothingToCompact, SoulError
from kimi_tui.soul.finishing import to_its_end
from kimi_tui.soul.internal_messages import is_said, said
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.loop import AgentLoop
from kimi_tui.soul.provider_slot import ProviderSlot
from kimi_tui.soul.recorder import Recorder
from kimi_tui.soul.replacing import WHOLE, Span
from kimi_tui.soul.segments import label_of
from kimi_tui.soul.steering import Steering
from kimi_tui.wire.events import FailureKind, Notice, TurnBegin, TurnEnd

log = logging.getLogger(__name__)

NOT_SET = "No model is set."
NOT_SET_ADVICE = "Choose one with /model, or start with --model and --base-url."


@dataclass(frozen=True, slots=True)
class Turns:
    """Runs turns on one session's live line."""

    session: Session
    line: LiveLine
    loop: AgentLoop
    steering: Steering
    compactor: Compactor
    provider: ProviderSlot
    recorder: Recorder

    async def run(self, text: str, *, resumed: bool, stopping: Callable[[], bool]) -> TurnEnd:
        """One turn; returns its end, which the caller tells.

        Args:
            text: what the person said; nothing where `resumed`.
            resumed: go on from where the context stands.
            stopping: whether the person has stopped it.
        """
        self.line.wire.publish(TurnBegin(text, resumed))
        end = await self._attempt(text, resumed=resumed)
        # What is typed while the turn is being saved would wait for the person's next message: it is taken up at once.
        while end.reason == "done" and self.steering and not stopping():
            end = await self._attempt("", resumed=True)
        return end

    async def compact(self, instructions: str, span: Span = WHOLE) -> None:
        """Compact by the person's wish. What goes wrong is told on the wire."""
        wire = self.line.wire
        try:
            provider = self._need_provider()
            await self.compactor.compact(
                provider, automatic=False, instructions=instructions, span=span
            )
        except asyncio.CancelledError:
            return  # told by the compaction itself
        except NothingToCompact as nothing:
            wire.publish(Notice("info", nothing.message, nothing.advice))
        except LLMNotSet as error:
            wire.publish(Notice("error", error.message, error.advice))
        except SoulError:
            return  # told by the compaction itself
        with contextlib.suppress(asyncio.CancelledError):
            await to_its_end(self.session.sync())

    async def _attempt(self, text: str, *, resumed: bool) -> TurnEnd:
        """Work until the agent stops, and save; whatever goes wrong is the turn's end."""
        try:
            end = TurnEnd(await self._go(text, resumed=resumed))
        except asyncio.CancelledError:
            end = TurnEnd("interrupted")
        except (LLMError, SoulError, StorageTrouble) as error:
            end = TurnEnd("error", error.message, error.advice, _kind(error))
        except Exception as error:
            log.exception("a turn failed")
            end = TurnEnd(
                "error",
                f"Something went wrong in the program: {type(error).__name__}.",
                "The log file says more. Nothing that was said is lost.",
            )
        with contextlib.suppress(asyncio.CancelledError):
            await to_its_end(self._save())
        return end

    async def _save(self) -> None:
        self.line.tell_status()
        await self.recorder.flush()
        await self.session.sync()

    async def _go(self, text: str, *, resumed: bool) -> Literal["done", "rejected"]:
        provider = self._need_provider()
        self.line.denwa.begin_turn()
        words = self._last_words() if resumed else await to_its_end(self._say(text))
        return await self.loop.run(provider, words)

    async def _say(self, text: str) -> list[Message]:
        """Put the person's words into the context, behind a checkpoint."""
        await self.line.checkpoint("user", label_of(text))
        # What was queued before is older than what is said now.
        await self.loop.take_steers()
        words = [said(text)]
        await self.line.append(words)
        self.line.tell_status()
        return words

    def _last_words(self) -> list[Message]:
        messages = self.line.messages
        for place in range(len(messages) - 1, -1, -1):
            if is_said(messages[place]):
                return [messages[place]]
        return []

    def _need_provider(self) -> ChatProvider:
        provider = self.provider.current
        if provider is None:
            raise LLMNotSet(NOT_SET, advice=NOT_SET_ADVICE)
        return provider


def _kind(error: Exception) -> FailureKind:
    if isinstance(error, ToolsNotSupported):
        return "tools"
    return "model" if isinstance(error, LLMError) and not isinstance(error, LLMNotSet) else ""
