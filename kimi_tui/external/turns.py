"""`AgentTurns`: the loop of a turn in which an external agent does the steps.

One prompt to the agent takes the place of our own loop's calls of a model. It has what the agent's session does not know yet: the
user's new messages, and after a rewind that the agent could not follow, the conversation up to there as text.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Sequence

from acp import helpers, schema

from kimi_tui.external.connection import AgentConnection, AgentFailed, Block
from kimi_tui.external.host import AgentHost
from kimi_tui.external.places import AgentPlace
from kimi_tui.external.reading import AgentAnswer
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import ImagePart, Message, TextPart
from kimi_tui.llm.provider import Usage
from kimi_tui.prompts import prompt
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.compaction import Compactor
from kimi_tui.soul.conversation_text import conversation_text
from kimi_tui.soul.dmail import DMailDelivery
from kimi_tui.soul.inbox import Inbox
from kimi_tui.soul.loop import INTERNAL_ERROR, AgentLoop, StepEnd
from kimi_tui.soul.messages import internal_kind
from kimi_tui.soul.tasks import OrphanedTasks, run_to_completion
from kimi_tui.soul.tool_calls import ToolRuntime
from kimi_tui.wire.events import Notice, StepInterrupted

log = logging.getLogger(__name__)

_CANCEL_S = 0.7
"""Seconds that the agent has to end a prompt that the user stopped."""
_HISTORY_TOKENS = 60_000
"""Tokens of a conversation that is told as text; the oldest part of a longer one is left out."""
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥"}
_UNTOLD = frozenset({"marker", "note"})
_STOPPED = {
    "max_tokens": (
        "The answer was cut off: the model reached its output limit.",
        "Ask it to continue, or to answer in smaller parts.",
    ),
    "max_turn_requests": (
        "The agent stopped: it reached its own limit of requests in one turn.",
        "The agent can continue from here.",
    ),
    "refusal": (
        "The agent refused to continue. It may no longer have your last message.",
        "Rewind to before that message, or write it in other words.",
    ),
}


class AgentTurns(AgentLoop):
    """Runs the steps of turns by an external agent.

    Args:
        host: the agent.
        tools, orphans, compactor, dmails, inbox, attachments: as for our own loop.
    """

    def __init__(
        self,
        host: AgentHost,
        tools: ToolRuntime,
        orphans: OrphanedTasks,
        compactor: Compactor,
        dmails: DMailDelivery,
        inbox: Inbox,
        attachments: Attachments,
    ) -> None:
        super().__init__(tools, orphans, compactor, dmails, inbox, attachments)
        self.reminders.are_off = True
        self._host = host
        self._work_dir = str(tools.work_dir)
        self._files = tools.conversation.files
        self._late: AgentPlace | None = None
        """The place of a session whose prompt was stopped and has not ended yet."""
        self._reading = asyncio.Lock()
        """Held while an update is read: updates are read in order, by the turn or by a request that needs those before it."""

    async def _step(self, n: int) -> StepEnd:
        """Have the agent answer; its steps are counted on from `n`.

        Raises:
            AgentFailed: it could not be started or asked, or it ended.
            asyncio.CancelledError: the turn was stopped; complete parts are in the context.
        """
        conversation, host = self._conversation, self._host
        connection = await host.connected()
        blocks = await self._prompt_for(connection)
        change = await self._files.before_change(None)
        reader = AgentAnswer(conversation, change, n, self._work_dir)
        services = host.services
        assert services is not None
        services.settled = lambda: self._read_all(connection, reader)
        services.begin(reader)
        host.places.forget(connection.session)
        stop = "cancelled"
        try:
            asked = connection.prompt(blocks)
            try:
                stop = await self._read(connection, reader, asked)
            except asyncio.CancelledError:
                await run_to_completion(self._stop_prompt(connection, reader, asked))
                raise
            except Exception as error:
                # The agent has failed, or the disk refuses what it says: it must not go on unseen.
                if not asked.done():
                    await connection.cancel()
                await services.stop()
                with contextlib.suppress(StorageTrouble):
                    words = error.message if isinstance(error, AgentFailed) else INTERNAL_ERROR
                    await reader.finish(interrupted=True, broken=one_line(words))
                raise
            await services.stop()
            await reader.finish(interrupted=stop == "cancelled")
        finally:
            services.reader = None
            await run_to_completion(self._after(connection, reader, ended=not connection.is_busy))
        if stop == "cancelled":
            conversation.wire.publish(StepInterrupted())
            return "interrupted"
        if stop in _STOPPED:
            conversation.wire.publish(Notice("warning", *_STOPPED[stop]))
        return "done"

    # -- the answer --------------------------------------------------------------------------------

    async def _read(
        self,
        connection: AgentConnection,
        reader: AgentAnswer,
        asked: asyncio.Task[schema.PromptResponse],
    ) -> str:
        """Read updates until the agent has answered; return why it stopped."""
        while not asked.done():
            news = asyncio.ensure_future(connection.told())
            try:
                await asyncio.wait((news, asked), return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            await self._read_all(connection, reader)
        await self._read_all(connection, reader)
        if (error := asked.exception()) is not None:
            raise await connection.failure_of(error, "answer") from error
        said = asked.result()
        if said.usage is not None:
            self._count(said.usage)
        return str(said.stop_reason)

    async def _read_all(self, connection: AgentConnection, reader: AgentAnswer) -> None:
        """Read the updates that have come."""
        async with self._reading:
            while (update := connection.next_update()) is not None:
                if isinstance(update, schema.UsageUpdate):
                    self._take_usage(update)
                else:
                    await reader.take(update)

    def _take_usage(self, update: schema.UsageUpdate) -> None:
        conversation = self._conversation
        self._host.model.learn(window=update.size)
        conversation.meter.set_figure(update.used, estimated=False)
        if update.cost is not None:
            currency = one_line(update.cost.currency)[:4]
            self._host.cost = (_SIGNS.get(currency, f"{currency} "), update.cost.amount)
        conversation.publish_status()

    def _count(self, usage: schema.Usage) -> None:
        """Add the tokens of the turn to the session's totals."""
        cached = (usage.cached_read_tokens or 0) + (usage.cached_write_tokens or 0)
        figures = Usage(
            usage.input_tokens + cached, usage.output_tokens, usage.cached_read_tokens or 0
        )
        self._conversation.meter.add_usage(figures)

    async def _stop_prompt(
        self,
        connection: AgentConnection,
        reader: AgentAnswer,
        asked: asyncio.Task[schema.PromptResponse],
    ) -> None:
        """Have the agent stop, and keep what it said until then."""
        services = self._host.services
        assert services is not None
        if not asked.done():
            await connection.cancel()
            await services.stop()
            await asyncio.wait([asked], timeout=_CANCEL_S)
        else:
            await services.stop()
        await self._read_all(connection, reader)
        await reader.finish(interrupted=True)
        self._conversation.wire.publish(StepInterrupted())

    async def _after(
        self, connection: AgentConnection, reader: AgentAnswer, *, ended: bool
    ) -> None:
        """Look at the files, and note how far the session of the agent reaches now."""
        connection.end_reading()
        await reader.leave_files()
        places, context = self._host.places, self._conversation.context
        self._late = None
        if connection.is_open and ended:
            places.put(connection.session, context)
        elif connection.is_open:
            self._late = places.at_end(connection.session, context)
        await asyncio.to_thread(self._host.places.write)
        if connection.is_open and ended:
            self._host.tidy(connection)
        if title := connection.facts.title:
            self._host.title_told = title

    # -- the prompt --------------------------------------------------------------------------------

    async def _prompt_for(self, connection: AgentConnection) -> list[Block]:
        """Choose the session of the agent that goes on, and return what it does not know of the conversation yet.

        Raises:
            AgentFailed: there is no session, for instance because the user is not logged in.
        """
        context = self._conversation.context
        known = await self.choose_session(connection)
        untold = [one for one in context.messages[known:] if internal_kind(one) not in _UNTOLD]
        place = len(untold)
        while place and untold[place - 1].role == "user":
            place -= 1
        before, new = untold[:place], untold[place:]
        blocks: list[Block] = []
        if before:
            text = await asyncio.to_thread(conversation_text, before, _HISTORY_TOKENS)
            blocks.append(helpers.text_block(prompt("external_history", HISTORY=text)))
            where = f"{self._host.title} starts a new session of its own, which gets {_counted(len(before))} as text."
            if known:
                where = f"{self._host.title} did not keep {_newest(len(before))}. Its session gets {'it' if len(before) == 1 else 'them'} as text."
            self._conversation.wire.publish(
                Notice(
                    "info",
                    where,
                    "The text includes tool calls, but not the earlier reasoning.",
                )
            )
        for message in new:
            blocks += await self._blocks_of(message, connection)
        if not new:
            blocks.append(helpers.text_block(prompt("go_on")))
        return blocks

    async def choose_session(self, connection: AgentConnection) -> int:
        """Use the session of the agent that knows most of the conversation; return how many messages that are.

        Raises:
            AgentFailed: there is no session, for instance because the user is not logged in.
        """
        context, places = self._conversation.context, self._host.places
        if (late := self._late) is not None and late.session == connection.session:
            # The agent has ended the stopped prompt by now, a little later than the turn.
            self._late = None
            places.add(late)
        found = places.nearest(context)
        place = found[0] if found is not None else None
        if connection.is_fresh and connection.begun_at == place:
            return 0 if found is None else found[1]
        if found is not None and place is not None:
            try:
                await self._go_to(connection, place)
                await self._host.renew_settings(connection)
                return found[1]
            except AgentFailed as error:
                log.warning("a session of an external agent cannot be used: %s", error.message)
                places.forget(place.session)
        await connection.begin()
        await self._host.renew_settings(connection)
        return 0

    async def _go_to(self, connection: AgentConnection, place: AgentPlace) -> None:
        """Use the session of a place, or a copy of it, which leaves the place as it is for a rewind to here.

        Raises:
            AgentFailed: the agent cannot go there.
        """
        is_there = place.session == connection.session
        if connection.abilities.forks:
            try:
                await self._fork(connection, place)
            except AgentFailed:
                if is_there or not connection.goes_back:
                    raise
                # The agent may have to open it first, after its program was started anew.
                await connection.go_to(place.session)
                await self._fork(connection, place)
        elif not is_there:
            if not connection.goes_back:
                raise AgentFailed(f"{self._host.title} cannot open an earlier session.")
            await connection.go_to(place.session)
        connection.begun_at = place

    async def _fork(self, connection: AgentConnection, place: AgentPlace) -> None:
        await connection.fork(place.session)
        self._host.places.note_copy(connection.session)

    async def _blocks_of(self, message: Message, connection: AgentConnection) -> Sequence[Block]:
        blocks: list[Block] = []
        for part in message.parts:
            if isinstance(part, TextPart) and part.text:
                blocks.append(helpers.text_block(part.text))
            elif isinstance(part, ImagePart):
                where = part.image_url
                found = await asyncio.to_thread(self._conversation.images.get, where.url)
                if found is None or not connection.abilities.sees:
                    name = where.name or "an image"
                    blocks.append(helpers.text_block(f"[{name}, which cannot be shown to you]"))
                else:
                    data = base64.b64encode(found.data).decode()
                    blocks.append(helpers.image_block(data, found.media_type))
        return blocks


def _counted(n_messages: int) -> str:
    return "1 earlier message" if n_messages == 1 else f"{n_messages:,} earlier messages"


def _newest(n_messages: int) -> str:
    return "the newest message" if n_messages == 1 else f"the newest {n_messages:,} messages"
