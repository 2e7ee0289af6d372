"""The place of the prompt, which requests for approval take one after another.

The panel itself is imported when something is asked for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kimi_tui.tui.prompt.bar import PromptBar

if TYPE_CHECKING:
    from kimi_tui.tui.approval.panel import ApprovalPanel, Toll
    from kimi_tui.wire.events import ApprovalRequest


class ApprovalSlot:
    """Shows the oldest waiting request.

    Args:
        prompt: what gives way to it, with its draft.
        last_key_at: monotonic time of the last key pressed anywhere.
        keys: those of the configuration, by command.
        give_back: gives the keys to where they belong when the last request is gone.
        write: given what is prose, and no answer.

    Attributes:
        panel: the request on the screen; None where there is none.
    """

    def __init__(
        self,
        prompt: PromptBar,
        last_key_at: Callable[[], float],
        keys: Mapping[str, str],
        give_back: Callable[[], None],
        write: Callable[[str], None],
    ) -> None:
        self._prompt = prompt
        self._give_back = give_back
        self._last_key_at = last_key_at
        self._keys = keys
        self._write = write
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

    def show(self, requests: tuple[ApprovalRequest, ...], typed_at: float = 0.0) -> None:
        """Bring the screen in line with the requests that wait; `typed_at` is when something was written last, 0 for never."""
        from kimi_tui.tui.approval.panel import ApprovalPanel

        shown, oldest = self.panel, requests[0] if requests else None
        if shown is not None and oldest is not None and shown.request.id == oldest.id:
            shown.waiting = len(requests)
            return
        self.panel = None
        screen = self._prompt.screen
        if oldest is not None:
            # Whoever reads elsewhere goes on with it: their Esc is not meant to stop the turn.
            going = shown or self._prompt
            takes_keys = screen.focused is None or going.has_focus_within
            if takes_keys:
                # Nothing that goes may have the focus: it would fall to a neighbour for a moment.
                screen.set_focus(None)
            self.panel = ApprovalPanel(
                oldest,
                self._last_key_at(),
                self._keys,
                takes_keys=takes_keys,
                write=self._write,
                typed_at=typed_at,
            )
            self.panel.waiting = len(requests)
            self._prompt.display = False
            screen.mount(self.panel, after=self._prompt)
        elif shown is not None:
            self._prompt.display = True
            if shown.has_focus_within:
                self._give_back()
        if shown is not None:
            shown.remove()
