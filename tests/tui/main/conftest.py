"""Fixtures that several tests of the main screen use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.long_session import LongSession, long_session


@pytest.fixture(scope="session")
def session() -> Iterator[LongSession]:
    """The session of 200 checkpoints, made once; its work folder is only read."""
    with long_session() as made:
        yield made


@pytest.fixture(scope="session")
def short_session() -> Iterator[LongSession]:
    """The session without most of its turns, for `make test`."""
    with long_session(is_short=True) as made:
        yield made
