"""Commands about external agents: lists and starts them, and shows and changes the mode and the model of the one in use."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from kimi_tui.agent_parts import PartName, missing_words
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.main.commands import MainParts, session

if TYPE_CHECKING:
    from kimi_tui.external.connection import AgentSetting
    from kimi_tui.external.soul import ExternalSoul
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.dialogs.list_screen import ListedItem

_OWN = "kimi-tui's own agent"
_CATEGORIES = {"mode": "mode", "model": "model", "thought_level": "reasoning effort"}
"""The settings that have a command of their own: their categories in the protocol, and in words."""
_ASK = "Ask the agent for it in a message."
INSTEAD = {
    "agents": "Its sub-agents, if it has any, appear as tool calls in the chat.",
    "background": "The agent runs its commands itself.",
    "checks": _ASK,
    "commit": _ASK,
    "compact": "The agent compacts its context itself. To start over, use /clear.",
    "context": "/usage shows the tokens that the agent reports.",
    "dmail": "Rewind with /rewind, then write a message.",
    "futures": "To try another way and keep this one, use /fork or /rewind.",
    "mcp": "/external-agent lists the MCP servers that the agent gets; to change them, run kimi-tui mcp in a shell.",
    "pin": "The agent compacts its context itself and ignores pins. /bookmark gives a checkpoint a name.",
    "plan": "/mode lists the modes of the agent.",
    "review": _ASK,
    "skills": "The skills of the agent are in its own configuration.",
    "summary": "The agent compacts its context itself.",
    "tasks": "The agent runs its commands itself.",
    "tools": "The tools of the agent are in its own configuration.",
    "window": "/model lists the models of the agent.",
    "add-dir": "Name the folder in a message, or give it to the agent's program after --.",
}
"""The advice in place of each command that an external agent cannot carry out, by its name."""


def lacking(main: MainParts, name: str, needs: PartName) -> tuple[str, str]:
    """Return why a command cannot be used with the agent of the session, and what to do instead.

    Args:
        main: the main screen.
        name: the name of the command.
        needs: the part of an agent that it needs, and this one lacks.
    """
    soul = main.conversation.soul
    if soul is None or _external(main, soul) is None:
        return missing_words(needs), ""
    said = f"/{name} works only with {_OWN}, and this session uses {soul.name}."
    return said, INSTEAD.get(name, "")


def _external(main: MainParts, soul: KimiSoul) -> ExternalSoul | None:
    """Return the engine of an external agent; None for any other."""
    if "model" in main.conversation.state.parts or getattr(soul, "host", None) is None:
        return None
    return cast("ExternalSoul", soul)


async def mode(main: MainParts, argument: str) -> None:
    """Set the mode: of the external agent that is in use, else of our own."""
    soul = await main.conversation.opened()
    agent = _external(main, soul)
    if agent is None:
        await session.mode(main, argument)
    else:
        await _change(main, agent, "mode", argument)


async def model(main: MainParts, argument: str) -> None:
    """Choose the model: of the external agent that is in use, else of our own."""
    soul = main.conversation.soul
    agent = None if soul is None else _external(main, soul)
    if agent is None:
        session.model(main, argument)
    else:
        await _change(main, agent, "model", argument)


async def thinking(main: MainParts, argument: str) -> None:
    """Set the reasoning effort: of the external agent that is in use, else of our own."""
    soul = main.conversation.soul
    agent = None if soul is None else _external(main, soul)
    if agent is None:
        await session.thinking(main, argument)
    else:
        await _change(main, agent, "thought_level", argument)


def learn_commands(main: MainParts) -> None:
    """Offer the commands of the external agent whose names are free; each is sent to it as a message."""
    soul = main.conversation.soul
    agent = None if soul is None else _external(main, soul)
    if agent is None or agent.host.connection is None:
        return
    from kimi_tui.tui.prompt.command import Command

    def made(name: str, words: str) -> Command:
        def send(parts: MainParts, argument: str) -> None:
            parts.conversation.say(f"/{name} {argument}".rstrip())

        return Command(name, name, words or name, send, argument="[WORDS]")

    main.bench.commands.add(
        made(name, words)
        for name, words in agent.host.connection.facts.commands
        if name.replace("-", "a").replace("_", "a").replace(":", "a").isalnum()
    )


async def _change(main: MainParts, agent: ExternalSoul, category: str, argument: str) -> None:
    """Set the mode, model or reasoning effort of an external agent by name; without one, list the values."""
    from kimi_tui.soul.errors import SoulBusy, SoulError

    try:
        await agent.begin_session()
    except SoulError as error:
        main.bench.tell(error.message, level="warning", advice=error.advice)
        return
    except SoulBusy as busy:
        main.bench.tell(str(busy), level="warning")
        return
    setting = agent.host.setting(category)
    if setting is None:
        main.bench.tell(
            f"{agent.name} does not let kimi-tui change its {_CATEGORIES[category]}.",
            advice="Use the settings of its own program.",
        )
    elif argument:
        main.bench.tell(await _set(agent, setting, argument))
    else:
        await _choose(main, agent, setting)


async def _set(agent: ExternalSoul, setting: AgentSetting, word: str) -> str:
    """Set a setting to the value that a word names; return a sentence about it."""
    from kimi_tui.soul.errors import SoulBusy, SoulError

    wanted = word.strip().casefold()
    found = next(
        (one for one in setting.choices if wanted in (one.value.casefold(), one.name.casefold())),
        None,
    )
    if found is None:
        known = ", ".join(one.name for one in setting.choices[:8])
        return f'{agent.name} has no {setting.name.lower()} "{word[:40]}". It has {known}.'
    try:
        now = await agent.set_setting(setting, found.value)
    except SoulError as error:
        return f"{error.message} {error.advice}".strip()
    except SoulBusy as busy:
        return str(busy)
    return f"{agent.name}: {now.name.lower()} {now.shown}."


async def _choose(main: MainParts, agent: ExternalSoul, setting: AgentSetting) -> None:
    """Show the values of a setting, to choose one."""
    await in_daemon_thread(import_module, "kimi_tui.tui.dialogs.list_screen")
    from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
    from kimi_tui.tui.pick_list import Entry

    items = [
        ListedItem(
            Entry(one.name, holds=one.value == setting.value, words=one.value),
            one.help,
            "choose",
            result=one.value,
        )
        for one in setting.choices
    ]

    async def same() -> Sequence[ListedItem]:
        return items

    chosen = await main.bench.ask(
        ListScreen(
            f"{agent.name}: {setting.name}",
            same,
            first=items,
            empty=f"{agent.name} lists no values.",
        )
    )
    if chosen:
        main.bench.tell(await _set(agent, setting, chosen))


async def external_agent(main: MainParts, argument: str) -> None:
    """Start a session with an external agent by name; without one, list them and the settings of the one in use."""
    if argument:
        try:
            words = shlex.split(argument)
        except ValueError:
            words = argument.split()
        await _start(main, tuple(words))
        return
    await in_daemon_thread(import_module, "kimi_tui.tui.dialogs.list_screen")
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    chosen = await main.bench.ask(
        ListScreen(
            "External agents",
            partial(_items, main),
            first=await _items(main),
            empty="There are no other agents.",
            about="Choosing an agent starts a new kimi-tui session, in which it does the work. Its steps, files and world lines are on the timeline.",
        )
    )
    if not chosen:
        return
    kind, _, name = chosen.partition(":")
    soul = main.conversation.soul
    if kind == "start":
        await _start(main, () if name == _OWN else (name,))
    elif kind == "set" and soul is not None and (agent := _external(main, soul)) is not None:
        setting = next((one for one in agent.settings if one.id == name), None)
        if setting is not None:
            await _choose(main, agent, setting)


async def _start(main: MainParts, agent: tuple[str, ...]) -> None:
    """Leave this session and begin one with an external agent, or with our own; say so if that cannot be started."""
    launch = main.conversation.new_launch()
    if agent:
        why = await asyncio.to_thread(_why_not, main, agent)
        if why:
            main.bench.tell(why, level="warning")
            return
    if launch.demo:
        main.bench.tell("External agents cannot be used in the demo.", level="warning")
        return
    main.bench.leave_for(launch._replace(external_agent=agent))


def _why_not(main: MainParts, agent: tuple[str, ...]) -> str:
    """Return why an agent cannot be started; empty if it can. It looks at files."""
    from kimi_tui.external.agents import AgentMissing, agent_program, missing_package

    if words := missing_package():
        return words
    name, *arguments = agent
    launch = main.conversation.launch
    try:
        agent_program(name, arguments, launch.config.external_agents, os.environ, launch.work_dir)
    except AgentMissing as missing:
        return str(missing)
    return ""


def _server_items(agent: ExternalSoul) -> Sequence[ListedItem]:
    """Return the MCP servers of the user: those that an agent is told of, and the others with the reason."""
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    offered = agent.host.offered
    told = f"{agent.name} starts it itself, with your permissions and outside the sandbox."
    group = "Your MCP servers"
    return [
        *(
            ListedItem(Entry(name, "given to the agent", group=group), told)
            for name in offered.names
        ),
        *(
            ListedItem(
                Entry(name, "left out", group=group), f"{agent.name} does not get it: {why}."
            )
            for name, why in offered.left_out
        ),
    ]


async def _items(main: MainParts) -> Sequence[ListedItem]:
    from kimi_tui.external.agents import known_agents
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    launch, soul = main.conversation.launch, main.conversation.soul
    in_use = launch.external_agent[:1]
    items: list[ListedItem] = []
    agent = None if soul is None else _external(main, soul)
    for setting in agent.settings if agent is not None else ():
        title = agent.name if agent is not None else ""
        items.append(
            ListedItem(
                Entry(setting.name, setting.shown, group=f"Settings of {title}", words=setting.id),
                verb="change",
                result=f"set:{setting.id}",
            )
        )
    if agent is not None:
        items += _server_items(agent)
    own = "in use" if not in_use else ""
    items.append(
        ListedItem(
            Entry("kimi-tui's own agent", own, group="Agents", words=_OWN),
            "It has D-Mails, compaction and the models of /model.",
            "start a session",
            result=f"start:{_OWN}",
        )
    )
    for name, known in known_agents(launch.config.external_agents).items():
        why = await asyncio.to_thread(_why_not, main, (name,))
        state = "in use" if (name,) == in_use else "" if not why else "not installed"
        shown = known.title if known.title == name else f"{known.title} ({name})"
        items.append(
            ListedItem(
                Entry(shown, state, group="Agents", words=name),
                why,
                "" if why else "start a session",
                result="" if why else f"start:{name}",
            )
        )
    return items
