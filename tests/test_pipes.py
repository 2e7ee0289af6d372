from __future__ import annotations

import os
import resource

import pytest

from kimi_tui.pipes import pipes


def test_pipes_are_made_all_or_none_of_them_is_left_open() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sorted(os.listdir("/dev/fd"))
    # The next numbers of descriptors are those of two whole pipes and a half.
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(len(before) + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 6, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            pipes(3)
        made = pipes(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in held:
            os.close(one)
    for read, write in made:
        os.write(write, b"x")
        assert os.read(read, 9) == b"x"
        os.close(read)
        os.close(write)
    assert sorted(os.listdir("/dev/fd")) == before
