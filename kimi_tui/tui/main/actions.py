"""What each command does, in terms of the engine and a few things that only the screen can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from kimi_tui.tui.main.messages import (
    HelpWanted,
    LeaveWanted,
    ModelWanted,
    PaletteWanted,
    ReplayWanted,
    SessionWanted,
    StatisticsWanted,
    SuspendWanted,
    ThemeWanted,
)
from kimi_tui.tui.main.state import MODE_WORDS, Mode
from kimi_tui.tui.numbers import percent, tokens
from kimi_tui.tui.statistics_words import cost_words

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import Soul, Target
    from kimi_tui.tui.main.conversation import Conversation
    from kimi_tui.tui.main.notices import Level
    from kimi_tui.tui.main.travel import Travel


class Stage(Protocol):
    """What the commands need of the screen."""

    @property
    def conversation(self) -> Conversation:
        """The session."""
        ...

    @property
    def travel(self) -> Travel:
        """What leads to other checkpoints and world lines."""
        ...

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice."""
        ...

    def focus_timeline(self) -> None:
        """Open the timeline and give it the keys; or close it where it has them."""
        ...

    def preview(self, target: Target) -> None:
        """Show what a rewind would take."""
        ...

    def search(self, query: str) -> None:
        """Look for a text in what is on view."""
        ...

    def post_message(self, message: Message) -> bool:
        """Ask something of the app."""
        ...


class Actions:
    """Runs commands by name; every one of `COMMANDS` has its method here."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def run(self, action: str, argument: str) -> None:
        """Do what a command says.

        Args:
            action: `Command.action`.
            argument: what was typed behind it, may be empty.
        """
        method: Callable[[str], None] = getattr(self, f"do_{action}")
        method(argument)

    def do_timeline(self, argument: str) -> None:
        """Go to the timeline or back."""
        self._stage.focus_timeline()

    def do_search(self, argument: str) -> None:
        """Look for a text in the chat or the world line on view."""
        self._stage.search(argument)

    def do_rewind(self, argument: str) -> None:
        """Preview a rewind to checkpoint N; without one, choose it on the timeline."""
        if not argument:
            self._stage.focus_timeline()
            return
        number = self._number(argument)
        if number is not None:
            from kimi_tui.soul.protocol import Target

            self._stage.preview(Target(number))

    def do_dmail(self, argument: str) -> None:
        """Write to the agent's past self."""
        self._stage.travel.dmail(argument)

    def do_jump(self, argument: str) -> None:
        """Make a world line live."""
        self._stage.travel.jump(argument)

    def do_worldline(self, argument: str) -> None:
        """Read a world line, or return to now."""
        self._stage.travel.worldline(argument)

    def do_compare(self, argument: str) -> None:
        """Show a world line beside the live line."""
        self._stage.travel.compare(argument)

    def do_bookmark(self, argument: str) -> None:
        """Name a checkpoint."""
        self._stage.travel.bookmark(argument)

    def do_pin(self, argument: str) -> None:
        """Keep a message from being dropped, or no longer."""
        self._stage.travel.pin(argument)

    def do_summary(self, argument: str) -> None:
        """Read what a compaction left."""
        self._stage.travel.summary(argument)

    def do_undo(self, argument: str) -> None:
        """Reverse the newest operation."""
        self._with_soul(lambda soul: self._told(soul.undo()))

    def do_redo(self, argument: str) -> None:
        """Do again what was undone."""
        self._with_soul(lambda soul: self._told(soul.redo()))

    def do_compact(self, argument: str) -> None:
        """Compact now, or when the turn has ended."""
        self._stage.conversation.compact(argument)

    def do_usage(self, argument: str) -> None:
        """Say what the window holds and what the session has cost."""
        usage = self._stage.conversation.state.usage
        if usage is None:
            self._stage.tell("Nothing was used yet.")
            return
        about = "~" if usage.estimated else ""
        soul = self._stage.conversation.engine.soul
        cost = soul.cost if soul is not None else None
        self._stage.tell(
            f"{about}{tokens(usage.used)} of {tokens(usage.limit)} used, "
            f"{percent(usage.used, usage.limit)}; compacts at {tokens(usage.trigger)}",
            advice=(
                f"This session: {tokens(usage.total_input)} in, of these "
                f"{tokens(usage.total_cached)} cached, {tokens(usage.total_output)} out"
                f"{f'; {cost_words(cost)}' if cost is not None else ''}."
            ),
        )

    def do_replay(self, argument: str) -> None:
        """Play the session back."""
        soul = self._stage.conversation.engine.soul

        async def replay(_: Soul) -> None:
            if soul is not None:
                await soul.flush()
                self._stage.post_message(ReplayWanted(soul.session))

        self._with_soul(replay)

    def do_stats(self, argument: str) -> None:
        """Show what the session did and cost."""

        async def show(soul: Soul) -> None:
            figures = await soul.statistics()
            if not figures.turns and not figures.steps:
                self._stage.tell("Nothing was done yet.")
                return
            title = self._stage.conversation.state.title
            self._stage.post_message(StatisticsWanted(title, figures))

        self._with_soul(show)

    def do_rename(self, argument: str) -> None:
        """Call the session something."""

        async def rename(soul: Soul) -> None:
            title = await soul.rename(argument)
            self._stage.conversation.set_title(title)
            self._stage.tell(
                f"This session is now called {title}." if title else "It has no title yet."
            )

        self._with_soul(rename)

    def do_model(self, argument: str) -> None:
        """Another model, by name or from a list."""
        self._stage.post_message(ModelWanted(argument))

    def do_tools(self, argument: str) -> None:
        """Tell the model of tools or of none; without a word the other of both."""
        conversation = self._stage.conversation
        if argument and argument not in ("on", "off"):
            self._stage.tell(f"There is no /tools {argument}: on or off.", level="warning")
            return
        on = argument == "on" if argument else not conversation.state.tools
        conversation.use_tools(on)
        self._stage.tell("The model may call tools." if on else "The model is told of no tools.")

    def do_mode(self, argument: str) -> None:
        """Change what needs asking; without a word between asking and accepting edits."""
        known: dict[str, Mode] = {"ask": "ask", "edits": "edits", "all": "all"}
        if argument and argument not in known:
            self._stage.tell(f"There is no mode {argument}: ask, edits or all.", level="warning")
            return
        # The key never reaches `all`: that is only ever said in words.
        turned: Mode = "edits" if self._stage.conversation.state.mode == "ask" else "ask"
        mode = known.get(argument, turned)

        async def change(soul: Soul) -> None:
            await soul.set_mode(mode)
            self._stage.conversation.set_mode(mode)
            self._stage.tell(f"The agent now {MODE_WORDS[mode]}.")

        self._with_soul(change)

    def do_stop(self, argument: str) -> None:
        """Stop what runs."""
        self._with_soul(lambda soul: soul.interrupt())

    def do_resume(self, argument: str) -> None:
        """Let the agent go on without a new message."""
        if self._stage.conversation.state.running:
            self._stage.tell("The agent is already working.")
            return
        self._with_soul(lambda soul: soul.resume())

    def do_fork(self, argument: str) -> None:
        """Copy the line into a session of its own."""
        number = self._number(argument) if argument else None
        if argument and number is None:
            return

        async def fork(soul: Soul) -> None:
            from kimi_tui.soul.protocol import Target

            session_id = await soul.fork(Target(number) if number is not None else None)
            launch = self._stage.conversation.elsewhere(session_id)
            if launch is None:
                self._stage.tell("Forked into a new session.", advice=f"Its id is {session_id}.")
            else:
                self._stage.post_message(SessionWanted(launch))

        self._with_soul(fork)

    def do_new(self, argument: str) -> None:
        """Leave this session and begin another."""
        self._stage.post_message(SessionWanted(self._stage.conversation.anew()))

    def do_theme(self, argument: str) -> None:
        """Other colours."""
        self._stage.post_message(ThemeWanted(argument))

    def do_palette(self, argument: str) -> None:
        """All commands."""
        self._stage.post_message(PaletteWanted())

    def do_help(self, argument: str) -> None:
        """All keys."""
        self._stage.post_message(HelpWanted())

    def do_suspend(self, argument: str) -> None:
        """Back to the shell for a while."""
        self._stage.post_message(SuspendWanted())

    def do_quit(self, argument: str) -> None:
        """Leave."""
        self._stage.post_message(LeaveWanted())

    def _number(self, text: str) -> int | None:
        digits = text.removeprefix("#")
        if digits.isascii() and digits.isdigit():
            return int(digits)
        self._stage.tell(f"{text[:20]} is no checkpoint: a number is needed.", level="warning")
        return None

    def _with_soul(self, work: Callable[[Soul], Awaitable[None]]) -> None:
        soul = self._stage.conversation.engine.soul
        if soul is None:
            self._stage.tell("The session is still being opened.")
            return

        async def run() -> None:
            await work(soul)

        self._stage.conversation.engine.start(run())

    async def _told(self, sentence: Awaitable[str]) -> None:
        self._stage.tell(await sentence)
