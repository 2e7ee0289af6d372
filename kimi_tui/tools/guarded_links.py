"""Links under guarded names: what they lead to is guarded as they are, whatever its own name is.

Where `.env` is a link to `conf/real.txt`, a tool that is given `conf/real.txt` meets no guarded name on the way. So the
links are looked for: at the top of the work folder, in the folders that are guarded themselves (hooks of git and its
submodules, settings of editors) and, as far as `_MOST_LOOKED_AT` names go, in the upper folders; in the home folder at its top
and in guarded folders there. What was found once, also by the sandbox, which looks further, counts as long as the
program runs: a command could remove the link.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from functools import cache
from itertools import islice
from typing import NamedTuple

from kimi_tui.workspace.protected_names import folded, runs_later, secrets

PASSED_OVER = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".nox"})
"""Folders of packages and of what was built: nothing is looked for in them."""
_STORES = frozenset({"objects", "refs", "logs", "lfs", "annex"})
_DEEPEST = 4
_MOST_LOOKED_AT = 2000
_MOST_AT_THE_TOP = 40_000
_MOST_KNOWN = 5000


class GuardedLink(NamedTuple):
    """A link: the names on the way to it from the folder that was looked through, and the real path that it leads to."""

    names: tuple[str, ...]
    real: str


_known: dict[str, dict[GuardedLink, None]] = {}


def links_in(folder: str, *, deepest: int = _DEEPEST) -> list[GuardedLink]:
    """The guarded links of a folder, and those that it was seen to have. Lists folders: for a thread.

    Args:
        folder: its real path.
        deepest: how many folders down; where it is 0, only guarded ones at the top are entered.
    """
    waiting = deque[tuple[tuple[str, ...], str, bool]]([((), folder, False)])
    n_looked_at = 0
    while waiting and n_looked_at < _MOST_LOOKED_AT:
        above, place, is_guarded = waiting.popleft()
        most = _MOST_LOOKED_AT - n_looked_at if above else _MOST_AT_THE_TOP
        in_git = any(folded(name) == ".git" for name in above)
        passed_over = _STORES if in_git else PASSED_OVER
        with contextlib.suppress(OSError), os.scandir(place) as listing:
            for item in islice(listing, most):
                n_looked_at += bool(above)
                names = (*above, item.name)
                if item.is_symlink():
                    if is_guarded or _may_guard(names):
                        remember(folder, item.path)
                elif item.name in passed_over or not item.is_dir(follow_symlinks=False):
                    continue
                elif is_guarded or _is_guarded(names, is_folder=True):
                    if len(above) < max(deepest, 1) + 2 * in_git:
                        waiting.appendleft((names, item.path, True))
                elif len(above) < deepest:
                    waiting.append((names, item.path, False))
    return known_links(folder)


def known_links(folder: str) -> list[GuardedLink]:
    """Those that a folder, by its real path, was seen to have."""
    return list(_known.get(folder, ()))


def remember(folder: str, link: str) -> str:
    """Note a guarded link below a folder; returns the real path that it leads to."""
    real = os.path.realpath(link)
    known = _known.setdefault(folder, {})
    if len(known) < _MOST_KNOWN:
        known[GuardedLink(tuple(os.path.relpath(link, folder).split("/")), real)] = None
    return real


def _is_guarded(names: tuple[str, ...], *, is_folder: bool = False) -> bool:
    """Whether a path, whose folders are not guarded, is in one of the lists."""
    path = "/".join(names)
    return any(rules.ends_in(path, is_folder=is_folder) for rules in (secrets(), runs_later()))


def _may_guard(names: tuple[str, ...]) -> bool:
    """Whether a link is guarded, or a path that goes through it may be."""
    return _is_guarded(names) or folded(names[-1]) in _ways()


@cache
def _ways() -> frozenset[str]:
    """Names of folders that a rule of several names goes through."""
    return frozenset(
        name
        for rules in (secrets(), runs_later())
        for same_end in rules.tails.values()
        for rule, _ in same_end
        for name in rule[:-1]
    )
