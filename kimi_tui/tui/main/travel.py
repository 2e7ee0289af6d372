"""What the person wants of checkpoints and world lines beyond a rewind, by key or by command, brought to the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kimi_tui.soul.protocol import Soul, Target
from kimi_tui.tui.main import letters, marking
from kimi_tui.tui.main.arguments import number, pair
from kimi_tui.tui.main.reading import Reader, jump

if TYPE_CHECKING:
    from kimi_tui.tui.main.screen import MainScreen

Work = Callable[[Soul], Awaitable[None]]


class Travel:
    """Runs these wishes one at a time as tasks of the engine.

    Args:
        screen: where they come from.

    Attributes:
        reader: the world line on view.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self.reader = Reader(screen)

    # --- commands; each takes what was typed behind its word

    def dmail(self, argument: str) -> None:
        """`N`: write a letter there; `N words`: send these."""
        where, _, text = argument.partition(" ")
        found = pair(where)
        if found is None:
            self._say_number(where)
            return
        target = found
        screen = self._screen
        if text.strip():
            self._run(
                lambda soul: letters.send_dmail(
                    screen, screen.conversation, soul, target, text.strip()
                )
            )
        else:
            self._run(
                lambda soul: letters.write_dmail(screen, screen, screen.conversation, soul, target)
            )

    def jump(self, argument: str) -> None:
        """`K` or `K:N`: make a world line live."""
        line, _, checkpoint = argument.partition(":")
        k, n = number(line), number(checkpoint)
        if k is None or (checkpoint and n is None):
            self._say_number(argument)
            return
        self._run(lambda soul: jump(self._screen, soul, k, n))

    def worldline(self, argument: str) -> None:
        """`K`: read a world line; nothing: return to now."""
        k = number(argument)
        if k is not None:
            self.read(k)
        elif argument or not self.reader.leave():
            self._say_number(argument)

    def compare(self, argument: str) -> None:
        """`K`, or nothing for the line on view: show it beside the live line."""
        k = number(argument) if argument else self.reader.world_line or None
        if k is None:
            self._say_number(argument)
        else:
            self.side_by_side(k)

    def bookmark(self, argument: str) -> None:
        """`N NAME`: name a checkpoint of the live line; `N`: ask for its name."""
        where, _, name = argument.partition(" ")
        uid = self._uid(where)
        n = number(where)
        if uid is None or n is None:
            return
        if name.strip():
            self._run(lambda soul: marking.bookmark(self._screen, soul, uid, name))
        else:
            self._run(lambda soul: marking.name_it(self._screen, soul, Target(n), uid))

    def pin(self, argument: str) -> None:
        """`N`: pin what stands at a checkpoint of the live line, or no longer."""
        uid = self._uid(argument)
        if uid is not None:
            self._run(lambda soul: marking.pin(self._screen, soul, uid))

    def summary(self, argument: str) -> None:
        """Read the newest summary."""
        del argument
        self._run(lambda soul: marking.read_summary(self._screen, soul, ""))

    def _uid(self, text: str) -> str | None:
        n = number(text)
        if n is None:
            self._say_number(text)
            return None
        point = marking.live_point(self._screen, n)
        if point is None or point.uid.startswith("~"):
            self._screen.tell(f"There is no checkpoint #{n} on the live line.", level="warning")
            return None
        return point.uid

    # --- wishes by key

    def side_by_side(self, world_line: int) -> None:
        """Show a world line beside the live line."""
        from kimi_tui.tui.main.comparing import compare

        self._run(lambda soul: compare(self._screen, soul, world_line))

    def read(self, world_line: int, checkpoint_id: int = -1) -> None:
        """Show a world line in the place of the chat."""
        if not world_line:
            self._screen.tell("That is on the live line.", advice="w reads a world line.")
            return
        self._screen.timeline_pane.close()
        self._run(lambda soul: self.reader.open(soul, world_line, checkpoint_id))

    def of_line(self, wish: str) -> None:
        """What is wanted of the line on view."""
        match wish:
            case "jump":
                self._run(self.reader.jump)
            case "send":
                self._run(self.reader.send)
            case "compare":
                self.side_by_side(self.reader.world_line)
            case _:
                self.reader.leave()

    def of_row(self, wish: str, target: Target, uid: str) -> None:
        """What is wanted of a row of the timeline; `id` -1 of a target is a whole line."""
        screen = self._screen
        if wish == "read":
            self.read(target.world_line, target.id)
        elif target.id < 0 or uid.startswith("~"):
            screen.tell("That needs a step.", advice="Space unfolds the line.")
        elif wish == "bookmark":
            self._run(lambda soul: marking.name_it(screen, soul, target, uid))
        elif wish == "pin":
            self._run(lambda soul: marking.pin(screen, soul, uid))
        elif wish == "summary":
            self._run(lambda soul: marking.read_summary(screen, soul, uid))

    def pin_message(self, uid: str, number: int) -> None:
        """Pin one message behind a checkpoint, or no longer."""
        self._run(lambda soul: marking.pin(self._screen, soul, uid, number))

    def _run(self, work: Work) -> None:
        conversation = self._screen.conversation
        soul = conversation.engine.soul
        if soul is None:
            self._screen.tell("The session is still being opened.")
            return

        async def run() -> None:
            await work(soul)

        conversation.engine.start(run())

    def _say_number(self, text: str) -> None:
        said = f"{text[:20]} is no number" if text else "A number is needed"
        self._screen.tell(f"{said}.", level="warning", advice="The timeline shows them.")
