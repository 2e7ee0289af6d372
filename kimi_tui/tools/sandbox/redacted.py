"""Settings files without the credentials in them, as sandboxed commands see those of the home folder.

`git`, `npm`, `pip` and others keep common settings and credentials in one file. `without_credentials` leaves out the lines
with something like a key, a password or an address with a password. A file that is not written in lines (XML, JSON, code)
would break without some lines, so it is not shown at all if it has credentials.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_tui.tools.credentials import find_keys, is_key

MOST_BYTES = 1 << 18
"""Bytes. A larger file is not shown."""
_NOT_IN_LINES = (
    *(".xml", ".config", ".json", ".jsonc", ".json5", ".js", ".cjs", ".mjs", ".ts", ".lua", ".pkl"),
    *(".gradle", ".kts", ".clj", ".edn", ".sbt", ".el", ".jl", ".py", ".rb"),
)
_WORDS = (
    *("token", "passw", "passphrase", "secret", "apikey", "api_key", "api-key", "accesskey"),
    *(
        "access_key",
        "access-key",
        "private_key",
        "privatekey",
        "private-key",
        "_auth",
        "authorization",
    ),
    *("bearer", "cookie", "extraheader", "credential", "oauth", "proxy-user", "proxy_user", "_pwd"),
)
"""A line that has one of these words, followed by a value, is left out."""
_OF_REQUESTS = ("user", "header", "-u", "-h", "--user", "--header", "pass", "login")
"""Beginnings of lines in curl's settings that can contain a credential."""
_NO_PASSWORD = ("git", "hg", "")
"""Users of servers that authenticate with an ssh key."""
_LONG_WORD = re.compile(r"[\w+/=.~-]{20,1024}")
_SEPARATORS = "=: \t>(,"
_FEWEST_OF_ANACONDA = 8


def without_credentials(name: str, data: bytes) -> bytes | None:
    """Return the content of a settings file without the lines that hold credentials.

    Args:
        name: the name of the file, which shows its format.
        data: the content of the file.

    Returns:
        `data` itself if it has no credentials; None if it cannot be shown: it has one and is not written in lines, is longer
            than `MOST_BYTES`, is no text, or a credential may continue after its line.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if len(data) > MOST_BYTES or "\0" in text:
        return None
    left_out = _left_out(name.lower(), text)
    if not left_out:
        return data
    if name.lower().endswith(_NOT_IN_LINES):
        return None
    lines = text.split("\n")
    if any(_goes_on(lines[at]) for at in left_out):
        return None
    kept = "\n".join(line for at, line in enumerate(lines) if at not in left_out)
    return (kept + "\n" if kept and not kept.endswith("\n") else kept).encode()


def _left_out(name: str, text: str) -> set[int]:
    """Return the numbers of the lines with credentials, and of those that belong to them."""
    found: set[int] = set()
    for start, end in find_keys(text):
        first = text.count("\n", 0, start)
        found |= {*range(first, first + text.count("\n", start, end) + 1)}
    is_of_curl = "curlrc" in name
    lines = text.split("\n")
    is_section_out = is_continued = False
    deeper_than = -1
    for at, line in enumerate(lines):
        bare = line.strip()
        if bare.startswith("["):
            # Without its head, the rest of the section would belong to the section before it.
            is_section_out = at in found or _has_user(bare) or _has_anaconda_token(bare)
        depth = len(line) - len(line.lstrip())
        is_below = deeper_than >= 0 and (not bare or depth > deeper_than)
        holds = _holds(bare, is_of_curl) or (_names(bare) and _is_deeper(lines, at + 1, depth))
        if is_section_out or is_continued or is_below or at in found or holds:
            found.add(at)
            is_continued = bare.endswith("\\")
            if not is_below:
                deeper_than = depth
        else:
            deeper_than, is_continued = -1, False
    return found


def _holds(line: str, is_of_curl: bool) -> bool:
    """Return whether a line, without the space around it, sets a value with the name of a credential, or an address with a password."""
    if line.startswith("["):
        return False
    lower = line.lower()
    for word in _WORDS:
        _, found, behind = lower.partition(word)
        if found and _has_value(behind):
            return True
    if is_of_curl and lower.startswith(_OF_REQUESTS):
        return True
    return (
        _has_user(line) or _has_anaconda_token(line) or any(map(is_key, _LONG_WORD.findall(line)))
    )


def _names(line: str) -> bool:
    """Return whether a line ends with the name of a credential, so that its value may be in the lines below."""
    return line.endswith((":", "=")) and any(word in line.lower() for word in _WORDS)


def _is_deeper(lines: Sequence[str], at: int, depth: int) -> bool:
    """Return whether the next line with text, from a place on, is indented deeper."""
    behind = next((lines[n] for n in range(at, len(lines)) if lines[n].strip()), "")
    return len(behind) - len(behind.lstrip()) > depth


def _has_value(behind: str) -> bool:
    """Return whether the text after a word gives it a value: `_name = x`, `": "x"`."""
    name_end = next((at for at, char in enumerate(behind) if char in _SEPARATORS), -1)
    value = behind[name_end:].strip(_SEPARATORS) if name_end >= 0 else ""
    # An empty text in quotes is no value; three quotes begin one.
    return bool(value.strip("\"'")) or len(value) > len("''")


def _has_user(line: str) -> bool:
    """Return whether an address in a line names a user who may have a password."""
    for behind in line.split("://")[1:]:
        server = behind.split("/", 1)[0].split(None, 1)
        user, found, _ = server[0].rpartition("@") if server else ("", "", "")
        if found and user not in _NO_PASSWORD:
            return True
    return False


def _has_anaconda_token(line: str) -> bool:
    """Return whether an address has a token in its path, as those of Anaconda (`/t/TOKEN/channel`)."""
    return any(
        len(behind.split("/", 1)[0]) >= _FEWEST_OF_ANACONDA for behind in line.split("/t/")[1:]
    )


def _goes_on(line: str) -> bool:
    """Return whether the value that begins in a line may end in another line that is not indented: a text in three quotes, or an
    unclosed one.
    """
    return any(line.count(quotes) % 2 for quotes in ('"""', "'''"))
