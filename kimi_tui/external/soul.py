"""`ExternalSoul`: the soul whose turns an external agent does.

Session, time travel, world lines, marks, changes and exports are those of `KimiSoul`. D-Mails,
compaction, background commands, the settings of a model and everything else that needs our own loop are lacking (`lacks`), so that no
screen offers them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal

from kimi_tui.agent_parts import PartName
from kimi_tui.external.agents import OURSELVES
from kimi_tui.external.connection import AgentFailed, AgentSetting
from kimi_tui.external.host import AgentHost
from kimi_tui.external.serving import AgentServices
from kimi_tui.external.turns import AgentTurns
from kimi_tui.hooks.definitions import OF_TOOLS, Hook
from kimi_tui.images import Image
from kimi_tui.llm.errors import LLMError
from kimi_tui.soul.dmail import DMailDelivery
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.usage import Cost
from kimi_tui.wire.events import Notice, When


class ExternalSoul(KimiSoul):
    """The engine of a session with an external agent; `assembly.open_soul` makes it.

    Args:
        host: the agent.
        options: those of `KimiSoul`.

    Attributes:
        host: the agent.
    """

    lacks: frozenset[PartName] = frozenset({"dmails", "tasks", "model"})

    def __init__(self, *args: Any, host: AgentHost, **options: Any) -> None:
        self.host = host
        super().__init__(*args, **options)
        self.name = host.title
        self._told_words = self.name
        host.services = AgentServices(self._tools, host.title)
        if self.hooks is not None:
            self.hooks.why_not = self._why_no_hook
        host.on_news = self._heard_news
        host.tell = lambda text, advice: self.wire.publish(Notice("info", text, advice))

    def _made_loop(self, dmails: DMailDelivery) -> AgentTurns:
        return AgentTurns(
            self.host,
            self._tools,
            self._orphans,
            self._compactor,
            dmails,
            self.inbox,
            self._attachments,
        )

    def _runs_itself(self, hook: Hook) -> bool:
        """Return whether the agent reads the file of a hook, too: the hook must not run twice."""
        return self.host.name == OURSELVES or (self.host.name == "claude" and hook.form == "claude")

    def _why_no_hook(self, hook: Hook) -> str:
        """Return why a hook does not run with the agent, as a clause; empty if it does."""
        if self._runs_itself(hook):
            return f"{self.name} runs it itself"
        if hook.event in OF_TOOLS:
            return f"{self.name} runs its tools itself, and no hook of kimi-tui can stop them"
        if hook.event in ("PreCompact", "PostCompact"):
            return f"{self.name} compacts its context itself"
        return ""

    async def begin_hooks(self, source: Literal["startup", "resume"]) -> tuple[str, ...]:
        """Begin to tell the hooks that are about turns; return sentences for the user, also about hooks around tool calls."""
        words = await super().begin_hooks(source)
        hooks = self.hooks
        unheard = hooks.unheard if hooks is not None else ()
        guards = [
            one for one in unheard if one.event == "PreToolUse" and not self._runs_itself(one)
        ]
        if not guards:
            return words
        named = "1 hook" if len(guards) == 1 else f"{len(guards)} hooks"
        verb = "does" if len(guards) == 1 else "do"
        return (
            *words,
            f"{named} for PreToolUse {verb} not run with {self.name}, which runs its tools itself; /hooks lists them.",
        )

    async def prepare_model(self) -> tuple[str, ...]:
        """Start the agent, so that its abilities are known before the first message.

        Returns:
            sentences for the user, if it cannot be started.
        """
        try:
            await self.host.connected()
        except AgentFailed as error:
            return (f"{error.message} {error.advice}".strip(),)
        self._heard_news()
        return ()

    def say(
        self,
        text: str,
        images: Sequence[Image] = (),
        when: When = "now",
        carry_out: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> str:
        """Send a message as `KimiSoul.say`; during a turn it waits for its end, since the protocol has no way into a running one."""
        if self.running:
            when = "after the turn"
        return super().say(text, images, when, carry_out)

    @property
    def settings(self) -> tuple[AgentSetting, ...]:
        """The settings that the agent offers; none before its session has begun."""
        return self.host.settings

    async def begin_session(self) -> None:
        """Begin or go on with the session of the agent, so that its settings are known.

        Raises:
            AgentFailed: it cannot be started, or the user is not logged in.
            SoulBusy: a turn runs.
        """
        connection = self.host.connection
        if connection is None or not (connection.is_open and connection.session):
            await self._alone.run(self._begun())

    async def _begun(self) -> None:
        loop = self._loop
        assert isinstance(loop, AgentTurns)
        await loop.choose_session(await self.host.connected())

    async def set_setting(self, setting: AgentSetting, value: str) -> AgentSetting:
        """Change a setting of the agent; return it as it is then.

        Raises:
            AgentFailed: it refuses, or cannot be reached.
        """
        await self.begin_session()
        await self.host.set(setting, value)
        return next(one for one in self.settings if one.id == setting.id)

    @property
    def agent_words(self) -> str:
        """The name of the agent and its mode."""
        mode = self.host.setting("mode")
        return f"{self.name}, {mode.shown}" if mode is not None and mode.shown else self.name

    @property
    def agent_values(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The modes, models and reasoning efforts that the agent offers, by name."""

        def names(category: str) -> tuple[str, ...]:
            setting = self.host.setting(category)
            return () if setting is None else setting.names

        return names("mode"), names("model"), names("thought_level")

    def _heard_news(self) -> None:
        """Publish the model and the mode of the agent, if they are others than before."""
        self._conversation.tell_model()
        words, before = self.agent_words, self._told_words
        self._told_words = words
        if before == words:
            return
        # A header that names the mode is drawn with events.
        self.wire.publish(self.model_facts)
        connection = self.host.connection
        if self.running and connection is not None and not connection.is_fresh:
            self.wire.publish(Notice("info", f"The mode of the agent is now: {words}."))

    @property
    def cost(self) -> Cost | None:
        """The cost of the agent's session, as it says; None if it does not say."""
        told = self.host.cost
        return None if told is None else Cost((told,))

    async def name_session(self) -> str | None:
        """Take over the title that the agent gave its session; return it, empty if there is none or the user has set one."""
        title = self.host.title_told
        if not title or self._alone.closed or self.session.state.title:
            return ""
        try:
            return await self.rename(title)
        except (OSError, LLMError):
            return ""

    async def aclose(self) -> None:
        """Stop, sync and release the session, and end the agent."""
        try:
            await super().aclose()
        finally:
            await self.host.close()


def maker(host: AgentHost) -> Any:
    """Return what makes the engine of a session with this agent, in the place of `KimiSoul`."""
    return partial(ExternalSoul, host=host)
