"""How much work something is, counted and not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def n_calls(work: Callable[[], object]) -> int:
    """How many functions, ours and built-in ones, are called while `work` runs."""
    n = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return n


def n_steps(work: Callable[[], object]) -> int:
    """How many lines of Python are gone through and built-in functions called while `work` runs: also of loops that call nothing."""
    n = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal n
        n += event == "line"
        return line

    sys.settrace(line)
    try:
        return n_calls(work) + n
    finally:
        sys.settrace(None)
