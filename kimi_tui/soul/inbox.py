"""The inbox of a session: one queue of the user's messages and commands that are not in the context yet.

A message for "now" goes in before the agent's next step while a turn runs (a steer); otherwise it begins a turn of its own,
as soon as nothing else runs. A message for "after the turn" begins a turn when the running one is done. Commands that the
caller carries out itself may wait among them. `KimiSoul.attend` empties the queue, and `AgentLoop` takes the steers. Each
change is published: `SteerQueued` when a message has to wait, `SteerTaken` when it does not wait any more.

Waiting texts are also on the disk, in case the program is killed, until they are in the context, or until `let_go` says that
a text which was taken back is safe elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from kimi_tui.app_paths import reason_of
from kimi_tui.foreign_text import one_line
from kimi_tui.images import Image
from kimi_tui.session.unsent import WAITING, finish_writing, read_waiting, write_waiting
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.wire.events import Notice, SteerQueued, SteerTaken, TurnEnd, When
from kimi_tui.wire.queue import Wire

log = logging.getLogger(__name__)

NOT_KEPT = "inbox"
"""Topic of the notice that waiting messages cannot be stored."""
KEPT_AFTER_S = 0.5
"""Seconds after which a message is stored whose turn has begun and which is not in the context yet: a sub-agent that goes on, a server of
tools or a hook may come before it, for minutes. Usually nothing does, and nothing is written."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the user, or a command, that waits.

    Attributes:
        id: the name of the message on the wire.
        text: the user's words.
        images: the images that were pasted into it, in order.
        when: whether the message may go into a running turn.
        carry_out: carries out a command when its turn has come; None for a message.
    """

    id: str
    text: str
    images: tuple[Image, ...] = ()
    when: When = "now"
    carry_out: Callable[[], Coroutine[Any, Any, object]] | None = None

    @property
    def image_blocks(self) -> tuple[ImageBlock, ...]:
        """Its images as values of the wire."""
        return tuple(map(ImageBlock.of, self.images))

    @property
    def is_steer(self) -> bool:
        """Whether the message may go into a running turn."""
        return self.when == "now" and self.carry_out is None

    @property
    def queued(self) -> SteerQueued:
        """The event that the message waits."""
        return SteerQueued(self.id, self.text, self.image_blocks, self.when)


class Inbox:
    """The queue of one session. It may be filled before the session is open, and belongs to its engine from `join` on."""

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._folder: Path | None = None
        self._waiting: list[Said] = []
        self._at_once: set[str] = set()
        """The ids of messages that have not had to wait yet: they are neither published nor stored."""
        self._going: tuple[Said, ...] = ()
        """The messages that were taken out of the queue, and are not in the context yet."""
        self._returned: list[str] = []
        """Texts that were taken back, and may not be safe elsewhere yet."""
        self._is_held = False
        """Whether messages for after the turn keep waiting, because the turn did not end with `done`."""
        self._stirred = asyncio.Event()
        self._has_read = False
        self._kept: tuple[str, ...] = ()
        """The texts that are on the disk."""
        self._keeping = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self.trouble = ""
        """The reason why waiting messages cannot be stored; empty if they can be."""

    def join(self, wire: Wire, folder: Path | None) -> None:
        """Publish on this wire from now on, and store waiting messages in the session's folder, if there is one."""
        self._wire, self._folder = wire, folder
        self.publish_waiting()

    # -- what waits ------------------------------------------------------------------------------

    @property
    def waiting(self) -> tuple[Said, ...]:
        """All waiting messages and commands, in order of arrival."""
        return tuple(self._waiting)

    @property
    def steers(self) -> tuple[Said, ...]:
        """The messages that may go into a running turn, oldest first."""
        return tuple(one for one in self._waiting if one.is_steer)

    @property
    def unkept(self) -> list[str]:
        """The texts that are not on the disk."""
        texts = (*self._returned, *(one.text for one in (*self._going, *self._waiting)))
        return [text for text in texts if text not in self._kept]

    def say(
        self,
        text: str,
        images: Sequence[Image] = (),
        when: When = "now",
        carry_out: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> str:
        """Queue a message or a command; return its id. No event tells that it waits before `publish_waiting`.

        Args:
            text: the user's text.
            images: the images that were pasted into it.
            when: whether it may go into a running turn.
            carry_out: carries out a command; None for a message.
        """
        said = Said(uuid4().hex[:12], text, tuple(images), when, carry_out)
        self._waiting.append(said)
        self._at_once.add(said.id)
        self._stirred.set()
        return said.id

    def publish_waiting(self) -> None:
        """Publish the messages that have to wait and were not published yet, and store them."""
        self._at_once.difference_update(one.id for one in self._waiting)
        for one in self._waiting:
            if not self._is_published(one):
                self._publish(one.queued)
        self._changed()

    def _publish(self, event: SteerQueued | SteerTaken) -> None:
        if self._wire is not None:
            self._wire.publish(event)

    def _is_published(self, said: Said) -> bool:
        return self._wire is not None and self._wire.waits(said.id)

    # -- taking it -------------------------------------------------------------------------------

    async def stirred(self) -> None:
        """Wait until something may be due, or the session is closed."""
        await self._stirred.wait()
        self._stirred.clear()

    @property
    def due(self) -> Said | None:
        """The message that begins when nothing else runs, still in the queue; None for none."""
        for one in self._waiting:
            if one.when == "now":
                return one
        return self._waiting[0] if self._waiting and not self._is_held else None

    def take(self, some: Iterable[Said]) -> tuple[Said, ...]:
        """Take these out of the queue, as far as they still wait, for the context: `arrived` or `put_back` follows."""
        ids = {one.id for one in some}
        taken = tuple(one for one in self._waiting if one.id in ids)
        self._waiting = [one for one in self._waiting if one.id not in ids]
        self._going += taken
        return taken

    def begin(self, said: Said) -> None:
        """Take a message for the turn that begins with it and whose `TurnBegin` announces it, or a command to carry out."""
        self.take([said])
        self._publish_gone(said)
        if said in self._going and said.id in self._at_once:
            asyncio.get_running_loop().call_later(KEPT_AFTER_S, self._keep_going, said.id)
        # All other messages have to wait for this one.
        self.publish_waiting()

    def _keep_going(self, said_id: str) -> None:
        if said_id in self._at_once:
            self._at_once.discard(said_id)
            self._changed()

    def arrived(self, steers: Sequence[Said] | None = None, place: int = 0) -> None:
        """Publish that the messages taken are in the context.

        Args:
            steers: the steers that arrived; None for the message with which the turn began, for which no event is published.
            place: the number of the first steer's message after the newest checkpoint.
        """
        self._going = tuple(one for one in self._going if steers is not None and one not in steers)
        self._at_once.intersection_update(one.id for one in (*self._going, *self._waiting))
        for number, one in enumerate(steers or (), place):
            taken = SteerTaken(one.id, one.text, number=number, images=one.image_blocks)
            self._publish(taken)
        self._changed()

    def put_back(self, steers: Sequence[Said]) -> None:
        """Queue steers that could not be put into the context again, before later messages."""
        self._going = tuple(one for one in self._going if one not in steers)
        self._waiting[:0] = steers
        if steers:
            self.publish_waiting()
        self._stirred.set()

    # -- taking it back --------------------------------------------------------------------------

    def take_back(self, said_id: str) -> Said | None:
        """Take a message back for editing; return None if it is in the context already."""
        for one in self._waiting:
            if one.id == said_id:
                self._give_back((one,))
                return one
        return None

    def take_back_last(self) -> Said | None:
        """Take back the newest message for after the turn, else the newest of all; return None if none waits."""
        later = [one for one in self._waiting if one.when != "now"]
        return self.take_back((later or self._waiting)[-1].id) if self._waiting else None

    def take_back_all(self) -> tuple[Said, ...]:
        """Take back and return everything, oldest first."""
        taken = self.waiting
        self._give_back(taken)
        return taken

    def hand_back(self, some: Iterable[Said]) -> None:
        """Give messages back to their callers by an event, because they cannot be sent or their turn was stopped."""
        self._give_back(some, handed_back=True)

    def return_text(self, text: str) -> None:
        """Give a text back by an event that an agent beside the session's own was sent and did not read."""
        self._give_back((Said(uuid4().hex[:12], text),), handed_back=True)

    def _give_back(self, some: Iterable[Said], *, handed_back: bool = False) -> None:
        for one in some:
            if one in self._waiting:
                self._waiting.remove(one)
            if self._folder is not None:
                self._returned.append(one.text)
            self._publish_gone(one, handed_back=handed_back)
        self._changed()

    def _publish_gone(self, said: Said, *, handed_back: bool = False) -> None:
        if handed_back or self._is_published(said):
            self._publish(SteerTaken(said.id, said.text, True, 0, said.image_blocks, handed_back))

    def ended(self, end: TurnEnd, *, hands_back: bool) -> None:
        """Handle the end of a turn.

        Args:
            end: the event of its end.
            hands_back: whether remaining messages are handed back if the turn was not done. After an error, messages for
                after the turn keep waiting, since the user may try again.
        """
        self._is_held = end.reason != "done"
        # A message that is not in the context is not lost with the turn that began with it.
        self.put_back(self._going)
        if self._is_held and hands_back:
            self.hand_back([o for o in self._waiting if o.when == "now" or end.reason != "error"])

    # -- on the disk -----------------------------------------------------------------------------

    async def hand_over_left(self) -> None:
        """Hand back the messages that waited when the program was killed, unless `left_over` was called before."""
        for text in await self.left_over():
            self._publish(SteerTaken(uuid4().hex[:12], text, True, handed_back=True))

    async def left_over(self) -> list[str]:
        """Return the texts that waited when the program was killed, at the first call; they stay on the disk until `let_go`."""
        found: list[str] = []
        async with self._keeping:
            if not self._has_read and self._folder is not None:
                self._has_read = True
                found = await asyncio.to_thread(_read, self._folder)
                self._kept = tuple(found)
                self._returned[:0] = found
        self._changed()
        return found

    def let_go(self, texts: Iterable[str]) -> None:
        """Remove these texts, which were taken back, from the disk."""
        for text in texts:
            if text in self._returned:
                self._returned.remove(text)
        self._changed()

    async def aclose(self) -> None:
        """Wait until the waiting messages are on the disk, if it can be written. The session is closed then."""
        self._stirred.set()
        while self._writing is not None:
            await asyncio.wait([self._writing])
        self._folder = None

    def _to_keep(self) -> tuple[str, ...]:
        said = (one for one in (*self._going, *self._waiting) if one.id not in self._at_once)
        return (*self._returned, *(one.text for one in said))

    def _changed(self) -> None:
        self._stirred.set()
        if not self._has_read or self._writing is not None:
            return
        if self._to_keep() != self._kept:
            self._writing = asyncio.create_task(self._write(), name="inbox")
        else:
            self._tell_trouble("")

    async def _write(self) -> None:
        try:
            async with self._keeping:
                while self._folder is not None and (texts := self._to_keep()) != self._kept:
                    await asyncio.to_thread(write_waiting, self._folder, texts)
                    self._kept = texts
            self._tell_trouble("")
        except OSError as error:
            log.warning("what waits cannot be kept", exc_info=error)
            # The messages may have been taken while the disk was waited for.
            is_left = self._to_keep() != self._kept
            self._tell_trouble(reason_of(error, self._folder) if is_left else "")
        finally:
            self._writing = None

    def _tell_trouble(self, reason: str) -> None:
        before, self.trouble = self.trouble, reason
        if bool(before) == bool(reason) or self._wire is None:
            return
        words = f"Your queued messages cannot be saved: {one_line(reason)}."
        advice = "They would be lost if kimi-tui were killed."
        if reason:
            self._wire.publish(Notice("warning", words, advice, topic=NOT_KEPT))
        else:
            words = "No queued message is unsaved any more."
            self._wire.publish(Notice("info", words, topic=NOT_KEPT, solved=True))


def _read(folder: Path) -> list[str]:
    finish_writing(folder / WAITING)
    return read_waiting(folder)
