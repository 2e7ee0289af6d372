"""What holds for every test."""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import HealthCheck, settings
from support import forks
from support.parallel import Parallel
from textual import _wait, constants

from kimi_tui.tools import programs

# Textual's pilot takes the program to be busy as long as it uses more than 5 % of a core. On a machine that is
# shared, waking up alone can cost that much: every key would wait for a second. What a test needs is waited for
# by a condition.
_wait.SLEEP_GRANULARITY = 1 / 200
_wait.SLEEP_IDLE = _wait.SLEEP_GRANULARITY / 4

# Nobody looks at the apps of tests: each picture that is not drawn is time saved. It is not set by the environment, which
# the programs that tests start would inherit.
constants.MAX_FPS = 5

# The folders of tests lie where all may write, and with them the programs that stand in for the machine's.
programs.TEMPORARY = ()

# A run in the background, or under nohup, was told to ignore these, and the programs that it starts would do so too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_break = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_break else signal.SIG_DFL)

# Nothing fails here because a machine is slow, nor by chance: the examples are the same in every run, and only
# `make test-all` looks for others. How many there are is said here and not at each property.
settings.register_profile(
    "usual",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=8,
)
usual = settings.get_profile("usual")
settings.register_profile("quick", usual, max_examples=8)
settings.register_profile("exhaustive", usual, derandomize=False, max_examples=500)
settings.load_profile("usual")

SLOW = (
    # The program in a terminal.
    "e2e/",
    # Whole screens with a model behind them.
    "tui/model_setup/",
    "tui/main/",
    "tui/replay/",
    "tui/compare/",
    "tui/preview/",
    "tui/test_world_line_view.py",
    # Processes that are killed, disks that fail at every call, machines of states.
    "session/test_rotation_kills.py",
    "session/test_store_odd_files.py",
    "session/test_rotation_power_cut.py",
    "session/test_session_state_machine.py",
    "projection/test_replay.py",
    "projection/test_time_travel_state_machine.py",
    "workspace/test_restore_nothing_lost.py",
    # Commands that are waited for, stopped and killed, and what they can reach.
    "tools/sandbox/test_escapes.py",
    "tools/sandbox/test_everyday.py",
    "tools/test_command_groups.py",
    "tools/test_jobs.py",
    "tools/test_shell.py",
    # Files of whole sessions, images of every kind.
    "soul/test_compatibility.py",
    "soul/test_file_history.py",
    "soul/test_images.py",
    # Servers that fail in every way, and every answer to every question.
    "soul/test_loop_model_faults.py",
    "tui/approval/test_approval.py",
    "tui/test_background.py",
    # Programs that run to tell what their callbacks do.
    "tui/test_callbacks.py",
    "tui/test_watchdog.py",
    # Command lines over stored sessions, and the demo's.
    "commands/test_sessions.py",
    "commands/test_time_travel.py",
    "demo/test_story.py",
    # Long texts, and everything's worst.
    "llm/test_hostile_text.py",
    "soul/test_history_",
    "soul/test_one_figure.py",
    "soul/test_rebuilt_history",
    "test_hostile_text.py",
    "test_hot_loops.py",
    "tui/test_patterns.py",
    "tui/transcript/test_viewport.py",
)
"""Folders and modules whose tests take long; with them everything that compares pictures."""
WHOLE = frozenset({"desk", "still_screen", "PROGRAM"})
"""What a module imports that starts the whole program, which is slow too."""
TOGETHER = {
    "tui/main/test_earlier_session.py": "long session",
    "tui/main/test_long_session.py": "long session",
    "tui/main/commands/test_time_travel.py": "what was told",
    "test_packages.py": "imports",
    "local_models/test_llama_cpp.py": "llama.cpp",
    "tools/sandbox/test_home.py": "a home of a thousand files",
    "tui/main/test_keystrokes.py": "a conversation",
    "tui/main/test_world_line_viewer.py": "four turns",
    "tui/test_keyboard.py": "a turn",
}
"""The files whose tests share what takes long to make, and what that is."""
WAITING = ("tests/e2e/", "tests/tools/", "tests/soul/test_loop_model_faults.py")
"""Tests that wait far longer than they work."""
N_WAITERS = 2
"""How many workers run these first: among those that work they take no core, all at once they would leave the cores idle."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests run in several processes, and the stored pictures of screens be written anew."""
    parser.addoption(
        "--snapshot-update", action="store_true", help="store pictures of screens as they are now"
    )
    # Small letters are pytest's own, and its plugins'; it is what pytest-xdist has called it.
    parser.getgroup("kimi-tui")._addoption(
        "-n",
        dest="n_workers",
        type=int,
        default=0,
        help="how many processes run the tests; 0: this one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Look once at the end, not five times, for what nobody holds and what complains when it goes: PyPy needs the five."""
    config.stash[gc_collect_iterations_key] = 1
    # What is collected here stays until the end.
    gc.disable()
    if n_workers := config.getoption("n_workers"):
        parallel = Parallel(
            config,
            n_workers,
            unit_of=_unit_of,
            comes_first=lambda number, unit: unit.startswith(WAITING) is (number < N_WAITERS),
            # It takes as long as few workers take for what they need of it.
            warm_up=forks.import_all if n_workers > 2 else bool,
        )
        config.pluginmanager.register(parallel, "parallel")


def _unit_of(nodeid: str) -> str:
    """A test's own, but where what is made once for a process takes seconds."""
    return TOGETHER.get(nodeid.partition("::")[0].rpartition("tests/")[2], nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long, and begin with it: at the end of a run no worker waits for a last long one."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here).as_posix()
        is_slow = path.startswith(SLOW) or path.endswith("pictures.py")
        is_slow |= isinstance(item, pytest.Function) and not WHOLE.isdisjoint(vars(item.module))
        if is_slow or "picture" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Spare every later collection of garbage what stays until the end: the tests themselves, and what little their collection left."""
    gc.freeze()
    gc.enable()
    # And let what few tests leave be looked for less often than Python does: without a pause that anybody would feel.
    gc.set_threshold(5_000, 10, 10)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on this machine are waited for as those elsewhere are."""
    monkeypatch.setattr("kimi_tui.llm.waiting.is_near", lambda host: False)
