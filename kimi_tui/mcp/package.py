"""The package `mcp`, which is not installed with this program unless the extra `mcp` is: whether it is there, and the line that
installs it for the way in which this program was installed. The line is only shown, never run.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

REQUIREMENT = "mcp>=2.3,<3"
_LEAST = 2


class NoPackage(Exception):
    """The package is missing or too old. The text says so, and has the line that installs it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why} Install it with: {install_line()}")


def is_installed() -> bool:
    """Return whether the package is there, without importing it."""
    return importlib.util.find_spec("mcp") is not None


def check() -> None:
    """Check that the package is there in a version that can be used.

    Raises:
        NoPackage: it is not.
    """
    if not is_installed():
        raise NoPackage("MCP servers need the Python package mcp, which is not installed.")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("mcp")
    except PackageNotFoundError:
        raise NoPackage(
            "MCP servers need the Python package mcp, which is not installed."
        ) from None
    major = found.partition(".")[0]
    if not major.isdecimal() or int(major) != _LEAST:
        raise NoPackage(f"MCP servers need version 2 of the Python package mcp, not {found}.")


def install_line(
    prefix: str = sys.prefix,
    environ: Mapping[str, str] = os.environ,
    requirement: str = REQUIREMENT,
) -> str:
    """Return the command line that installs a package beside this program.

    Args:
        prefix: the folder of the Python environment in which this program runs.
        environ: the environment variables, which may name pipx's and uv's folders.
        requirement: the package with its versions.
    """
    place = Path(prefix)
    if (place / "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(place.name)} {shlex.quote(requirement)}"
    if (place / "uv-receipt.toml").exists():
        return f"uv tool install --with {shlex.quote(requirement)} kimi-tui"
    python = sys.executable or str(place / "bin" / "python")
    if _is_of_uv(place) and not (place / "bin" / "pip").exists():
        return f"uv pip install --python {shlex.quote(python)} {shlex.quote(requirement)}"
    return f"{shlex.quote(python)} -m pip install {shlex.quote(requirement)}"


def _is_of_uv(place: Path) -> bool:
    """Return whether uv made the environment, which has no pip then."""
    try:
        return any(
            line.startswith("uv =") for line in (place / "pyvenv.cfg").read_text().splitlines()
        )
    except OSError:
        return False
