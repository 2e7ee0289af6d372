"""The start of a command's supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.covered import command_of, whole_sandbox

from kimi_tui.tools import prepared, process, supervisor


def test_its_start_loads_nothing_that_a_command_would_wait_for(tmp_path: Path) -> None:
    (tmp_path / "supervisor.py").write_text("raise SystemExit('the one of the work folder')")
    orders, reports = os.pipe(), os.pipe()
    told = supervisor.supervised(orders[0], reports[1], "mark", 77, ["/bin/true"])
    at = told.index("-c") + 1
    # Its folder last: `glob` is a module of the standard library and a tool of the same folder.
    ask = "loaded = [*sys.modules]; import glob, json; "
    ask += "print(json.dumps([loaded, supervisor.__cached__, glob.__file__]))"
    asking = told[at].replace("import supervisor", f"import supervisor; {ask}")
    asking = asking.replace("supervisor.begin", "print")
    for descriptor in (*orders, *reports):
        os.close(descriptor)
    said = subprocess.run(
        [*told[:at], asking, *told[at + 1 :]],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    modules, compiled, glob = json.loads(said[0])
    assert not {"signal", "ctypes", "typing", "collections", "kimi_tui", "site"} & {*modules}
    assert Path(compiled).parent.parent == Path(supervisor.__file__).parent
    assert not Path(glob).is_relative_to(Path(supervisor.__file__).parent)
    assert said[1] == str([str(orders[0]), str(reports[1]), "mark", "77", "/bin/true"])
    assert told[0] == sys.executable


WATCHES = """
import os, sys
sys.path.append(sys.argv[1])
import supervisor
import _ctypes
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(54321, 54321, 54321)
    os.setresuid(54321, 54321, 54321)
# Another user is nobody's to look at until it is a program anew.
supervisor._set(supervisor._PR_SET_DUMPABLE, 1)
(orders, order), (heard, reports) = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(order)
    os._exit(supervisor.main(orders, reports, "mark", [],
        [b"/bin/sh", b"-c", b"ls /proc/$PPID/fd 2>&1; exec 1>&-"], dict(os.environb)))
os.close(reports)
os.read(heard, 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the pipes of others")
def test_its_pipes_are_closed_to_what_it_watches_over() -> None:
    folder = str(Path(supervisor.__file__).parent)
    said = subprocess.run(
        [sys.executable, "-c", WATCHES, folder], capture_output=True, text=True, check=True
    )
    assert "Permission denied" in said.stdout, said


@pytest.mark.parametrize("n_busy", [0, 1, 2, 3])
async def test_a_command_that_cannot_be_confined_is_tried_again_with_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_busy: int
) -> None:
    """An obstacle at the first try may be gone by the next; where it stays, the command never runs."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "data"))
    sandbox = whole_sandbox(Path(__file__))
    (work := tmp_path / "work").mkdir()
    confined = sandbox.confined(["/bin/sh", "-c", "echo ran >> log; cat log"], work)
    tried: list[tuple[str, ...]] = []

    def start(command: prepared.SupervisedCommand, output: int) -> prepared.Started:
        tried.append(tuple(command.words))
        if len(tried) <= n_busy:
            command = replace(command, words=(*command.words, f"tmp:{tmp_path}/gone"))
        return prepared.start_supervisor(command, output)

    monkeypatch.setattr(process, "start_supervisor", start)
    try:
        if n_busy < process._TRIES:  # pyright: ignore[reportPrivateUsage]
            ended = await command_of(confined, work).run()
            assert (ended.exit_code, ended.output.text) == (0, "ran\n")
        else:
            with pytest.raises(FileNotFoundError, match="gone"):
                await command_of(confined, work).run()
            assert not (work / "log").exists()
    finally:
        sandbox.remove_temporary()
    assert tried == [tuple(confined.words)] * min(n_busy + 1, 3)
