"""The rights of an ordinary user for tests that run as root, whom no mode of a file holds up."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

_CAPABILITIES_3 = 0x20080522
_PASS_OVER_MODES = 1 << 1 | 1 << 2
"""`CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`."""


@contextlib.contextmanager
def ordinary_rights() -> Iterator[None]:
    """Have this thread be held up by modes of files and folders within the context, whoever runs the tests."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    # Two times the effective, permitted and inheritable ones.
    held = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, held) == 0
    fewer = (ctypes.c_uint32 * 6)(*held)
    fewer[0] &= ~_PASS_OVER_MODES
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, held) == 0
