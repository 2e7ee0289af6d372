"""Settings and fixtures for all tests."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import HealthCheck, settings
from support import forks
from support.cpu_time import CpuTime
from support.parallel import Parallel
from textual import _wait, constants

from kimi_tui.tools import programs

# Textual's pilot regards the program as busy while it uses more than 5 % of a core. On a shared machine the wake-ups alone
# can cost that much, and every key would wait for a second. Tests wait for conditions instead.
_wait.SLEEP_GRANULARITY = 1 / 200
_wait.SLEEP_IDLE = _wait.SLEEP_GRANULARITY / 4

# Nobody looks at the apps of tests, so fewer frames save time. The environment is not used for this, because the programs
# that tests start would inherit it.
constants.MAX_FPS = 5

# The folders of tests are below a folder that everybody may write to, and so are the programs that replace those of the machine.
programs.TEMPORARY = ()

# A run in the background, or under nohup, ignores these signals, and the programs that it starts would inherit that.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_break = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_break else signal.SIG_DFL)

# No test fails because the machine is slow, or by chance: the examples are the same in every run, and only `make test-all`
# looks for others. The number of examples is set here and not at each property.
settings.register_profile(
    "usual",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=5,
    stateful_step_count=30,
)
usual = settings.get_profile("usual")
settings.register_profile("quick", usual)
settings.register_profile(
    "exhaustive", usual, derandomize=False, max_examples=500, stateful_step_count=50
)
settings.load_profile("usual")

SLOW = (
    # These run the program in a terminal.
    "e2e/",
    # These run whole screens with a model behind them.
    "tui/model_setup/",
    "tui/main/",
    "tui/replay/",
    "tui/compare/",
    "tui/preview/",
    "tui/futures/test_dialog.py",
    "tui/transcript/test_copied_text.py",
    "tui/test_world_line_view.py",
    # These kill processes, have disks fail at every call, and run state machines.
    "session/test_rotation_kills.py",
    "session/test_store_odd_files.py",
    "session/test_rotation_power_cut.py",
    "session/test_session_state_machine.py",
    "projection/test_replay.py",
    "projection/test_time_travel_state_machine.py",
    "workspace/test_restore_nothing_lost.py",
    # These start, stop and kill commands, and test what commands can reach.
    "commands/test_bisect.py",
    "mcp/test_hostile.py",
    "soul/test_standing_yes.py",
    "tools/sandbox/test_escapes.py",
    "tools/sandbox/test_everyday.py",
    "tools/sandbox/test_home.py",
    "tools/sandbox/test_layers.py",
    "tools/sandbox/test_private_layers.py",
    "tools/sandbox/test_quiet_folders.py",
    "tools/test_command_groups.py",
    "tools/test_confined_search.py",
    "tools/test_jobs.py",
    "tools/test_past_command.py",
    "tools/test_shell.py",
    # These start the program, or the processes of futures; `soul/test_agents_in_copies.py` tests the same without a process.
    "futures/test_agents.py",
    "futures/test_own_agents.py",
    "futures/test_pruning.py",
    "futures/test_running.py",
    "futures/test_switching.py",
    "headless/test_process.py",
    # These use files of whole sessions, and images of every kind.
    "soul/test_compatibility.py",
    "soul/test_file_history.py",
    "soul/test_images.py",
    # These use servers that fail in every way, and every answer to every question.
    "soul/test_loop_model_faults.py",
    "tui/approval/test_approval.py",
    "tui/test_background.py",
    # These start programs that report on their callbacks.
    "tui/test_callbacks.py",
    "tui/test_watchdog.py",
    # These run command lines over stored sessions, and those of the demo.
    "commands/test_sessions.py",
    "commands/test_time_travel.py",
    "commands/test_to_git.py",
    "demo/test_story.py",
    "export/test_story.py",
    # These use long texts, the worst input of every part, and many operations at random.
    "llm/test_hostile_text.py",
    "soul/test_history_",
    "soul/test_listeners.py",
    "soul/test_one_figure.py",
    "soul/test_rebuilt_history",
    "test_hostile_text.py",
    "test_hot_loops.py",
    "tui/test_patterns.py",
    "tui/transcript/test_viewport.py",
)
"""Folders and modules whose tests take long, including all tests that compare pictures."""
WHOLE = frozenset({"desk", "still_screen", "PROGRAM"})
"""Names whose import shows that a module starts the whole program, which is slow too."""
TOGETHER = {
    "tui/main/test_earlier_session.py": "long session",
    "tui/main/test_long_session.py": "long session",
    "tui/main/commands/test_time_travel.py": "what was told",
    "test_docs.py": "syntax trees",
    "test_packages.py": "syntax trees",
    "tui/test_no_markup.py": "syntax trees",
    "tui/textual_patches/test_private_names.py": "syntax trees",
    "local_models/test_llama_cpp.py": "llama.cpp",
    "soul/test_compatibility.py": "a session in which everything was done",
    "tools/test_command_groups.py": "a repository with traps",
    # What one of these mounts ends the sandboxes that wait in the others, and stands in the table that they compare.
    "tools/sandbox/test_ahead.py": "mounts",
    "tools/sandbox/test_layers.py": "mounts",
    "tools/sandbox/test_quiet_folders.py": "mounts",
    "tools/sandbox/test_remembered.py": "mounts",
    "futures/test_faults.py": "mounts",
    "session/test_context_faults.py": "mounts",
    "tools/sandbox/test_home.py": "a home of a thousand files",
    "tui/main/test_keystrokes.py": "a conversation",
    "tui/main/test_world_line_viewer.py": "four turns",
    "tui/test_keyboard.py": "a turn",
}
"""The files whose tests share something that takes long to make, with its name."""
WAITING = ("tests/e2e/", "tests/tools/", "tests/soul/test_loop_model_faults.py")
"""Tests that wait far longer than they compute."""
N_WAITERS = 2
"""The number of workers that run these tests first: a few of them take no core from the others, but all at once would leave
the cores idle.
"""
COMPUTES = N_WAITERS
"""The index of the worker that runs the tests that are not slow first. They hardly wait, so it takes what the others leave of the
cores while they wait for frames and programs.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options to run tests in several processes, and to store pictures of screens again."""
    parser.addoption(
        "--snapshot-update", action="store_true", help="store pictures of screens as they are now"
    )
    # Small letters are reserved for pytest and its plugins; this is the name of the option in pytest-xdist.
    parser.getgroup("kimi-tui")._addoption(
        "-n",
        dest="n_workers",
        type=int,
        default=0,
        help="how many processes run the tests; 0: this one",
    )
    parser.addoption(
        "--cpu", action="store_true", help="print which tests take the most processor time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage once at the end to find unclosed resources, and not five times, which only PyPy needs."""
    config.stash[gc_collect_iterations_key] = 1
    # The collected tests stay until the end.
    gc.disable()
    config.pluginmanager.register(CpuTime(config), "cpu time")
    if n_workers := config.getoption("n_workers"):
        parallel = Parallel(
            config,
            n_workers,
            unit_of=_unit_of,
            kind_of=_kind_of,
            kinds_of=_kinds_of,
            # The imports take as long as a few workers take for the modules that they need.
            warm_up=forks.import_all if n_workers > 2 else bool,
        )
        config.pluginmanager.register(parallel, "parallel")


def _kind_of(unit: str) -> str:
    """Return what the tests of a unit do most of the time."""
    return "wait" if unit.startswith(WAITING) else "show" if unit in _slow_units else "compute"


def _kinds_of(number: int) -> tuple[str, ...]:
    """Return the kinds of units in the order in which a worker takes them, for its index."""
    if number < N_WAITERS:
        return "wait", "show", "compute"
    return ("compute", "show", "wait") if number == COMPUTES else ("show", "compute", "wait")


_slow_units: set[str] = set()
"""The units whose tests are marked as slow."""


def _unit_of(nodeid: str) -> str:
    """Return the unit of a test: the test itself, or all tests that share something which takes seconds to make."""
    return TOGETHER.get(nodeid.partition("::")[0].rpartition("tests/")[2], nodeid)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the slow modules of `make test-fast` before they are imported, which would take as long as a fifth of its tests."""
    if "not slow" not in config.getoption("markexpr"):
        return None
    path = collection_path.relative_to(Path(__file__).parent).as_posix()
    is_folder = collection_path.is_dir()
    return _is_slow(f"{path}/" if is_folder else path) or None


def _is_slow(path: str) -> bool:
    """Return whether all tests of a module or folder are slow, by its path below this folder."""
    return path.startswith(SLOW) or path.endswith("pictures.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests and run them first, so that no worker waits for a last long one at the end; apply `sample`."""
    cases: defaultdict[object, list[pytest.Item]] = defaultdict(list)
    for item in items:
        is_left_out = item.get_closest_marker("exhaustive") is not None
        if item.get_closest_marker("sample") is not None and not is_left_out:
            cases[item.nodeid.partition("[")[0]].append(item)
    for some in cases.values():
        mark = some[0].get_closest_marker("sample")
        assert mark is not None
        (n,) = mark.args or (1,)
        kept = {at * (len(some) - 1) // max(1, n - 1) for at in range(n)}
        for at, item in enumerate(some):
            if at not in kept:
                item.add_marker(pytest.mark.exhaustive)
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here).as_posix()
        is_slow = _is_slow(path)
        is_slow |= isinstance(item, pytest.Function) and not WHOLE.isdisjoint(vars(item.module))
        if is_slow or "picture" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            _slow_units.add(_unit_of(item.nodeid))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Freeze the tests and the other objects of the collection, which stay until the end, so that no garbage collection visits them."""
    gc.freeze()
    gc.enable()
    # Tests leave little garbage, so it is collected less often than by default, without a noticeable pause.
    gc.set_threshold(400_000, 10, 10)


@pytest.fixture(autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave the folder of this machine's sessions alone: tests wrote there, and each question for a program read all of it.

    A test makes the folder if it needs one. The fixture `monkeypatch` is not used: what a test replaces is put back before its
    folder is removed.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "KIMI_TUI_HOME" not in os.environ:
            folder = tmp_path_factory.getbasetemp() / f"data-{next(_numbers)}"
            patch.setenv("KIMI_TUI_HOME", str(folder))
        yield


_numbers = itertools.count()


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for servers on this machine as long as for others."""
    monkeypatch.setattr("kimi_tui.llm.waiting.is_near", lambda host: False)
