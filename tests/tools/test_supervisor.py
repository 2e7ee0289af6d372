"""How the supervisor of a command is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kimi_tui.tools import supervisor


def test_its_start_loads_nothing_that_a_command_would_wait_for(tmp_path: Path) -> None:
    (tmp_path / "supervisor.py").write_text("raise SystemExit('the one of the work folder')")
    orders, reports = os.pipe(), os.pipe()
    told = supervisor.supervised(orders[0], reports[1], "mark", ["word"], ["/bin/true"])
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
    assert said[1] == str([str(orders[0]), str(reports[1]), "mark", "1", "word", "/bin/true"])
    assert told[0] == sys.executable
