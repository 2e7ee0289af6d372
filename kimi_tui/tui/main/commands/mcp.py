"""`/mcp`: the MCP servers of the session with their tools, to allow, start again and switch off; and their prompts as commands."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.app_paths import reason_of
from kimi_tui.display_names import counted
from kimi_tui.foreign_text import one_line, visible
from kimi_tui.tui.prompt.command import Command

if TYPE_CHECKING:
    from kimi_tui.mcp.servers import McpServers, PromptFacts, ServerRow, State
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.main.commands import MainParts

_NONE = "No MCP server is configured for this folder."
_HOW = "kimi-tui mcp add NAME -- COMMAND adds one; docs/mcp.md has the rest."
_VERBS = ("allow", "revoke", "restart", "login", "on", "off")
_ALLOW, _ALLOW_NETWORK, _LOGIN = "allow", "allow with network", "login"
_PROMPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_STATES: dict[State, str] = {
    "off": "off",
    "asks": "not allowed",
    "starting": "starting",
    "ready": "connected",
    "failed": "not running",
    "login": "needs a login",
}


async def mcp(main: MainParts, argument: str) -> None:
    """List the servers; with a verb and the name of one, act on it at once."""
    soul = await main.conversation.opened()
    servers = soul.servers
    if servers is None:
        main.bench.tell(_NONE, advice=_HOW)
        return
    verb, _, name = argument.partition(" ")
    name = name.strip()
    if not argument:
        await _list(main, servers)
        return
    known = {row.config.name for row in servers.rows}
    if verb in known and not name:
        await _one(main, servers, verb)
        return
    if verb not in _VERBS:
        main.bench.tell(
            f'"{one_line(argument)[:40]}" is neither an MCP server nor an argument of /mcp.',
            advice="/mcp lists the servers; /mcp allow, revoke, restart, login, on or off NAME acts on one.",
            level="warning",
        )
        return
    name, _, tool = name.partition("/")
    if name not in known:
        main.bench.tell(
            f'"{one_line(name)[:40]}" is not an MCP server. /mcp lists them.', level="warning"
        )
        return
    if verb == "allow":
        await _allow(main, servers, name, network=None)
    elif verb == "login":
        await _login(main, servers, name)
    elif verb == "restart":
        main.bench.tell(await _restarted(servers, name))
    elif verb == "revoke":
        main.bench.tell(await _revoked(servers, name))
    else:
        main.bench.tell(await _switched(servers, name, tool, on=verb == "on"))
    await learn_prompts(main, soul)


async def learn(main: MainParts) -> None:
    """Add the prompts of the servers to the commands, once the servers are there; their resources are offered behind an `@`."""
    soul = await main.conversation.opened(quietly=True)
    if (servers := soul.servers) is not None:
        main.bench.completion.resources = lambda: [
            (f"{one.server}:{one.uri}", one.name) for one in servers.resources
        ]
        await soul.servers.started()
        await learn_prompts(main, soul)


async def learn_prompts(main: MainParts, soul: KimiSoul) -> None:
    """Add the prompts that the servers have now to the commands."""
    if soul.servers is None:
        return
    main.bench.commands.add(
        Command(
            f"{one.server}:{one.name}",
            one.about or f"Prompt of the MCP server {one.server}",
            one.about or f"Send a prompt of the MCP server {one.server}.",
            partial(_send_prompt, one),
            argument=" ".join(f"{arg}" if needed else f"[{arg}]" for arg, needed in one.arguments),
        )
        for one in soul.servers.prompts
        if _PROMPT_NAME.fullmatch(one.name)
    )


async def _send_prompt(one: PromptFacts, main: MainParts, argument: str) -> None:
    """Show the text of a server's prompt, and send it after a yes: it comes from the server."""
    from kimi_tui.tools.outcome import ToolProblem
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    soul = await main.conversation.opened()
    assert soul.servers is not None
    try:
        text = await soul.servers.prompt_text(one.server, one.name, argument.split())
    except (ToolProblem, KeyError) as error:
        main.bench.tell(one_line(str(error)), level="warning")
        main.bench.keep(f"/{one.server}:{one.name} {argument}".rstrip())
        return
    question = CustomCommandScreen(
        f"{one.server}:{one.name}",
        f"the MCP server {one.server}",
        text,
        intro="This text comes from an MCP server. It goes to the agent:",
        yes="y send it",
    )
    if not await main.bench.ask(question):
        main.bench.tell(f"/{one.server}:{one.name} was not sent.")
        return
    main.conversation.say(text)


# -- the list


async def _list(main: MainParts, servers: McpServers) -> None:
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    async def items() -> Sequence[ListedItem]:
        return _servers(servers)

    problems = "\n".join(servers.problems)
    chosen = await main.bench.ask(
        ListScreen("MCP servers", items, first=_servers(servers), empty=problems or _NONE)
    )
    if chosen:
        await _one(main, servers, chosen)


def _servers(servers: McpServers) -> Sequence[ListedItem]:
    from kimi_tui.app_paths import short
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    items: list[ListedItem] = []
    for row in servers.rows:
        on = [one for one in row.tools if one.raw not in row.off]
        facts = _STATES[row.state]
        if row.tools:
            tokens = sum(one.tokens for one in on)
            what = "when the agent looks them up" if servers.is_lazy else "in every request"
            facts = f"{facts} · {counted(len(on), 'tool')}, {tokens:,} tokens {what}"
        items.append(
            ListedItem(
                Entry(
                    row.config.name,
                    facts,
                    holds=row.state == "ready",
                    shortly=_STATES[row.state],
                    group=short(row.config.path),
                ),
                _about(row),
                "open",
                result=row.config.name,
            )
        )
    return items


def _about(row: ServerRow) -> str:
    more = [
        counted(number, noun)
        for number, noun in ((row.n_prompts, "prompt"), (row.n_resources, "resource"))
        if number
    ]
    lines = [row.config.target]
    if row.place:
        lines.append(f"It runs {row.place}." if row.config.command else f"It is {row.place}.")
    if row.state == "ready":
        lines.append(f"Connected to {row.why}.")
    elif row.why:
        why = f"{row.why[:1].upper()}{row.why[1:].rstrip('.')}."
        lines.append(why)
    if more:
        lines.append(f"It has {' and '.join(more)}.")
    return "\n".join(lines)


async def _one(main: MainParts, servers: McpServers, name: str) -> None:
    """Show one server with its tools."""
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    async def items() -> Sequence[ListedItem]:
        return _parts(servers, name)

    chosen = await main.bench.ask(
        ListScreen(
            f"MCP server {name}",
            items,
            first=_parts(servers, name),
            empty="",
            about=_about(servers.named(name)),
        )
    )
    if chosen == _LOGIN:
        await _login(main, servers, name)
    if chosen in (_ALLOW, _ALLOW_NETWORK):
        await _allow(main, servers, name, network=chosen == _ALLOW_NETWORK)


def _parts(servers: McpServers, name: str) -> Sequence[ListedItem]:
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    row = servers.named(name)
    group = _STATES[row.state]
    if row.state == "asks" or row.is_withheld:
        offers = [
            ("Start it without the network", _ALLOW),
            ("Start it with the network", _ALLOW_NETWORK),
        ]
        if row.config.url:
            offers = [("Connect to it", _ALLOW)]
        if row.config.network is not None:
            offers = [("Start it", _ALLOW)]
        return [
            ListedItem(Entry(words, group=group), _about(row), "show what it runs", result=result)
            for words, result in offers
        ]
    is_off = row.state == "off"
    items: list[ListedItem] = []
    if row.config.url and not is_off:
        items.append(ListedItem(Entry("Log in", group=group), _about(row), "log in", result=_LOGIN))
    items.append(
        ListedItem(
            Entry("Start it" if is_off else "Start it again", group=group),
            _about(row),
            "start" if is_off else "restart",
            partial(_switched, servers, name, "", on=True)
            if is_off
            else partial(_restarted, servers, name),
        )
    )
    if not is_off:
        items.append(
            ListedItem(
                Entry("Turn it off", group=group),
                _about(row),
                "turn off",
                partial(_switched, servers, name, "", on=False),
            )
        )
    if row.config.origin == "project":
        items.append(
            ListedItem(
                Entry("Revoke the permission", group=group),
                f"You allowed this folder's MCP server. If you revoke that, it does not start.\n{_about(row)}",
                "revoke",
                partial(_revoked, servers, name),
            )
        )
    for one in row.tools:
        on = one.raw not in row.off
        items.append(
            ListedItem(
                Entry(
                    visible(one.raw)[:60],
                    f"{'on' if on else 'off'} · {one.tokens:,} tokens",
                    holds=on,
                    group="Tools",
                ),
                one.description or "It has no description.",
                "turn off" if on else "turn on",
                partial(_switched, servers, name, one.raw, on=not on),
            )
        )
    return items


async def _restarted(servers: McpServers, name: str) -> str:
    await servers.restart(name)
    return _state_words(servers, name)


async def _revoked(servers: McpServers, name: str) -> str:
    """Take back the permission of a project's server."""
    if servers.named(name).config.origin == "user":
        return f"{name} is your own server, which needs no permission. /mcp off {name} stops it."
    try:
        was_allowed = await servers.revoke(name)
    except OSError as error:
        return f"The permission could not be revoked: {reason_of(error)}."
    if not was_allowed:
        return f"You have not allowed the MCP server {name} in this folder."
    return f"The permission of the MCP server {name} was revoked. The server does not start until you allow it again."


async def _switched(servers: McpServers, name: str, tool: str, *, on: bool) -> str:
    try:
        await servers.switch(name, tool, on=on)
    except KeyError:
        return f"{name} has no tool {one_line(tool)[:60]}."
    except OSError as error:
        return f"The setting could not be saved: {reason_of(error)}."
    if tool:
        return f"{one_line(tool)[:60]} is {'on' if on else 'off'}, in this folder's later sessions too."
    return _state_words(servers, name)


def _state_words(servers: McpServers, name: str) -> str:
    row = servers.named(name)
    words = f"The MCP server {name} is {_STATES[row.state]}"
    if row.state == "ready":
        return f"{words}, with {counted(len(row.tools), 'tool')}."
    if row.state == "asks":
        return f"{words}. /mcp allow {name} shows what it runs."
    return f"{words}: {row.why.rstrip('.')}." if row.why else f"{words}."


async def _login(main: MainParts, servers: McpServers, name: str) -> None:
    """Log in at a server: the browser is opened, unless this is a remote shell, and the address at which it ends can be pasted."""
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion
    from kimi_tui.tui.screens import app_of

    addresses: list[str] = []
    dialogs: list[TextDialog] = []

    async def shown(url: str) -> None:
        addresses.append(url)
        if not os.environ.get("SSH_CONNECTION"):
            app_of(main.bench.screen).open_url(url)

    async def pasted() -> str | None:
        question = TextQuestion(
            f"Log in to {name}",
            'That is not the address of the page that the browser shows after the login, which contains "code=". Paste the whole address.'
            if dialogs
            else "Open this address in a browser and log in there.",
            "If the browser is on another machine, paste here the address of the page that it shows after the login, even if that page does not load.",
            placeholder="http://127.0.0.1:…/callback?code=…",
            quote=addresses[-1],
            verb="log in",
        )
        dialogs.append(TextDialog(question))
        return await main.bench.ask(dialogs[-1])

    main.bench.tell(f"Logging in to the MCP server {name}.")
    why = await servers.login(name, shown, pasted)
    for dialog in dialogs:
        if dialog.is_current:
            dialog.dismiss(None)
    if why:
        main.bench.tell(f"Could not log in to {name}: {why.rstrip('.')}.", level="warning")
    else:
        main.bench.tell(f"Logged in. {_state_words(servers, name)}")


async def _allow(main: MainParts, servers: McpServers, name: str, *, network: bool | None) -> None:
    """Show what a project's server runs, and start it after a yes to the whole text."""
    from kimi_tui.app_paths import short
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    row = servers.named(name)
    if row.config.origin == "user":
        main.bench.tell(f"{name} is your own server, which needs no permission.")
        return
    if row.state not in ("asks", "off") and not row.is_withheld:
        main.bench.tell(
            f"The MCP server {name} is allowed in this folder. /mcp off {name} stops it until you turn it on, and /mcp revoke {name} takes the permission back."
        )
        return
    if network is None or row.config.network is not None:
        network = bool(row.config.network)
    intro = "This folder has an MCP server: a program with tools for the agent. Yes allows it as shown below, with the tools that it has now; if either changes, you are asked again:"
    if row.config.url:
        intro = "This folder has a remote MCP server, with tools for the agent. Yes allows it as shown below, with the tools that it has now; if either changes, you are asked again:"
    question = CustomCommandScreen(
        "mcp",
        short(row.config.path),
        "\n".join(_described(row, network=network)),
        intro=intro,
        yes="y start it" if row.config.command else "y connect to it",
    )
    if not await main.bench.ask(question):
        main.bench.tell(f"The MCP server {name} was not started.")
        return
    try:
        await servers.allow(name, network=network)
    except OSError as error:
        main.bench.tell(f"The permission could not be saved: {reason_of(error)}.", level="warning")
        return
    main.bench.tell(_state_words(servers, name), advice=f"/mcp {name} shows its tools.")


def _described(row: ServerRow, *, network: bool) -> list[str]:
    """Return everything that a yes to a server covers."""
    config = row.config
    if config.url:
        lines = [f"Address: {config.url}"]
        lines += [f"Header: {key}: {value}" for key, value in config.headers]
    else:
        lines = [f"Command: {config.command}", *(f"Argument: {word}" for word in config.args)]
        if config.cwd:
            lines.append(f"Folder: {config.cwd}")
        lines += [f"Variable: {key}={value}" for key, value in config.env]
        lines += [f"May read: {path}" for path in config.readable]
        place = "in the sandbox" if config.sandbox else "OUTSIDE THE SANDBOX, with your permissions"
        lines.append(f"It runs {place}, {'WITH the network' if network else 'without network'}.")
    if config.variables:
        lines.append(f"It gets these variables of yours: {', '.join(config.variables)}.")
    if row.is_withheld:
        lines += ["", "Its tools have changed:"]
        lines += [f"- {one.raw}: {one.description}" for one in row.tools]
    return lines
