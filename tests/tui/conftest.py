"""The event loop of the screen is never held up: a test fails where one callback of it takes too long."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from support import drawn, parsed_css
from support.pictures import Pictures
from support.watchdog import Watchdog, held_up

from kimi_tui import own_process

# Nobody feels the pauses of a test's app: the collector looks less often, which was a twentieth of the work of these tests.
own_process.THRESHOLDS = 400_000, 10, 10
parsed_css.remember()
parsed_css.style_what_is_asked_for()
drawn.wait_for_it()
drawn.ask_the_busy()
drawn.draw_what_is_looked_at()
drawn.count_changes()
Watchdog(held_up.append, with_garbage=False).install()


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watch, and draw every frame in `make test-all` and in a session so long that drawing it may take long."""
    held_up.clear()
    is_exhaustive = request.config.getoption("hypothesis_profile") == "exhaustive"
    with drawn.every_frame(is_exhaustive or "session" in request.fixturenames):
        yield
    if (screens := sys.modules.get("support.screens")) is not None:
        assert not (changed := screens.changed_key_times()), changed
    assert not held_up, "the event loop was held up:\n" + "\n".join(held_up)


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Iterator[Pictures]:
    """Compares a screen with what is stored."""
    failed = request.session.testsfailed
    pictures = Pictures(request.node)
    yield pictures
    if request.session.testsfailed == failed:
        pictures.end()
