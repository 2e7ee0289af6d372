"""Tells how much processor time the tests take, so that one who adds tests sees the suite grow.

Unlike durations, processor time is nearly the same beside other workers, and a test that waits costs nothing.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

from support.forks import Forked

BUDGET_S = 350
"""The processor time, in seconds, that the tests of `make test` should not exceed on a slow machine: two cores do that, the types
and the rest of the checks in less than four minutes.
"""
N_SLOWEST = 20
_PROPERTY = "cpu_s"
_FORKED = "forked_cpu_s"


def _used_s() -> float:
    """Return the processor time of this process, of those that it started and waited for, and of programs in terminals, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + Forked.used_s


class CpuTime:
    """A plugin of pytest that measures the processor time of each test and sums it up at the end.

    The figure of a test includes the fixtures that it was the first to need. The sum includes the collection of the tests.

    Args:
        config: the configuration of pytest.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began_s = self._forked_before_s = 0.0
        self._used_s: dict[str, float] = {}
        self._forked_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Note the time at which a test begins."""
        self._began_s, self._forked_before_s = _used_s(), Forked.used_s
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the time to the last of a test's reports."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, _used_s() - self._began_s))
            report.user_properties.append((_FORKED, Forked.used_s - self._forked_before_s))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of a test."""
        told = dict(report.user_properties)
        if (used_s := told.get(_PROPERTY)) is not None:
            assert isinstance(used_s, float)
            self._used_s[report.nodeid] = used_s
            # Workers count programs in terminals, of which this process knows nothing else.
            self._forked_s += float(str(told[_FORKED]))

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the sum, and with `--cpu` also the sums of the folders and the tests that took most."""
        if len(self._used_s) < 2:
            return
        # The workers have ended.
        total_s = _used_s() - Forked.used_s + self._forked_s
        told = f"{total_s:.0f} s of processor time in {len(self._used_s)} tests"
        if total_s > BUDGET_S and self._config.getoption("markexpr") == "not exhaustive":
            told += f"; make test should take {BUDGET_S} (see CONTRIBUTING.md, and --cpu)"
        if not self._config.getoption("cpu"):
            terminalreporter.write_line(told)
            return
        terminalreporter.section("processor time")
        terminalreporter.write_line(told)
        folders: defaultdict[str, list[float]] = defaultdict(list)
        for nodeid, used_s in self._used_s.items():
            folders["/".join(nodeid.partition("::")[0].split("/")[1:3])].append(used_s)
        for name, times_s in sorted(folders.items(), key=lambda one: -sum(one[1])):
            terminalreporter.write_line(f"{sum(times_s):8.1f} s {len(times_s):5}  {name}")
        slowest = sorted(self._used_s.items(), key=lambda one: -one[1])[:N_SLOWEST]
        for nodeid, used_s in slowest:
            terminalreporter.write_line(f"{used_s:8.2f} s  {nodeid}")
