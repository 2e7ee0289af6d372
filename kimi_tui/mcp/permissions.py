"""Permissions that the person gave to MCP servers, in one file of the data folder: which of a project's servers may start, with
which tools, and the tools that are switched off.

A project's server starts only after a yes for exactly this folder, command, arguments, variables and address. The yes is
noted with a digest of the tools that the server then described. Other tools need another yes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.app_paths import data_dir, make_private
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.mcp.config import ServerConfig

_NAME = "mcp_permissions.json"
_MOST_YESES = 500
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Yes:
    """A yes to a project's server.

    Attributes:
        network: whether it may use the network.
        tools: the digest of the tools that it described; empty as long as it has not.
    """

    network: bool = False
    tools: str = ""


class Permissions:
    """The stored permissions for the servers of one folder. Methods read and write a file, so call them in a thread.

    Args:
        work_dir: the folder.
        folder: the folder of the file; None for the data folder.
    """

    def __init__(self, work_dir: Path, folder: Path | None = None) -> None:
        self._work_dir = os.path.realpath(work_dir)
        self._folder = folder

    @property
    def _path(self) -> Path:
        return (self._folder or data_dir()) / _NAME

    def yes_to(self, server: ServerConfig) -> Yes | None:
        """Return the yes to a server as it is described now; None if there is none. The user's own servers need none."""
        if server.origin == "user":
            return Yes(network=server.has_network)
        found = lenient_json.mapping(self._read().get("allowed")).get(self.key_of(server))
        if not isinstance(found, dict):
            return None
        fields = lenient_json.mapping(found)
        return Yes(fields.get("network") is True, lenient_json.text(fields.get("tools")))

    def allow(self, server: ServerConfig, yes: Yes) -> None:
        """Note a yes to a server.

        Raises:
            OSError: it cannot be stored.
        """
        fields = {"name": server.name, "folder": self._work_dir}
        entry = {**fields, "network": yes.network, "tools": yes.tools}
        whole = self._read()
        allowed = lenient_json.mapping(whole.get("allowed"))
        allowed.pop(self.key_of(server), None)
        allowed[self.key_of(server)] = entry
        whole["allowed"] = dict(list(allowed.items())[-_MOST_YESES:])
        self._write(whole)

    def note_tools(self, server: ServerConfig, tools: str) -> None:
        """Note the tools to which the yes to a project's server belongs.

        Raises:
            OSError: it cannot be stored.
        """
        yes = self.yes_to(server)
        if server.origin == "project" and yes is not None and yes.tools != tools:
            self.allow(server, replace(yes, tools=tools))

    @property
    def allowed(self) -> tuple[str, ...]:
        """The names of the servers to which there is a yes in this folder, also to an earlier form of one, oldest first."""
        found = lenient_json.mapping(self._read().get("allowed")).values()
        entries = (lenient_json.mapping(one) for one in found)
        named = (one.get("name") for one in entries if one.get("folder") == self._work_dir)
        return tuple(dict.fromkeys(one for one in named if isinstance(one, str)))

    def revoke(self, name: str) -> bool:
        """Forget every yes in this folder to a server of this name; return whether there was one.

        Raises:
            OSError: it cannot be stored.
        """
        whole = self._read()
        allowed = lenient_json.mapping(whole.get("allowed"))
        wanted = {"name": name, "folder": self._work_dir}
        kept = {
            key: one
            for key, one in allowed.items()
            if not wanted.items() <= lenient_json.mapping(one).items()
        }
        if len(kept) == len(allowed):
            return False
        whole["allowed"] = kept
        self._write(whole)
        return True

    def switched_off(self, server: ServerConfig) -> frozenset[str]:
        """Return the names of a server's tools that are switched off; an empty name stands for all of them."""
        off = lenient_json.mapping(self._read().get("off"))
        found = lenient_json.listing(off.get(self._place_of(server)))
        return frozenset(one for one in found if isinstance(one, str))

    def switch_off(self, server: ServerConfig, names: Iterable[str]) -> None:
        """Set which tools of a server are switched off.

        Raises:
            OSError: it cannot be stored.
        """
        whole = self._read()
        off = lenient_json.mapping(whole.get("off"))
        off.pop(self._place_of(server), None)
        if listed := sorted(names):
            off[self._place_of(server)] = listed
        whole["off"] = off
        self._write(whole)

    def key_of(self, server: ServerConfig) -> str:
        """Return the digest of everything that decides what a server's program is, and where it is started."""
        said = {
            "folder": self._work_dir,
            "name": server.name,
            "command": [server.command, *server.args],
            "cwd": server.cwd,
            "env": sorted(server.env),
            "url": [server.transport, server.url],
            "headers": sorted(server.headers),
            "token": server.token_variable,
            "readable": sorted(server.readable),
            "sandbox": server.sandbox,
            "network": server.network,
        }
        return hashlib.sha256(_json(said)).hexdigest()

    @staticmethod
    def _place_of(server: ServerConfig) -> str:
        return f"{server.name} {server.path}"

    def _read(self) -> dict[str, Any]:
        try:
            found: object = lenient_json.parse(read_regular(self._path, _MAX_BYTES))
        except (OSError, ValueError):
            return {}
        return lenient_json.mapping(found)

    def _write(self, whole: Mapping[str, object]) -> None:
        make_private(self._path.parent)
        Storage().replace_file(self._path, json.dumps(whole, indent=1).encode(), shared=True)


def digest_of_tools(tools: Iterable[tuple[str, str, Mapping[str, Any]]]) -> str:
    """Return a digest of tools: of their names, descriptions and schemas, whatever their order."""
    return hashlib.sha256(
        _json(sorted(([*one] for one in tools), key=lambda one: str(one[0])))
    ).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode("utf-8", "replace")
