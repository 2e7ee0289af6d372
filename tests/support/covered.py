"""The sandbox that tests try, and what it does not show them: it has a `/tmp` of its own, so that neither this checkout nor a
home may lie there."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from kimi_tui.tools import prepared
from kimi_tui.tools.process import RunningCommand
from kimi_tui.tools.programs import find_program
from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox import sandbox as sandbox_module
from kimi_tui.tools.sandbox.policy import NoSandbox, Policy, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Confined, Sandbox, find_sandbox, trouble_with

_PATIENCE_S = 50.0
_PARTS = "from kimi_tui.tools.sandbox import confine; confine._unshare(False)"
WITHOUT = "KIMI_TUI_TESTS_WITHOUT"
"""The variable of the environment that says what a machine has not: `landlock`. What needs it is skipped then."""


def is_covered(path: Path) -> bool:
    """Return whether a place is below `/tmp`."""
    return path.resolve().is_relative_to("/tmp")


def has_landlock() -> bool:
    """Return whether there is Landlock. Where a Linux kernel has none the test fails, unless `WITHOUT` says that this machine has none:
    nobody shall take the sandbox for tried.
    """
    if sys.platform != "linux" or "landlock" in os.environ.get(WITHOUT, "").split(","):
        return False
    if confine.landlock_abi() < 1:
        pytest.fail(
            "This kernel has no Landlock, on which the sandbox rests: nothing can be tried."
            f" {WITHOUT}=landlock skips what needs it.",
            pytrace=False,
        )
    return True


def needs_landlock(abi: int = 1) -> None:
    """Skip the test, with the cause, where there is no Landlock or an older one; see `has_landlock` for where it fails.

    Args:
        abi: the oldest version of its interface that will do.
    """
    if not has_landlock():
        cause = f"{WITHOUT} says" if sys.platform == "linux" else "another system means"
        pytest.skip(f"{cause} that there is no Landlock: nothing was tried")
    if confine.landlock_abi() < abi:
        pytest.skip(f"the kernel's Landlock is older than {abi}: nothing was tried")


def whole_sandbox(place: Path) -> Sandbox:
    """Return the sandbox that commands use on this machine.

    The test is skipped, with the cause, where the machine has not the parts of one, and fails where it has no Landlock, as
    `needs_landlock` says; where it has all of them, and there is none that holds, the test fails: it would say nothing.

    Args:
        place: a path that must not be hidden by the sandbox.
    """
    if is_covered(place):
        pytest.skip(f"{place} lies below /tmp, which the sandbox covers: nothing was tried")
    if sys.platform == "linux":
        needs_landlock()
    found, trouble = _found(find_sandbox, trouble_with)
    if not found or trouble:
        _without(trouble, [sys.executable, "-c", _PARTS])
    return Sandbox(found.backend, found.settings, found.environ, found.program)


@contextmanager
def set_up_ahead() -> Iterator[None]:
    """Have each command of `command_of` begin in a process 1 that was set up before it, as the second one of an agent does."""
    _IS_AHEAD[0] = True
    yield
    _IS_AHEAD[0] = False
    prepared.end_ahead()


_IS_AHEAD = [False]


def command_of(confined: Confined, work_dir: Path, *, timeout_s: float = 50) -> RunningCommand:
    """Return a confined command, started like those of the agent, whose live output nobody reads."""
    if _IS_AHEAD[0]:
        prepared.end_ahead()
        prepared._current()._opened()
        prepared.set_up_ahead(confined.words, str(work_dir))
    return RunningCommand(
        confined.argv,
        work_dir=work_dir,
        environ=confined.environ,
        timeout_s=timeout_s,
        on_output=lambda text: None,
        confined_to=confined.words,
        ends_all=True,
    )


def bubblewrap(place: Path | None = None) -> Sandbox:
    """Bubblewrap, in the same way, but without Landlock: a machine that has none uses it."""
    if place is not None and is_covered(place):
        pytest.skip(f"{place} lies below /tmp, which the sandbox covers: nothing was tried")
    program = find_program("bwrap", os.environ)
    if not program:
        pytest.skip("bubblewrap is not installed here: nothing was tried in it")
    trouble = _trouble_with_bubblewrap(trouble_with, program)
    if trouble:
        _without(trouble, [program, "--ro-bind", "/", "/", "--unshare-all", "true"])
    return Sandbox("bwrap", SandboxSettings(), os.environ, program)


def search_sandbox(kind: str) -> Sandbox:
    """Return the sandbox of searches: by `landlock`, whose sandbox of commands is not tried for that, or by `bwrap`."""
    if sys.platform != "linux":
        pytest.skip("this is for Linux")
    if kind == "bwrap":
        return bubblewrap()
    needs_landlock()
    return Sandbox("full", SandboxSettings(), os.environ)


@functools.cache
def _found(
    find: Callable[..., Sandbox], trouble: Callable[[Sandbox], str]
) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine and what is wrong with it. It is tried once in a process, which takes as long as a test."""
    with _patience():
        try:
            found = find(SandboxSettings(), os.environ)
        except NoSandbox as no:
            return None, str(no)
        if sys.platform == "linux" and found.backend != "full":
            # Bubblewrap is tried only if it was asked for: otherwise it would hide a fault of our own sandbox.
            own = trouble(Sandbox("full", SandboxSettings(), os.environ))
            return found, own or "another one was found"
    return found, ""


@functools.cache
def _trouble_with_bubblewrap(trouble: Callable[[Sandbox], str], program: str) -> str:
    with _patience():
        return trouble(Sandbox("bwrap", SandboxSettings(), os.environ, program))


@contextmanager
def _patience() -> Iterator[None]:
    """Give the trial of a sandbox more time, since the machine may be shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox_module, "_TRIAL_S", _PATIENCE_S)
        yield


def _without(why: str, parts: list[str]) -> NoReturn:
    tried = subprocess.run(parts, stderr=subprocess.PIPE, text=True, check=False)
    if sys.platform == "linux" and tried.returncode == 0:
        pytest.fail(f"all that the sandbox is made of is there, and it does not hold: {why}")
    last = "".join(tried.stderr.strip().splitlines()[-1:])
    pytest.skip(f"no sandbox on this machine, nothing was tried: {why} ({last})")


def is_hidden(policy: Policy, path: str) -> bool:
    """Return whether the sandbox hides from a command the file at a path as the command names it."""
    return policy.hides(policy.real(path))
