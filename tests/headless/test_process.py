"""The installed command as a process: what it loads, slow and absent readers, and two at once."""

from __future__ import annotations

import os
import subprocess
import sys

from headless.conftest import Scripts
from support.chat_server import say

_LOADED = """
import sys
from kimi_tui.cli import main
code = main(["-p", "hi", "--output-format", "json", "--allow", "git push", "--max-steps", "5"])
names = [name for name in sys.modules if name.split(".")[0] == "textual" or name.startswith("kimi_tui.tui")]
print(code, names)
"""


def test_nothing_of_the_screen_is_loaded(scripts: Scripts) -> None:
    scripts.server.script(say("Hello."))
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_slow_reader_gets_all_and_one_that_goes_ends_it(scripts: Scripts) -> None:
    # More than a pipe holds.
    text = "\n".join(f"line {n}" for n in range(20_000))
    scripts.server.script(say(text), say(text))
    slow, gone = scripts.start("-p", "hi"), scripts.start("-p", "hi")
    assert gone.stdout is not None
    assert slow.stdout is not None
    assert gone.stdout.read(5) == b"line "
    gone.stdout.close()
    assert gone.wait(50) == 1
    # The other one has waited since then.
    assert slow.poll() is None
    out, err = slow.communicate(timeout=50)
    assert (slow.returncode, out.decode().rstrip("\n"), err) == (0, text, b"")
    assert gone.stderr is not None
    assert gone.stderr.read() == b""
    gone.stderr.close()


def test_output_that_cannot_be_written_is_said(scripts: Scripts) -> None:
    scripts.server.script(say("Hello."), say("Hello."))
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            run = scripts.start("-p", "hi", stdout=full)
            _, err = run.communicate(timeout=50)
        assert (run.returncode, b"standard output cannot be written" in err) == (1, True)
    closed = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m kimi_tui -p hi >&- <&-"],
        cwd=scripts.work,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, b"")
