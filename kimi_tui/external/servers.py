"""The user's MCP servers for an external agent: those that it is told of when one of its sessions begins, and why others are not.

The agent starts them itself, outside of the sandbox, with all their tools. So a server is left out if the user had it run
only with limits that the agent would not keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from acp import schema

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.mcp.config import BadEntry, ServerConfig, check_encryption, check_url, configured
from kimi_tui.mcp.permissions import Permissions
from kimi_tui.mcp.process import program_path
from kimi_tui.tools.programs import is_planted

Server = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
_MOST_REASON = 160


class OfferedServers(NamedTuple):
    """The servers for an agent.

    Attributes:
        servers: as the agent is told of them.
        left_out: the names of the others, each with the reason as a clause.
    """

    servers: tuple[Server, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers that the agent is told of."""
        return tuple(one.name for one in self.servers)

    def left_out_words(self, title: str) -> str:
        """Return the sentence about the servers that are left out; empty if there are none.

        Args:
            title: the name of the agent in sentences.
        """
        reasons = [f"{name} ({why})" for name, why in self.left_out]
        what = "MCP server" if len(reasons) == 1 else "MCP servers"
        return f"{title} does not get your {what} {some_of(reasons, 4)}." if reasons else ""


class _NotHanded(Exception):
    """A server is left out; the text says why, as a clause."""


def offered_servers(
    work_dir: Path, environ: Mapping[str, str], *, http: bool, sse: bool
) -> OfferedServers:
    """Return the configured MCP servers that an agent is told of. It reads files, so call it in a thread.

    Args:
        work_dir: the work folder.
        environ: the environment of this program, for variables in entries.
        http: whether the agent connects to servers over streamable HTTP.
        sse: likewise for the older SSE.
    """
    permissions = Permissions(work_dir)
    servers: list[Server] = []
    left_out: list[tuple[str, str]] = []
    for config in configured(work_dir).servers:
        off = permissions.switched_off(config)
        if not config.enabled or "" in off or permissions.yes_to(config) is None:
            # It does not run for our own agent either, and /mcp says why.
            continue
        try:
            _check_limits(config, has_tools_off=bool(off))
            servers.append(_told(config, work_dir, environ, http=http, sse=sse))
        except (_NotHanded, BadEntry) as why:
            left_out.append((config.name, one_line(str(why))[:_MOST_REASON]))
    return OfferedServers(tuple(servers), tuple(left_out))


def _check_limits(config: ServerConfig, *, has_tools_off: bool) -> None:
    """Check that the user set no limits that only this program keeps.

    Raises:
        _NotHanded: there is one.
    """
    if config.origin == "project" and config.sandbox and config.transport == "stdio":
        raise _NotHanded("you allowed it in the sandbox only, and the agent has none")
    if config.network is False and config.transport == "stdio":
        raise _NotHanded("it must not use the network, and the agent would let it")
    if has_tools_off or config.enabled_tools or config.disabled_tools:
        raise _NotHanded("some of its tools are off, and the agent would use all")


def _told(
    config: ServerConfig, work_dir: Path, environ: Mapping[str, str], *, http: bool, sse: bool
) -> Server:
    """Return a server as the protocol describes it.

    Raises:
        _NotHanded, BadEntry: it cannot be described, or the agent cannot connect to it.
    """
    made, unset = config.replaced(environ)
    if unset:
        raise _NotHanded(f"the variable {some_of(list(unset), 3)} is not set")
    if made.transport != "stdio":
        check_url(made.url)
        check_encryption(made)
        headers = [schema.HttpHeader(name=name, value=value) for name, value in made.headers]
        if made.transport == "http":
            if not http:
                raise _NotHanded("the agent connects to no servers over HTTP")
            return schema.HttpMcpServer(type="http", name=made.name, url=made.url, headers=headers)
        if not sse:
            raise _NotHanded("the agent connects to no servers over SSE")
        return schema.SseMcpServer(type="sse", name=made.name, url=made.url, headers=headers)
    if made.cwd:
        raise _NotHanded("its entry sets cwd, which the Agent Client Protocol cannot pass on")
    program = program_path(made.command, environ, work_dir, work_dir)
    if is_planted(program, environ, work_dir):
        raise _NotHanded("its program is in a place where sandboxed commands can change it")
    return schema.McpServerStdio(
        name=made.name,
        command=program,
        args=list(made.args),
        env=[schema.EnvVariable(name=name, value=value) for name, value in made.env],
    )
