"""The widgets that show a sub-agent in place of the chat: a banner, its messages as they are streamed, and its own timeline.

A sub-agent of a future that runs is read only, and has no timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from kimi_tui.projection.subagents import (
    NAME_CHARS,
    agent_model,
    agent_name,
    agent_news,
    agent_state_words,
    agent_title,
)
from kimi_tui.tui.beside_view import (
    BesideBanner,
    BesidePlace,
    BesideTranscript,
    BesideView,
    banner_rows,
)
from kimi_tui.tui.frame_rows import Hint
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline.timeline import Timeline
from kimi_tui.tui.transcript.tool_card import agent_sign

if TYPE_CHECKING:
    from kimi_tui.tui.pictures import LoadImage
    from kimi_tui.wire.events import AgentChanged, EventRecord

_STEERED: tuple[Hint, ...] = (("m", "send it a message"), ("x", "stop it"))
_STEERED_SHORTLY: tuple[Hint, ...] = (("m", "message"), ("x", "stop"))
_PAUSED: tuple[Hint, ...] = (("m", "send it a message"),)
_READ: tuple[Hint, ...] = (
    ("Enter", "rewind it to the selected step"),
    ("Esc", "back to the main agent"),
)
_READ_SHORTLY: tuple[Hint, ...] = (("Enter", "rewind it"), ("Esc", "back"))


class SubagentTranscript(BesideTranscript):
    """The messages of a sub-agent, with keys that act on it. Enter posts the checkpoint of the chosen message."""

    ANSWER_KEY = "subagent.answer"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "act('message')", "Send it a message", id="subagent.message", show=False),
        Binding("x", "act('stop')", "Stop it", id="subagent.stop", show=False),
        Binding("r", "act('answer')", "Go to the question", id="subagent.answer", show=False),
        Binding("tab", "choose(1)", "Next message", id="subagent.next", show=False),
        Binding("shift+tab", "choose(-1)", "Previous message", id="subagent.before", show=False),
        Binding(
            "escape", "act('leave')", "Back to the main agent", id="subagent.leave", show=False
        ),
    ]


class SubagentBanner(BesideBanner["AgentChanged"]):
    """The banner over a sub-agent: its name and task, what it does, and the keys that act on it."""

    def __init__(self, state: AgentChanged, currency: str) -> None:
        super().__init__(state, currency, widget_id="subagent-banner")

    def remark(self) -> str:
        """Return why the sub-agent waits or is paused, and what is special about how it works."""
        one = self.state
        why = agent_news(one) if one.state in ("waiting", "paused") else ""
        # The remark says for what a request in a copy waits, which does not matter once the sub-agent has ended.
        remark = "" if one.is_over and one.is_future else one.remark[: NAME_CHARS * 2]
        return f"{why} {remark}".strip()

    def wordings(self) -> Sequence[Sequence[Hint]]:
        """Return the keys, in wordings of which the longest one that fits is taken."""
        if self.state.is_over:
            return (_READ, _READ_SHORTLY)
        if self.state.state == "paused":
            return ((*_PAUSED, *_READ), (*_PAUSED, *_READ_SHORTLY))
        return ((*_STEERED, *_READ), (*_STEERED_SHORTLY, *_READ_SHORTLY))

    def head(self, width: int, glyphs: Glyphs) -> tuple[list[Span], list[Span]]:
        """Return the name and task of the sub-agent with its figures, and the keys."""
        one = self.state
        facts = [agent_state_words(one), agent_model(one), *self.figures()]
        return banner_rows(
            [agent_sign(one, glyphs), Span(f" {agent_name(one)}", "strong")],
            agent_title(one),
            list(filter(None, facts)),
            self.wordings(),
            width,
            glyphs,
        )


class SubagentView(BesideView):
    """A sub-agent in the place of the chat, with a timeline of its own.

    Args:
        state: its state.
        currency: the sign of amounts.
        work_dir: the work folder; paths below it are shown relative to it.
        keys: the configured keys, by action.
        load_image: reads an image; None if images are only named.
    """

    def __init__(
        self,
        state: AgentChanged,
        currency: str,
        work_dir: str,
        keys: Mapping[str, str],
        load_image: LoadImage | None = None,
    ) -> None:
        self.banner = SubagentBanner(state, currency)
        transcript = SubagentTranscript(work_dir=work_dir, keys=keys, load_image=load_image)
        transcript.currency = currency
        super().__init__(state.name, self.banner, transcript, work_dir, Timeline())

    @property
    def place(self) -> BesidePlace:
        """The part of the screen for footer and help."""
        return "ended subagent" if self.banner.state.is_over else "subagent"

    def on_mount(self) -> None:
        """Show the messages and checkpoints of the sub-agent."""
        super().on_mount()
        if self.timeline is not None:
            self.timeline.show_model(self.session.timeline)


class FutureAgentTranscript(BesideTranscript):
    """The messages of a sub-agent of a future; what is written to it goes to the future."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "m", "act('message')", "Send the future a message", id="future.message", show=False
        ),
        Binding("r", "act('answer')", "Go to the question", id="future.answer", show=False),
        Binding("tab", "choose(1)", "Next message", id="future.next", show=False),
        Binding("shift+tab", "choose(-1)", "Previous message", id="future.before", show=False),
        Binding("escape", "act('leave')", "Back to the future", id="future.leave", show=False),
    ]


class FutureAgentBanner(SubagentBanner):
    """The banner over a sub-agent of a future: what it does, and the keys."""

    KEYS = (
        (("m", "send the future a message"), ("Esc", "back to the future")),
        (("m", "message"), ("Esc", "back")),
        (("Esc", "back"),),
    )

    def wordings(self) -> Sequence[Sequence[Hint]]:
        """Return the keys, in wordings of which the longest one that fits is taken."""
        return self.KEYS


class FutureAgentView(BesideView):
    """A sub-agent of a future in the place of the chat. It is read only: it can be rewound once the future is the current line.

    Args:
        future: the key of the future.
        state: the state of the sub-agent.
        currency: the sign of amounts.
        work_dir: the work folder; paths below it are shown relative to it.
        keys: the configured keys, by action.
        load_image: reads an image; None if images are only named.
    """

    WAY_BACK = " Esc returns to the future."

    def __init__(
        self,
        future: str,
        state: AgentChanged,
        currency: str,
        work_dir: str,
        keys: Mapping[str, str],
        load_image: LoadImage | None = None,
    ) -> None:
        self.future = future
        self.banner = FutureAgentBanner(state, currency)
        transcript = FutureAgentTranscript(work_dir=work_dir, keys=keys, load_image=load_image)
        transcript.currency = currency
        super().__init__(f"{future} {state.name}", self.banner, transcript, work_dir)

    @property
    def place(self) -> BesidePlace:
        """The part of the screen for footer and help."""
        return "future subagent"

    def play(self, records: Sequence[EventRecord], *, live: bool | None = None) -> None:
        """Show events, and the state of the sub-agent, which is among them."""
        super().play(records, live=live)
        for state in self.session.state.agents:
            self.banner.tell(state, self.banner.news)
