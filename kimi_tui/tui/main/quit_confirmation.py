"""Confirmation before a session is left: a key that quits must be pressed twice, and the user is told first what would be lost.

A warning is confirmed by the same action within `WARNED_S` seconds, with a key that was pressed after the terminal had
painted the warning: keys that were typed ahead confirm nothing.
"""

from __future__ import annotations

import time
from functools import partial

from kimi_tui.display_names import counted
from kimi_tui.tui.keyboard import SeenQuestion
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.notices import STAYS_S
from kimi_tui.tui.screens import QuitChosen

WARNED_S = 10.0
"""Seconds within which leaving again confirms the warning about what would be lost."""
MOST_WARNINGS = 3
"""The largest number of warnings in succession that keep the user in a session while none of them could be painted."""
QUIT = "quit"
"""Topic of the notice that pressing the key again quits."""
QUITTING = ("ctrl+c", "ctrl+d")
"""The keys that quit when they are pressed twice."""


class QuitConfirmation:
    """Decides whether the program may leave a session now, and warns of losses.

    Args:
        bench: shows the warnings, and has the prompt.
        conversation: the session, with its jobs and unsaved parts.
    """

    def __init__(self, bench: Workbench, conversation: ConversationController) -> None:
        self._bench = bench
        self._conversation = conversation
        self._pressed_at: float | None = None
        """The monotonic time of the first press of a key that quits; None if the next press is the first."""
        self._warned_at = -WARNED_S
        self._n_warned = 0
        """The number of warnings in succession."""
        self._warning = SeenQuestion(bench.screen)
        """Whether the newest warning was painted, so that a key may confirm it."""
        self._told_of_jobs_at = -WARNED_S
        """The monotonic time at which the first press of a key told of background commands and futures."""

    def key_pressed(self, key: str, *, stops: bool) -> None:
        """Handle a key that quits: the first press shows a notice, the second one quits.

        Args:
            key: the displayed name of the key.
            stops: whether the first press also stops a running turn; else it empties the prompt.
        """
        bench = self._bench
        if self._pressed_at is not None:
            bench.screen.post_message(QuitChosen())
            return
        if stops and not self._conversation.stop() and bench.prompt.area.text:
            bench.add_to_history(bench.prompt.area.take())
        self._pressed_at = time.monotonic()
        bench.tell(self.first_press(key), topic=QUIT)
        bench.screen.set_timer(STAYS_S, partial(self.cancel, self._pressed_at))

    def cancel(self, since: float | None = None) -> None:
        """Forget the first press, because another key was pressed; or a first press at `since`, which is too long ago."""
        if self._pressed_at is not None and since in (None, self._pressed_at):
            self._pressed_at = None
            self._bench.chat_pane.dismiss(QUIT)

    def first_press(self, key: str) -> str:
        """Return the notice at the first press of a key that quits; it also names the losses, which `may_quit` then does not repeat.

        Args:
            key: the displayed name of the key.
        """
        state = self._conversation.state
        self._told_of_jobs_at = time.monotonic()
        if state.unsaved:
            self._warned(self._told_of_jobs_at, 1)
            return f"Press {key} again to quit. Unsaved messages will be lost."
        if words := self._beside():
            return f"Press {key} again to quit. {words} and will be stopped."
        return f"Press {key} again to quit."

    async def may_quit(self, *, for_another: bool = False) -> bool:
        """Save the session, and return whether it may be left: nothing would be lost, or the warning about it is confirmed.

        Args:
            for_another: whether another session replaces it: then the question whether to stop the agent is asked too.
        """
        soul, bench = self._conversation.soul, self._bench
        words = "" if soul is None else await soul.save()
        is_working = for_another and soul is not None and soul.running
        now, beside = time.monotonic(), self._beside()
        if now - self._told_of_jobs_at < WARNED_S:
            beside = ""
        is_again = now - self._warned_at < WARNED_S
        n_warned = self._n_warned + 1 if is_again else 1
        is_confirmed = is_again and self._warning.accepts(bench.last_key_at)
        # The user can leave even if the line is dead and no answer arrives any more.
        if not (words or beside or is_working) or is_confirmed or n_warned > MOST_WARNINGS:
            return True
        self._warned(now, n_warned)
        if words:
            bench.tell(
                words,
                level="error",
                advice="Repeat the command to leave. Unsaved messages will be lost.",
            )
        elif is_working:
            bench.tell(
                "The agent is working. Leaving this session stops it.",
                level="warning",
                advice="Repeat the command to stop the agent and leave.",
            )
        else:
            where = "/tasks lists" if self._conversation.state.jobs else "/futures shows"
            bench.tell(
                f"{beside} and will be stopped with this session.",
                level="warning",
                advice=f"Repeat the command to stop everything and leave. {where} what is running.",
            )
        return False

    def ignore_early_keys(self) -> None:
        """Have no key confirm a warning that was given before the program was stopped, or before it is painted."""
        if self._warning.is_open:
            self._warned_at = -WARNED_S
        else:
            self._warning.ask(is_expected=True)  # the warning comes again after the stop

    def _warned(self, at: float, n_warned: int) -> None:
        self._warned_at, self._n_warned = at, n_warned
        self._warning.ask(is_expected=True)

    def _beside(self) -> str:
        """Return what runs beside the agent, background commands and futures; empty for nothing."""
        jobs = self._conversation.state.jobs
        n_futures = sum(not one.is_over for one in self._conversation.state.futures)
        parts: list[str] = []
        if jobs:
            parts.append(
                f"{counted(jobs, 'background task')} {'is' if jobs == 1 else 'are'} running"
            )
        if n_futures:
            parts.append(
                f"{counted(n_futures, 'future')} {'is' if n_futures == 1 else 'are'} running"
            )
        return " and ".join(parts)
