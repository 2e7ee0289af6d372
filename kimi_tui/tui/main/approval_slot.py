"""Approval requests on the main screen: one after another in place of the prompt, a D-Mail with a preview of its effect.

The panel itself (`approval.panel`) is imported with the first request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.keystrokes import Keystrokes
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer
from kimi_tui.tui.state import Prospect

if TYPE_CHECKING:
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.wire.events import ApprovalRequest


class ApprovalSlot:
    """Shows the oldest waiting approval request in place of the prompt.

    Args:
        bench: the workbench, whose prompt is hidden meanwhile and keeps its draft.
        conversation: asked for the preview of a D-Mail.
        viewer: shows that preview in chat and gauge.
        keystrokes: takes text that is typed here and is no answer.
    """

    def __init__(
        self,
        bench: Workbench,
        conversation: Conversation,
        viewer: WorldLineViewer,
        keystrokes: Keystrokes,
    ) -> None:
        self._bench = bench
        self._conversation = conversation
        self._viewer = viewer
        self._keystrokes = keystrokes
        self._foresees = False
        """Whether chat and gauge show what the D-Mail would take that waits for an answer."""

    def show(self, requests: tuple[ApprovalRequest, ...]) -> None:
        """Show the first of the waiting requests, or the prompt where there is none.

        Args:
            requests: all that wait, oldest first.
        """
        from kimi_tui.tui.approval.panel import ApprovalPanel

        shown, oldest = self._bench.question, requests[0] if requests else None
        if shown is not None and oldest is not None and shown.request.id == oldest.id:
            shown.waiting = len(requests)
            return
        bench, screen, prompt = self._bench, self._bench.screen, self._bench.prompt
        bench.question = None
        if self._foresees:
            self._foresees = False
            self._viewer.show_prospect(None)
        if oldest is not None:
            # Whoever reads elsewhere goes on with it: their Esc is not meant to stop the turn.
            going = shown or prompt
            takes_keys = screen.focused is None or going.has_focus_within
            if takes_keys:
                # Nothing that goes may have the focus: it would fall to a neighbour for a moment.
                screen.set_focus(None)
            panel = bench.question = ApprovalPanel(
                oldest,
                bench.last_key_at(),
                bench.keys,
                takes_keys=takes_keys,
                write=self._keystrokes.write_on,
                typed_at=self._keystrokes.written_at,
            )
            panel.waiting = len(requests)
            prompt.display = False
            screen.mount(panel, after=prompt)
            if oldest.checkpoint_id >= 0:
                bench.start(self._preview_dmail(panel))
        elif shown is not None:
            prompt.display = True
            if shown.has_focus_within:
                bench.focus_prompt()
        if shown is not None:
            shown.remove()

    async def _preview_dmail(self, panel: ApprovalPanel) -> None:
        """Show what a D-Mail would drop and leave while its request waits: in the panel, the chat and the gauge."""
        from kimi_tui.soul.rewind_values import Target
        from kimi_tui.tui.preview.layout import consequence_rows

        bench, request = self._bench, panel.request
        soul = await self._conversation.opened()
        try:
            found = await soul.preview_dmail(request.checkpoint_id, request.detail)
        except KeyError:
            # The line became another one meanwhile, and the question went with it.
            if bench.question is panel:
                words = f"There is no #{request.checkpoint_id} here for this D-Mail."
                bench.tell(words, level="warning")
            return
        if bench.question is not panel:
            return
        panel.toll = partial(consequence_rows, found)
        if not bench.timeline_pane.has_keys:
            self._foresees = True
            target, left = Target(request.checkpoint_id), found.tokens_after
            self._viewer.show_prospect(Prospect(target, left, found.estimated, words_stay=True))
