"""A key goes to its server alone: it stands in no file, on no screen, in no request's body and in no command's environment."""

from __future__ import annotations

import base64
import subprocess
from uuid import uuid4

import pytest
from support.chat_server import ChatServerThread, call, say
from support.program import PROGRAM, Program

LOOKING = """env; cat /proc/*/environ | tr '\\0' '\\n'; cat "$HOME/config.toml" ~/*/* .env 2>&1
    set; cat /proc/*/cmdline | tr '\\0' '\\n'; mount"""

CRASH = """
import sys
from kimi_tui import cli
from kimi_tui.tui.main.screen import MainScreen

opened = MainScreen._open_session

async def crashing(self):
    await opened(self)
    key = {key!r}
    raise RuntimeError("said by a server: Bearer " + key, {{"api_key": key}})

MainScreen._open_session = crashing
sys.exit(cli.main([]))
"""


def forms(key: str) -> list[bytes]:
    """Return the forms in which a key could be stored: plain, in hexadecimal digits, in base64 at any offset."""
    secret = key.removeprefix("sk-").encode()
    found = [secret, secret[::-1], secret.hex().encode(), secret.hex().upper().encode()]
    for n_before in range(3):
        # Without the characters that depend on what stands beside it.
        found.append(base64.b64encode(bytes(n_before) + secret)[4:-4])
    return found


def leaks(program: Program, key: str, *more: bytes) -> list[str]:
    """Return the places where a key is found, except for the file in which it was configured."""
    files = [*program.home.rglob("*"), *program.work.rglob("*")]
    texts = {str(path): path.read_bytes() for path in files if path.is_file()}
    del texts[str(program.home / "config.toml")]
    texts |= {f"said {at}": text for at, text in enumerate(more)}
    return [name for name, text in texts.items() if any(form in text for form in forms(key))]


@pytest.fixture(params=["file", "environment"])
def key(request: pytest.FixtureRequest, configured: Program, server: ChatServerThread) -> str:
    """The key that the program is given."""
    key = f"sk-{uuid4().hex}{uuid4().hex}"
    settings = configured.home / "config.toml"
    if request.param == "environment":
        configured.environment["KIMI_API_KEY"] = key
    else:
        configured.environment = {}
        settings.write_text(
            f'mode = "ask"\ndefault_model = "m"\n[providers.p]\ntype = "openai"\nbase_url = "{server.base_url}"\n'
            f'api_key = "{key}"\n[models.m]\nprovider = "p"\nmodel = "stand-in"\nmax_context_size = 100000\n'
        )
    settings.chmod(0o600)
    return key


@pytest.mark.sample
def test_no_key_is_left_of_a_session(
    configured: Program, server: ChatServerThread, key: str
) -> None:
    (configured.work / "notes").write_text("sk-somebody\n")
    server.script(
        call("Shell", {"command": LOOKING}),
        call("Grep", {"pattern": "sk-", "path": ".", "output_mode": "content"}),
        call("ReadFile", {"path": "notes"}),
        say("Nothing found."),
    )
    terminal = configured.start("--yolo")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Look for keys")
    terminal.key("enter")
    terminal.wait_for("Nothing found.")
    terminal.type("/export told.md")
    terminal.key("enter")
    terminal.wait_for("told.md")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert (configured.work / "told.md").exists()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(configured.home), **configured.environment}
    doctor = subprocess.run(
        [PROGRAM, "doctor"],
        env={**environ, "KIMI_TUI_HOME": str(configured.home)},
        cwd=configured.work,
        capture_output=True,
        timeout=50,
        check=False,
    )
    said = [doctor.stdout, doctor.stderr, terminal.raw]
    said += [request.body for request in server.requests]
    assert all(f"Bearer {key}" in request.headers["authorization"] for request in server.requests)
    assert leaks(configured, key, *said) == []


CRASH_WHILE_READING = """
import sys
from kimi_tui import cli
from kimi_tui.tui.terminal_input import KeyParser

feed = KeyParser.feed

def crashing(self, data):
    if "!" not in data:
        return feed(self, data)
    key = {key!r}
    raise RuntimeError("said by a server: Bearer " + key, {{"api_key": key}})

KeyParser.feed = crashing
sys.exit(cli.main([]))
"""


@pytest.mark.sample
@pytest.mark.parametrize("crash", [CRASH, CRASH_WHILE_READING])
def test_no_key_is_in_the_report_of_a_crash(configured: Program, key: str, crash: str) -> None:
    terminal = configured.start_python(crash.format(key=key))
    if crash is CRASH_WHILE_READING:
        # The app reads the keys from then on, and no longer the first page.
        terminal.wait_for("≡ at 75k")
        terminal.type("!")
    assert terminal.wait_exit() == 1
    assert b"Traceback" not in terminal.raw
    assert b"kimi-tui: crashed; " in terminal.raw
    log = configured.home / "logs" / "kimi-tui.log"
    assert "said by a server" in log.read_text()
    assert leaks(configured, key, terminal.raw) == []
