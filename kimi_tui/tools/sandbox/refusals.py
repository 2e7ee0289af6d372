"""Finds in a command's output the paths of the home folder that it tried to read and that were missing in the sandbox.

An emptied home folder refuses nothing: what is missing is missing like any other file. So the paths in error messages are looked up
outside; and for a module that was not found, where the packages of the work folder say that it is.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kimi_tui.filesystem import read_regular
from kimi_tui.tools.sandbox.home import is_secret_place, setting_for
from kimi_tui.tools.sandbox.policy import Policy, paths_in_error

_MOST = 3
_MOST_LINES = 5000
_LONGEST_LINE = 2000
_MOST_LINKS = 200
_FILE_BYTES = 1 << 16
_MISSING = re.compile(
    r"No module named ['\"]?(\w+)|Cannot find (?:module|package) ['\"]([^'\"]{1,200})['\"]"
)
_EDITABLE = re.compile(r"['\"](\w+)['\"]: ['\"](/[^'\"\n]{1,1000})['\"]")
"""A line of setuptools for an editable install: the module, and its place."""
_ENVIRONMENTS = (".venv", "venv", "env")


class HiddenReads(NamedTuple):
    """The paths of the home folder that a command tried to read and could not.

    Attributes:
        paths: real paths, in the order of the output.
        secret: those of the paths that are known to hold credentials.
        setting: the line of the section `[sandbox]` that would show the others; empty if there are none.
    """

    paths: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    setting: str = ""


def hidden_reads(output: str, policy: Policy, environ: Mapping[str, str]) -> HiddenReads:
    """Find the paths that a command's output says it could not read, and that exist outside the sandbox. It looks at files,
    so call it in a thread.
    """
    if not policy.home.emptied:
        return HiddenReads()
    found: dict[str, None] = {}
    for line in (one[:_LONGEST_LINE] for one in output.splitlines()[-_MOST_LINES:]):
        if len(found) == _MOST:
            break
        for path in paths_in_error(line):
            real = policy.real(path)
            if policy.refuses_read(path, is_for_writing=False) and policy.home.hides(real):
                found[real] = None
                break
        if missing := _MISSING.search(line):
            for path in _places_of(missing[1] or missing[2], policy, environ):
                real = os.path.realpath(path)
                if policy.home.hides(real) and policy.hides(real) and os.path.exists(real):
                    found[real] = None
                    break
    paths = tuple(found)
    secret = tuple(path for path in paths if is_secret_place(path, environ))
    return HiddenReads(
        paths, secret, setting_for([path for path in paths if path not in secret], policy.home)
    )


def _places_of(module: str, policy: Policy, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the possible places of a module that a program did not find: those that the packages of the work folder name."""
    if "\0" in module or module.startswith("."):
        return
    yield os.path.join(
        policy.work, "node_modules", *module.split("/")[: 1 + module.startswith("@")]
    )
    environments = [os.path.join(policy.work, name) for name in _ENVIRONMENTS]
    for environment in dict.fromkeys([*environments, environ.get("VIRTUAL_ENV", "")]):
        if os.path.isabs(environment):
            for packages in _packages(environment):
                yield from _editable(packages, module)


def _packages(environment: str) -> Sequence[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(os.path.join(environment, "lib")):
            if name.startswith("python"):
                found.append(os.path.join(environment, "lib", name, "site-packages"))
    return found


def _editable(packages: str, module: str) -> Iterator[str]:
    """Yield the places of a module according to the files of editable installs."""
    try:
        names = [one for one in os.listdir(packages) if one.endswith((".pth", "_finder.py"))]
    except OSError:
        return
    for name in names[:_MOST_LINKS]:
        try:
            data = read_regular(Path(packages, name), _FILE_BYTES)
        except OSError:
            continue
        text = data.decode(errors="replace")
        if name.endswith(".py"):
            yield from (path for one, path in _EDITABLE.findall(text) if one == module)
            continue
        for line in text.splitlines():
            place = os.path.join(line.strip(), module)
            if os.path.isabs(line) and (os.path.exists(place) or os.path.exists(f"{place}.py")):
                yield line.strip()
