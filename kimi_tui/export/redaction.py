"""Things that an export leaves out of every text: keys, the path of the home folder, the names of the user and of the machine."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections import Counter

from kimi_tui.tools.credentials import find_keys, redact_keys

_LEAST_NAME = 3
"""A shorter name is part of too many words."""
_COMMON = frozenset(
    {"root", "user", "admin", "home", "localhost", "host", "ubuntu", "debian", "dev", "test"}
)
"""Names that tell nothing about anybody."""


class Redactor:
    """Replaces what is private in texts, and counts it.

    Args:
        home: the path of the home folder; empty for none.
        names: placeholders by the names that they replace.

    Attributes:
        counts: how often each kind was replaced: `key`, `home folder`, `name`.
    """

    def __init__(self, home: str, names: dict[str, str]) -> None:
        self.counts: Counter[str] = Counter()
        self._home = home.rstrip("/")
        self._names = {
            name: placeholder
            for name, placeholder in names.items()
            if len(name) >= _LEAST_NAME and name.lower() not in _COMMON
        }
        words = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        self._words = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])") if words else None

    @classmethod
    def of_this_machine(cls) -> Redactor:
        """Return a redactor for the user who runs the program."""
        names = {socket.gethostname().partition(".")[0]: "host"}
        # The user of a container may have no name.
        with contextlib.suppress(KeyError, OSError):
            names[getpass.getuser()] = "user"
        return cls(os.path.expanduser("~"), names)

    def __call__(self, text: str) -> str:
        """Return the text without what is private."""
        keys = find_keys(text)
        if keys:
            self.counts["key"] += len(keys)
            text = redact_keys(text, keys)
        if self._home and self._home in text:
            self.counts["home folder"] += text.count(self._home)
            text = text.replace(self._home, "~")
        if self._words is not None:
            text, found = self._words.subn(lambda found: self._names[found[0]], text)
            self.counts["name"] += found
        return text

    @property
    def words(self) -> str:
        """The replaced parts, in words: `2 keys, 14 paths of the home folder`; empty if nothing was."""
        kinds = {
            "key": ("possible key", "possible keys"),
            "home folder": ("path of the home folder", "paths of the home folder"),
            "name": ("user or host name", "user or host names"),
        }
        return ", ".join(
            f"{count:,} {kinds[kind][count != 1]}" for kind in kinds if (count := self.counts[kind])
        )
