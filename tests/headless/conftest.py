"""A folder in which `kimi-tui -p` runs: the command itself in this process, against a server on a socket."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from support.chat_server import ChatServerThread
from support.commands import Ran
from support.soul import said_in

from kimi_tui import own_process
from kimi_tui.cli import main
from kimi_tui.llm.dialects import learned_quirks


class Scripts:
    """Runs the command.

    Attributes:
        server: the model.
        work: the work folder.
        home: the program's folder, which is the home folder, too.
    """

    def __init__(self, folder: Path, server: ChatServerThread, capfd: pytest.CaptureFixture[str]):
        self.server = server
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        # Each trial of a sandbox is a process of its own, and few of these tests are about commands in it.
        self.config.write_text("[sandbox]\nenabled = false\n")
        self._capfd = capfd

    @property
    def config(self) -> Path:
        """Return the configuration file."""
        return self.home / "config.toml"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the command."""
        return {
            "HOME": str(self.home),
            "KIMI_TUI_HOME": str(self.home),
            "KIMI_BASE_URL": self.server.base_url,
            "KIMI_API_KEY": "sk-test-key",
            "KIMI_MODEL_NAME": "stand-in",
            "KIMI_MODEL_MAX_CONTEXT_SIZE": "200000",
            "KIMI_DIALECT": "generic",
        }

    def run(
        self, *arguments: str, stdin: bytes | int | None = None, stdout: int | None = None
    ) -> Ran:
        """Run the command in this process.

        Args:
            arguments: its arguments.
            stdin: what is piped in, or the descriptor of an open pipe; nothing without it.
            stdout: a descriptor for the output, which is closed at the end; without it the output is returned.
        """
        self._capfd.readouterr()
        with _standard_input(stdin), _standard_output(stdout):
            code = main(arguments)
        out, err = self._capfd.readouterr()
        assert "Traceback" not in err, err
        return Ran(code, out, err)

    def result(self, *arguments: str, stdin: bytes | None = None) -> dict[str, Any]:
        """Run the command with `--output-format json`; return the result."""
        ran = self.run("--output-format", "json", *arguments, stdin=stdin)
        found = json.loads(ran.out)
        assert found["exit_code"] == ran.code
        assert found["type"] == "result"
        return found

    def sent(self, number: int = -1) -> str:
        """Return the texts of the messages of a request, without the system prompt and markers."""
        return "\n\n".join(said_in(one) for one in self.server.requests[number].messages[1:])

    def sessions(self) -> Sequence[Path]:
        """Return the folders of the stored sessions."""
        return [path.parent for path in self.home.glob("sessions/*/*/context.jsonl")]


@contextmanager
def _standard_input(given: bytes | int | None) -> Iterator[None]:
    if given is None:
        yield
        return
    saved = os.dup(0)
    if isinstance(given, bytes):
        with TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            os.dup2(file.fileno(), 0)
    else:
        os.dup2(given, 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


@contextmanager
def _standard_output(given: int | None) -> Iterator[None]:
    if given is None:
        yield
        return
    saved = os.dup(1)
    os.dup2(given, 1)
    os.close(given)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


@pytest.fixture
def scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Scripts]:
    """A folder with a server."""
    learned_quirks.clear()
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    # It would keep this process from looking at itself for good.
    monkeypatch.setattr(own_process, "harden", lambda: None)
    with ChatServerThread() as server:
        found = Scripts(tmp_path, server, capfd)
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(found.work)
        yield found
