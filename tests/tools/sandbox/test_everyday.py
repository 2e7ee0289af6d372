"""Commands that users let an agent run all day work in the sandbox, unless they need the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.covered import command_of

from kimi_tui.tools.sandbox.policy import refused
from kimi_tui.tools.sandbox.sandbox import Sandbox

HERE = Path(__file__).parent
MOST_ASKING = 5
NO_CARGO = "rustup could not choose a version"
RUN = """
N=0
while IFS= read -r line; do
    case $line in "#"*) continue;; esac
    N=$((N + 1))
    set -- $line
    echo "== $N"
    type -P -- "$1" > /dev/null || case $1 in [A-Za-z]*=*|[\\(]*|time) ;; *) echo "[absent]"; continue;; esac
    ( eval "$line" ) 2>&1 < /dev/null || echo "[failed: $?]"
done < "$1"
"""
PROJECT = {
    "README.md": "A project\nmain\n",
    "src/app.py": 'def main():\n    print("hello")\n\n\nif __name__ == "__main__":\n    main()\n',
    "tests/test_app.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n",
    "package.json": '{"name": "p", "version": "1.0.0", "scripts": {"build": "node -v", "test": "node -v"}}\n',
    "Makefile": "all:\n\t@echo made > made.txt\n",
    "hello.c": "int main(void) { return 0; }\n",
    "go.mod": "module p\n\ngo 1.21\n",
    "main.go": "package main\n\nfunc main() {}\n",
    "rust/Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n',
    "rust/src/main.rs": "fn main() {}\n",
    ".gitignore": "venv/\ntarget/\n__pycache__/\nmade.txt\nx.db\nhello\neveryday.log\n",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A small project."""
    work = tmp_path / "work"
    for name, text in PROJECT.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    for words in (
        *("init -q -b main", "config user.name a", "config user.email a@b"),
        *("add -A", "commit -q -m First"),
    ):
        subprocess.run(["git", *words.split()], cwd=work, check=True)
    return work


# They take as long as everything else that is tried in a sandbox together, and what they need is the same in both.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "sandbox", ["own", pytest.param("bwrap", marks=pytest.mark.exhaustive)], indirect=True
)
async def test_everyday_commands_do_not_ask(sandbox: Sandbox, work: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = Sandbox(sandbox.backend, sandbox.settings, {**os.environ, "PATH": path}, sandbox.program)
    shell = ["/bin/bash", "--noprofile", "--norc", "-c", f"{{ {RUN}\n}} > everyday.log 2>&1"]
    confined = here.confined([*shell, "bash", str(HERE / "everyday.sh")], work)
    command = command_of(confined, work, timeout_s=55)
    try:
        ended = await command.run()
    finally:
        here.remove_temporary()
    log = (work / "everyday.log").read_text(errors="replace")
    assert ended.ending == "exited", log[-2000:]
    lines = [line for line in (HERE / "everyday.sh").read_text().splitlines() if line[0] != "#"]
    said = {
        int(n): text for n, text in re.findall(r"^== (\d+)\n(.*?)(?=^== |\Z)", log, re.M | re.S)
    }
    assert len(said) == len(lines) >= 100
    # A rustup without a toolchain is a cargo that is not there.
    said = {n: "[absent]" if NO_CARGO in text else text for n, text in said.items()}
    failed = {
        lines[n - 1]: text
        for n, text in said.items()
        if re.search(r"^\[failed: \d+\]$", text, re.M)
    }
    assert len(failed) <= MOST_ASKING, "\n".join(
        f"{line}\n    {text[-300:]}" for line, text in failed.items()
    )
    # The answer names the cause.
    for line, text in failed.items():
        assert refused(text, confined.policy) == ["the network"], line
    assert sum("[absent]" in text for text in said.values()) < len(lines) / 2
