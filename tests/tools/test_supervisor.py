"""How the supervisor of a command is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kimi_tui.tools import supervisor


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
    os._exit(supervisor.main(orders, reports, "mark", [], ["/bin/sh", "-c", "ls /proc/$PPID/fd 2>&1; exec 1>&-"]))
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
