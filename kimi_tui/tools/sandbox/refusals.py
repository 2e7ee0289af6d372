"""What in the output of a failed command says that the sandbox, and nothing else, was in its way."""

from __future__ import annotations

import re

from kimi_tui.tools.sandbox.policy import Policy

IN_THE_WAY = "The sandbox was in the way of"
"""So begins what is said of it in a result."""
_MOST = 3
_LONGEST_LINE = 2000
_REFUSED = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|Device or resource busy|"
    r"Invalid cross-device link|\b(?:EROFS|EACCES|EPERM|EBUSY|EXDEV)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"['\"‘`]([^'\"’`\n]+)['\"’`]")
_PATH = re.compile(r"(?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+-]+)*")
_NO_NETWORK = re.compile(
    r"Could not resolve|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"Couldn't connect|Failed to connect|Connection refused|No route to host|dns error|error sending request|"
    r"Failed to establish a new connection|getaddrinfo|Unknown host|Address family not supported|"
    r"\b(?:EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED)\b",
    re.IGNORECASE,
)


def refused(output: str, policy: Policy) -> list[str]:
    """What was refused, in words such as `writing /etc/hosts`, `reading ~/.ssh`, `the network`; each once.

    Args:
        output: of a command that failed.
        policy: that held for it.
    """
    found: list[str] = []
    for line in (line[:_LONGEST_LINE] for line in output.splitlines()):
        if not policy.network and _NO_NETWORK.search(line):
            found.append("the network")
        if match := _REFUSED.search(line):
            found += _of_line(line, match.start(), policy)
    return list(dict.fromkeys(found))[:_MOST]


def _of_line(line: str, at: int, policy: Policy) -> list[str]:
    """What a line with an error in it (at `at`) is about: what it quotes, else the path before the error, or after it."""
    paths = [*_QUOTED.findall(line), *reversed(_PATH.findall(line[:at])), *_PATH.findall(line[at:])]
    for path in paths:
        if "/" not in path and not path.startswith("."):
            continue
        if not policy.may_read(path):
            return [f"reading {path}"]
        if not policy.may_write(path):
            return [f"writing {path}"]
    return []
