"""Slow and absent readers of the output, and what the installed command loads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from headless.conftest import Scripts
from support.chat_server import delta, say, stream

from kimi_tui.soul import assembly
from kimi_tui.tools.sandbox.policy import NoSandbox

_LOADED = """
import sys
from kimi_tui.cli import main
code = main(["-p", "hi", "-o", "out.txt", "--output-format", "json", "--allow", "git push", "--max-steps", "5"])
names = [name for name in sys.modules if name.split(".")[0] == "textual" or name.startswith("kimi_tui.tui")]
print(code, names, file=sys.stderr)
"""
# More than a pipe holds.
LONG = "\n".join(f"line {n}" for n in range(20_000))


def test_with_closed_streams_it_runs_and_loads_nothing_of_the_screen(scripts: Scripts) -> None:
    scripts.server.script(say("Hello."))
    (scripts.work / "run.py").write_text(_LOADED)
    ran = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} run.py >&- <&-"],
        cwd=scripts.work,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "0 []\n")
    assert (scripts.work / "out.txt").read_text() == "Hello.\n"


def test_a_slow_reader_is_waited_for(scripts: Scripts) -> None:
    scripts.server.script(stream(delta(content=LONG)))
    reader, writer = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        with open(reader, "rb", 0) as out:
            while piece := out.read(4096):
                got.append(piece)

    slow = threading.Thread(target=read)
    slow.start()
    ran = scripts.run("-p", "hi", stdout=writer)
    slow.join(30)
    assert (ran.code, ran.err) == (0, "")
    assert b"".join(got).decode() == f"{LONG}\n"


@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_a_reader_that_goes_away_ends_it(scripts: Scripts, form: str) -> None:
    scripts.server.script(stream(delta(content=LONG)))
    reader, writer = os.pipe()

    def read() -> None:
        os.read(reader, 5)
        os.close(reader)

    going = threading.Thread(target=read)
    going.start()
    ran = scripts.run("-p", "hi", "--output-format", form, stdout=writer)
    going.join(30)
    assert ran.code == 1
    words = "kimi-tui: Standard output was closed, so the turn was stopped.\n"
    # The text is written when the turn has ended; nothing is said to somebody who has seen enough.
    assert (ran.err == "") if form == "text" else ran.err.startswith(words)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_said(scripts: Scripts) -> None:
    scripts.server.script(say("Hello."))
    ran = scripts.run("-p", "hi", stdout=os.open("/dev/full", os.O_WRONLY))
    assert ran.code == 1
    assert ran.err.startswith("kimi-tui: standard output cannot be written: No space left")


def test_a_turn_without_tools_does_not_wait_for_the_sandbox(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> object:
        tried.set()
        go_on.wait(30)
        raise NoSandbox("it was tried too late")

    scripts.config.unlink()
    monkeypatch.setattr(assembly, "find_sandbox", slow)
    scripts.server.script(say("Hello."))
    try:
        ran = scripts.run("-p", "hi")
        assert tried.is_set()
        assert not go_on.is_set()
    finally:
        go_on.set()
    assert (ran.code, ran.out, ran.err) == (0, "Hello.\n", "")
