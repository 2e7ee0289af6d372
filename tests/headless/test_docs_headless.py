"""The examples of docs/headless.md are run as they stand there, by a shell, with the program on the path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from headless.conftest import Scripts
from support.chat_server import call, say

import kimi_tui
from kimi_tui.cli import parse
from kimi_tui.launch import Options

PAGE = (Path(kimi_tui.__file__).parents[1] / "docs" / "headless.md").read_text("utf-8")
_PROGRAM = """#!{python}
import sys
from kimi_tui.soul import assembly
from kimi_tui.tools.sandbox.policy import NoSandbox

def none(*_):
    raise NoSandbox("user namespaces are refused")

assembly.find_sandbox = none
from kimi_tui.cli import main
sys.exit(main())
"""
"""The program on a machine without a sandbox, such as a runner of GitHub."""


def shell(scripts: Scripts, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example in the work folder, which is a repository."""
    program = scripts.home / "bin" / "kimi-tui"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", code],
        cwd=scripts.work,
        env={**os.environ, "PATH": path, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def repository(scripts: Scripts) -> None:
    code = """
    git init -q -b main . && git config user.name T && git config user.email t@example.com
    echo one > a.txt && git add . && git commit -qm one && git checkout -qb change
    echo two > a.txt && echo "Speak like a pirate." > AGENTS.md && git add .
    """
    subprocess.run(["bash", "-ec", code], cwd=scripts.work, check=True, capture_output=True)


def part(heading: str) -> str:
    """Return the text below a heading."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.exhaustive
def test_the_action_reviews_a_pull_request_without_a_sandbox(scripts: Scripts) -> None:
    repository(scripts)
    subprocess.run(["git", "commit", "-qm", "two"], cwd=scripts.work, check=True)
    found = re.search(
        r"run: \|\n(.*?)\n      - env:", part("A review of each pull request"), re.DOTALL
    )
    assert found is not None
    scripts.server.script(call("Shell", {"command": "touch x"}), say("a.txt:1 says two."))
    scripts.config.unlink()
    # The mode of the example refuses commands anywhere; without it the missing sandbox does.
    code = textwrap.dedent(found[1])
    ran = shell(scripts, code.replace("--mode ask ", ""), BASE="main")
    assert (ran.returncode, ran.stdout) == (0, "a.txt:1 says two.\n"), ran.stderr
    assert "user namespaces are refused" in ran.stderr.splitlines()[0]
    assert "--mode all" in ran.stderr.splitlines()[0]
    assert not (scripts.work / "x").exists()
    assert (scripts.work / "review.md").read_text() == "a.txt:1 says two.\n"
    assert "+two" in scripts.sent(0)
    assert "pirate" not in str(scripts.server.requests[0].messages[0])
    assert not scripts.sessions()


@pytest.mark.exhaustive
def test_the_hook_refuses_a_commit(scripts: Scripts) -> None:
    repository(scripts)
    found = re.search(r"```sh\n(.*?)```", part("Before each commit"), re.DOTALL)
    assert found is not None
    scripts.server.script(say('{"ok": false, "why": "a print is left"}'))
    ran = shell(scripts, found[1])
    assert (ran.returncode, ran.stderr) == (1, '{"ok": false, "why": "a print is left"}\n')
    assert "+two" in scripts.sent(0)


@pytest.mark.exhaustive
def test_the_loop_changes_each_file(scripts: Scripts) -> None:
    (scripts.work / "src").mkdir()
    for name in "ab":
        (scripts.work / "src" / f"{name}.py").write_text(f"def {name}(): pass\n")
        written = {"path": f"src/{name}.py", "content": f"def {name}():\n    'It.'\n"}
        read = call("ReadFile", {"path": f"src/{name}.py"})
        scripts.server.script(read, call("WriteFile", written), say("Done."))
    found = re.search(r"```sh\n(.*?)```", part("A loop over files"), re.DOTALL)
    assert found is not None
    ran = shell(scripts, found[1])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Done.\nDone.\n", "")
    assert "'It.'" in (scripts.work / "src" / "b.py").read_text()


def test_every_option_of_the_page_exists() -> None:
    options = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", PAGE)) - {"--cached", "--body-file"}
    from kimi_tui.cli import _parser

    known = {name for action in _parser()._actions for name in action.option_strings}
    assert options <= known
    assert isinstance(parse(["-p", "--output-format", "json", "count the TODOs"]), Options)
