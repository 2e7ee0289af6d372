"""The tools of a session as the user's configuration has them: pages, a search service, skills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimi_tui.config.keyring import real_key
from kimi_tui.config.settings import Config, ConfigError, SearchConfig
from kimi_tui.soul.agent_kinds import SessionKinds
from kimi_tui.soul.skills import SessionSkills
from kimi_tui.tools.agent_kind import SHIPPED
from kimi_tui.tools.base import Tool
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.toolset import Toolset, default_toolset

if TYPE_CHECKING:
    from kimi_tui.tools.web.search_web import SearchService


def configured_toolset(
    config: Config, skills: SessionSkills | None, kinds: SessionKinds | None = None
) -> Toolset:
    """Return the tools of a session. It reads files, so call it in a thread.

    Args:
        config: the configuration.
        skills: the skills of the session; None for none.
        kinds: the kinds of sub-agents of the session's folder; None for those of the program.
    """
    added: list[Tool[Any]] = []
    if config.search is not None:
        from kimi_tui.tools.web.search_web import SearchWeb

        added.append(SearchWeb(_service(config.search)))
    if skills is not None and (tool := skills.tool()) is not None:
        added.append(tool)
    usable = SHIPPED if kinds is None else kinds.usable()
    return default_toolset(config.web.allow, usable).with_added(added)


def _service(config: SearchConfig) -> SearchService:
    from kimi_tui.tools.web.search_web import SearchService

    def key() -> str:
        try:
            return real_key(config.api_key)
        except ConfigError as error:
            raise ToolProblem(str(error), brief="no key") from error

    return SearchService(config.provider, config.base_url, key, config.headers)
