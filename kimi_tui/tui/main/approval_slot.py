"""The place of the prompt, which requests for approval take one after another; what a D-Mail that is asked for would take.

The panel itself is imported when something is asked for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.tui.state import Prospect

if TYPE_CHECKING:
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.wire.events import ApprovalRequest


class ApprovalSlot:
    """The place of the prompt in which the oldest waiting approval request is shown.

    Args:
        screen: whose prompt gives way to it, with its draft; it is given what is prose, and no answer.
        last_key_at: monotonic time of the last key pressed anywhere.

    Attributes:
        panel: the request on the screen; None where there is none.
    """

    def __init__(self, screen: MainScreen, last_key_at: Callable[[], float]) -> None:
        self._screen = screen
        self._last_key_at = last_key_at
        self.panel: ApprovalPanel | None = None
        self._foresees = False
        """Whether chat and gauge show what the D-Mail would take that waits for an answer."""

    def show(self, requests: tuple[ApprovalRequest, ...]) -> None:
        """Bring the screen in line with the requests that wait."""
        from kimi_tui.tui.approval.panel import ApprovalPanel

        shown, oldest = self.panel, requests[0] if requests else None
        if shown is not None and oldest is not None and shown.request.id == oldest.id:
            shown.waiting = len(requests)
            return
        self.panel = None
        screen, prompt = self._screen, self._screen.prompt
        if self._foresees:
            self._foresees = False
            screen.foresee(None)
        if oldest is not None:
            # Whoever reads elsewhere goes on with it: their Esc is not meant to stop the turn.
            going = shown or prompt
            takes_keys = screen.focused is None or going.has_focus_within
            if takes_keys:
                # Nothing that goes may have the focus: it would fall to a neighbour for a moment.
                screen.set_focus(None)
            self.panel = ApprovalPanel(
                oldest,
                self._last_key_at(),
                screen.keys,
                takes_keys=takes_keys,
                write=screen.keystrokes.write_on,
                typed_at=screen.keystrokes.written_at,
            )
            self.panel.waiting = len(requests)
            prompt.display = False
            screen.mount(self.panel, after=prompt)
            if oldest.checkpoint_id >= 0:
                screen.conversation.start(self._preview_dmail(self.panel))
        elif shown is not None:
            prompt.display = True
            if shown.has_focus_within:
                screen.focus_prompt()
        if shown is not None:
            shown.remove()

    async def _preview_dmail(self, panel: ApprovalPanel) -> None:
        """Show what a D-Mail would take as long as it waits for an answer: in its question, in the chat and on the gauge."""
        from kimi_tui.soul.rewind import Target
        from kimi_tui.tui.preview.layout import consequence_rows

        screen, request = self._screen, panel.request
        soul = await screen.conversation.opened()
        try:
            found = await soul.preview_dmail(request.checkpoint_id, request.detail)
        except KeyError:
            # The line became another one meanwhile, and the question went with it.
            if self.panel is panel:
                words = f"There is no #{request.checkpoint_id} here for this D-Mail."
                screen.tell(words, level="warning")
            return
        if self.panel is not panel:
            return
        panel.toll = partial(consequence_rows, found)
        if not screen.timeline_pane.has_keys:
            self._foresees = True
            target, left = Target(request.checkpoint_id), found.tokens_after
            screen.foresee(Prospect(target, left, found.estimated, words_stay=True))
