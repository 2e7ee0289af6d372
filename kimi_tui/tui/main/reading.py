"""Reads a world line in the place of the chat, while the live line goes on behind it, and does what is wanted of it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kimi_tui.foreign_text import one_line
from kimi_tui.soul.protocol import Soul, Target
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.letter.model import Letter
from kimi_tui.tui.letter.screen import LetterScreen
from kimi_tui.tui.main.asking import ask
from kimi_tui.tui.main.header import READ_ONLY
from kimi_tui.tui.main.letters import WAY_BACK
from kimi_tui.tui.worldline.model import message_of, newest_words
from kimi_tui.tui.worldline.news import News, heard, words
from kimi_tui.tui.worldline.view import Reading

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import LineMessage
    from kimi_tui.tui.chat.transcript import Transcript
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.wire.events import Record

QUOTE_CHARS = 600


class Reader:
    """The world line on view.

    Args:
        screen: where it is shown.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._reading: Reading | None = None
        self._news = News()

    @property
    def world_line(self) -> int:
        """The number of the line on view; 0 where there is none."""
        return self._reading.info.n if self._reading is not None else 0

    @property
    def transcript(self) -> Transcript | None:
        """The messages of the line on view."""
        return self._reading.transcript if self._reading is not None else None

    @property
    def has_keys(self) -> bool:
        """Whether the line on view has the focus."""
        return self._reading is not None and self._reading.transcript.has_focus

    def focus(self) -> None:
        """Give the line on view the keys."""
        if self._reading is not None:
            self._screen.set_focus(self._reading.transcript)

    async def open(self, soul: Soul, world_line: int, checkpoint_id: int = -1) -> None:
        """Show a line, at one of its checkpoints where that is given.

        Raises:
            KeyError: there is no such line; the text is for the person.
        """
        if self._reading is not None and self._reading.info.n == world_line:
            self._reading.transcript.show_checkpoint(checkpoint_id)
            self.focus()
            return
        records = await soul.read_line(world_line)
        info = next((one for one in await soul.world_lines() if one.n == world_line), None)
        if info is None:
            raise KeyError(f"There is no world line {world_line}.")
        screen = self._screen
        self._take_away()
        screen.transcript.end_search()
        reading = self._reading = Reading(info, screen.transcript.work_dir)
        self._news = News()
        self.tell_news()
        await screen.chat_pane.read(reading)
        screen.prompt.reading = world_line
        self._head(READ_ONLY)
        screen.views.gauge.view(info.tokens_before or None)
        self.focus()
        await reading.show(records, checkpoint_id)
        reading.transcript.pins = screen.transcript.pins

    def hear(self, records: Sequence[Record]) -> None:
        """Something happened on the live line meanwhile."""
        if self._reading is not None:
            for record in records:
                self._news = heard(self._news, record.event)
            self.tell_news()

    def tell_news(self) -> None:
        """Have the banner say what happens on the live line."""
        if self._reading is not None:
            state, glyphs = self._screen.conversation.state, glyphs_of(app_of(self._screen))
            asks = bool(state.approvals)
            said = words(self._news, glyphs, running=state.running, asks=asks)
            self._reading.banner.tell(said)

    def leave(self) -> bool:
        """Return to now; False where that is shown already."""
        if self._reading is None:
            return False
        self._take_away()
        self._screen.prompt.reading = 0
        self._head("")
        self._screen.views.gauge.view(None)
        self._screen.return_to_prompt()
        return True

    def _head(self, words: str) -> None:
        header = self._screen.header
        header.heading = header.heading._replace(words=words)

    def _take_away(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            self._screen.set_focus(None)
            self._screen.chat_pane.end_reading(reading)

    async def jump(self, soul: Soul) -> None:
        """Make this line live: up to before the chosen message, or all of it where none is chosen."""
        reading = self._reading
        if reading is None:
            return
        block = reading.transcript.chosen
        checkpoint_id = block.checkpoint if block is not None and block.live else None
        await jump(self._screen, soul, reading.info.n, checkpoint_id)

    async def send(self, soul: Soul) -> None:
        """Send the chosen message to the present, or the newest words of the line where none is chosen."""
        reading = self._reading
        if reading is None:
            return
        messages = await soul.messages(reading.info.n)
        transcript = reading.transcript
        chosen = message_of(transcript.chosen, transcript.blocks, messages)
        if chosen is None and transcript.chosen is not None:
            self._screen.tell("This cannot be sent.", advice="Tab chooses another message.")
            return
        await send(self._screen, soul, reading.info.n, chosen or newest_words(messages))


async def jump(screen: MainScreen, soul: Soul, world_line: int, checkpoint_id: int | None) -> None:
    """Make a world line live, and show that.

    Raises:
        KeyError: there is no such line or checkpoint; the text is for the person.
        SoulBusy: the agent works.
    """
    outcome = await soul.jump(world_line, checkpoint_id)
    screen.travel.reader.leave()
    screen.return_to_prompt()
    where = f" at #{checkpoint_id}" if checkpoint_id is not None else ""
    if outcome.prompt:
        screen.put_into_prompt(outcome.prompt)
    goes_on = outcome.is_open and not outcome.prompt
    then = "; Enter in an empty prompt goes on from there" if goes_on else ""
    screen.tell(f"World line {world_line} is live again{where}{then}.", advice=WAY_BACK)


async def send(
    screen: MainScreen, soul: Soul, world_line: int, message: LineMessage | None
) -> None:
    """Let the person send a message of another line to the present, with words of their own before it."""
    if message is None:
        screen.tell(f"World line {world_line} holds no message.")
        return
    text = message.text or ", ".join(f"{name} {target}" for name, target in message.calls)
    letter = Letter(
        title=f"Send to now from world line {world_line}",
        question=f"This message of #{message.checkpoint_id} goes to the end of the conversation.",
        consequence="Your words stand before it; the agent reads both in its next step.",
        placeholder="A word of your own, if you like",
        quote=one_line(text[:QUOTE_CHARS]),
        verb="send",
        kind="dmail",
        may_be_empty=True,
        low=True,
    )
    note = await ask(screen, LetterScreen(letter))
    if note is None:
        return
    await soul.carry(world_line, message.uid, message.number, note=note)
    screen.travel.reader.leave()
    screen.return_to_prompt()
    screen.tell(
        "It stands at the end of the conversation.", advice="/continue lets the agent go on."
    )


def target_of(target: Target, reading: int) -> Target:
    """A checkpoint that was clicked in a line on view is of that line."""
    return Target(target.id, reading) if reading and not target.world_line else target
