"""Commands about sub-agents: list them and their kinds, read one, send it a message, stop it, and rewind it to one of its steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kimi_tui.display_names import counted
from kimi_tui.foreign_text import one_line
from kimi_tui.tui.main.commands.session import WAY_BACK, files_said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tools.agent_kind import AgentKind
    from kimi_tui.tui.beside_view import BesideAction
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.main.commands import MainParts
    from kimi_tui.wire.events import AgentChanged

_ALLOW = "allow"
_OPEN = "open "
_ORIGINS = {"shipped": "kimi-tui's own", "user": "yours", "folder": "this folder's"}


async def agents(main: MainParts, argument: str) -> None:
    """List the sub-agents of the session and the kinds; with the name of one, show it in place of the chat."""
    soul = await main.conversation.opened()
    name = argument.strip()
    if name and name != _ALLOW:
        one = main.subagents.state(name)
        if one is None:
            main.bench.tell(
                f'"{one_line(name)[:40]}" is not a sub-agent of this session. /agents lists them.',
                level="warning",
            )
        else:
            await open_agent(main, name)
        return
    kinds = await asyncio.to_thread(_kinds, soul)
    if name == _ALLOW:
        await _allow_kinds(main, soul, kinds)
        return
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    async def items() -> Sequence[ListedItem]:
        return _items(main, kinds)

    wants = await main.bench.ask(
        ListScreen(
            "Sub-agents",
            items,
            first=_items(main, kinds),
            empty="There are no sub-agents and no sub-agent types.",
        )
    )
    if wants == _ALLOW:
        await _allow_kinds(main, soul, kinds)
    elif wants:
        await open_agent(main, wants.removeprefix(_OPEN))


def _kinds(soul: KimiSoul) -> Sequence[AgentKind]:
    """Return the kinds of sub-agents of a session. It reads files."""
    from kimi_tui.tools.agent_kind import SHIPPED

    return soul.kinds.found() if soul.kinds is not None else SHIPPED


def _items(main: MainParts, kinds: Sequence[AgentKind]) -> Sequence[ListedItem]:
    """Return the sub-agents, the newest first, and the kinds."""
    currency = main.subagents.currency
    running = [_agent_item(one, currency) for one in reversed(main.subagents.states)]
    return [*running, *map(_kind_item, kinds)]


def _agent_item(one: AgentChanged, currency: str) -> ListedItem:
    from kimi_tui.projection.subagents import (
        agent_model,
        agent_name,
        agent_news,
        agent_state_words,
        agent_title,
    )
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.formatting import counted, money, tokens
    from kimi_tui.tui.pick_list import Entry

    state = agent_state_words(one) if one.state != "done" else "done"
    facts = [state]
    if one.step and one.state != "working":
        facts.append(counted(one.step, "step"))
    if one.tokens:
        facts.append(f"{tokens(one.tokens)} tokens")
    if one.cost > 0:
        facts.append(money(one.cost, currency))
    about = [agent_title(one), " · ".join(filter(None, (*facts, agent_model(one))))]
    about += [news] if (news := agent_news(one)) else []
    return ListedItem(
        Entry(agent_name(one), f"{state} · {agent_title(one)}", group="In this session"),
        "\n".join(about),
        "open",
        result=f"{_OPEN}{one.name}",
    )


def _kind_item(kind: AgentKind) -> ListedItem:
    from kimi_tui.app_paths import short
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    about = [kind.description] if kind.description else []
    if kind.path is not None:
        about.append(short(kind.path))
    tools = "all tools that a sub-agent may use" if kind.tools is None else ", ".join(kind.tools)
    about.append(f"Tools: {tools or 'none'}.")
    if kind.model or kind.effort:
        effort = f", reasoning effort {kind.effort}" if kind.effort else ""
        about.append(f"Model: {kind.model or 'the model of the session'}{effort}.")
    if kind.state == "not allowed":
        about.append("It comes with this folder. The agent cannot use it until you allow it.")
    if kind.why:
        about.append(one_line(kind.why))
    needs_yes = kind.state == "not allowed"
    words = {"usable": _ORIGINS[kind.origin], "not allowed": "not allowed", "broken": "not usable"}
    return ListedItem(
        Entry(
            kind.name,
            " · ".join(filter(None, (words[kind.state], kind.description))),
            group="Sub-agent types",
        ),
        "\n".join(about),
        "review and allow" if needs_yes else "",
        None,
        result=_ALLOW if needs_yes else "",
    )


async def _allow_kinds(main: MainParts, soul: KimiSoul, kinds: Sequence[AgentKind]) -> None:
    """Show the folder's kinds that are not allowed yet, and allow them after a yes to the whole text."""
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    new = [one for one in kinds if one.state == "not allowed"]
    if not new or soul.kinds is None:
        main.bench.tell("This folder has no sub-agent types that need your approval.")
        return
    texts = [f"{one.name} ({one.path}): {one.description}\n\n{one.text}" for one in new]
    question = CustomCommandScreen(
        "agents",
        main.bench.transcript.work_dir,
        "\n\n\n".join(texts),
        intro="This folder defines sub-agent types (instructions for sub-agents). Allow exactly this text? If it changes, you are asked again.",
        yes="y let the agent use them",
    )
    if not await main.bench.ask(question):
        main.bench.tell("The sub-agent types of this folder were not allowed.")
        return
    await asyncio.to_thread(soul.kinds.allow, new)
    await soul.reload_kinds()
    count = counted(len(new), "sub-agent type")
    main.bench.tell(f"The agent may use {count} of this folder.")


# --- one sub-agent


async def open_agent(main: MainParts, name: str) -> None:
    """Show a sub-agent in place of the chat, with its own timeline."""
    main.viewer.leave()
    if not await main.subagents.open(name):
        main.bench.tell(f'"{one_line(name)[:40]}" is not a sub-agent of this session.')


async def act(main: MainParts, action: BesideAction) -> None:
    """Carry out a key of the sub-agent on view."""
    view = main.subagents.view
    if view is None:
        return
    if action == "message":
        await steer(main, view.key)
    elif action == "answer":
        main.bench.focus_question()
    elif action == "stop":
        await stop(main, view.key)
    else:
        main.beside.leave(back=True)


async def stop(main: MainParts, name: str) -> None:
    """Stop a sub-agent alone; the turn goes on with what it has found."""
    state = main.subagents.state(name)
    if state is None or not state.is_running:
        words = "is paused" if state is not None and not state.is_over else "has ended already"
        main.bench.tell(f"This sub-agent {words}.")
        return
    main.bench.tell(
        f"Stopping {one_line(name)}. The main agent gets what it found so far and continues.",
        in_turn=True,
    )
    await main.subagents.stop(name)


async def steer(main: MainParts, name: str, words: str = "") -> None:
    """Write a message to a sub-agent, which it reads before its next step."""
    from kimi_tui.projection.subagents import agent_name, agent_title
    from kimi_tui.soul.errors import SoulError
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    state, engine = main.subagents.state(name), await main.subagents.engine()
    if state is None or state.is_over:
        main.bench.tell("This sub-agent has ended, so it cannot get messages.")
        if words:
            main.bench.keep(words)
        return
    when = "when it continues" if state.state == "paused" else "before its next step"
    question = TextQuestion(
        title=f"Message to {agent_name(state)}",
        question=agent_title(state),
        consequence=f"Only this sub-agent gets your message, {when}.",
        text=words,
        placeholder="Type to steer this sub-agent",
        verb="send",
    )
    text = await main.bench.ask(TextDialog(question))
    if not text:
        return
    try:
        engine.steer(name, text)
    except SoulError:
        main.bench.tell(
            "This sub-agent ended before you sent the message. Your message was not sent; it is in the prompt."
        )
        main.bench.keep(text)
        return
    main.bench.tell(f"{agent_name(state)} will read your message {when}.")


async def rewind(main: MainParts, target: Target) -> None:
    """Preview a rewind of the sub-agent on view to one of its steps, and carry it out.

    Raises:
        KeyError: it has no such checkpoint; the text is for the user.
    """
    from dataclasses import replace

    from kimi_tui.projection.subagents import agent_name
    from kimi_tui.soul.errors import SoulError
    from kimi_tui.tui.preview.layout import REWIND
    from kimi_tui.tui.preview.screen import RewindScreen

    view, engine = main.subagents.view, await main.subagents.engine()
    state = main.subagents.state(view.key) if view is not None else None
    if view is None or state is None:
        return
    if main.conversation.running:
        main.bench.tell(
            "A sub-agent can be rewound once the turn has ended.",
            advice="x stops this sub-agent; Esc twice in the prompt stops the turn.",
            in_turn=True,
        )
        return
    try:
        found = await engine.preview(state.name, target)
    except SoulError as error:
        main.bench.tell(str(error), level="warning")
        return
    back = "The main conversation also goes back, to just before this sub-agent's result."
    question = RewindScreen(
        replace(found, label=f"{back} {found.label}".rstrip()),
        actions=(replace(REWIND, title="Rewind the sub-agent"),),
        title=f"Rewind {agent_name(state)} to #{target.id}",
        write=main.keystrokes.write_to_prompt,
        typed_at=main.keystrokes.written_at,
    )
    view.transcript.show_dropped(target.id)
    try:
        answer = await main.bench.ask_of_line(question)
    finally:
        view.transcript.show_dropped(None)
    if answer is None:
        return
    outcome = await engine.rewind(state.name, target, answer.files, answer.chosen)
    if answer.files == "only":
        main.bench.tell(files_said(outcome.files), advice=WAY_BACK)
        return
    main.beside.leave()
    back = f" {files_said(outcome.files)}" if answer.files != "keep" else ""
    main.bench.tell(
        f"Rewound {agent_name(state)} to #{target.id}; press Enter in the empty prompt to let it continue.{back}",
        advice=WAY_BACK,
    )
