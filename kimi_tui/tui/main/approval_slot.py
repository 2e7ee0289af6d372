"""The place of the prompt, which requests for approval take one after another.

The panel itself is imported when something is asked for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.tui.approval.panel import ApprovalPanel, Toll
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.wire.events import ApprovalRequest


class ApprovalSlot:
    """Shows the oldest waiting request.

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

    def foresee(self, request_id: str, toll: Toll) -> bool:
        """Show what a D-Mail that waits for an answer would take; False where it waits no longer."""
        panel = self.panel
        if panel is None or panel.request.id != request_id:
            return False
        panel.toll = toll
        return True

    def wait_anew(self) -> None:
        """What is pressed right now was not meant for the request."""
        if self.panel is not None:
            self.panel.wait_anew()

    def show(self, requests: tuple[ApprovalRequest, ...]) -> None:
        """Bring the screen in line with the requests that wait."""
        from kimi_tui.tui.approval.panel import ApprovalPanel

        shown, oldest = self.panel, requests[0] if requests else None
        if shown is not None and oldest is not None and shown.request.id == oldest.id:
            shown.waiting = len(requests)
            return
        self.panel = None
        screen, prompt = self._screen, self._screen.prompt
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
                write=screen.write_on,
                typed_at=screen.typed_at,
            )
            self.panel.waiting = len(requests)
            prompt.display = False
            screen.mount(self.panel, after=prompt)
        elif shown is not None:
            prompt.display = True
            if shown.has_focus_within:
                screen.focus_prompt()
        if shown is not None:
            shown.remove()
