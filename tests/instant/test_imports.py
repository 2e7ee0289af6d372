"""Imports before the first frame: each module there delays it, so the list is short and held."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import os, sys
before = set(sys.modules)
from kimi_tui.cli import parse
from kimi_tui.launch import launch_of
launch = launch_of(parse([]))
from kimi_tui.instant.prompt import prompt_of
prompt = prompt_of(launch, {"TERM": "xterm-256color", "COLORFGBG": "15;0"})
assert "What shall we work on?" in prompt._changes()
print(*(set(sys.modules) - before))
"""
OURS = """
agent_parts app_paths base_url cli config config.checks config.file config.keymap
config.kimi_cli_guards config.model_choice config.settings display_names filesystem foreign_text
instant instant.inks instant.prompt instant.typed launch program tui tui.first_page tui.formatting
tui.frame_rows tui.glyphs tui.key_names tui.palette tui.rows tui.transcript
tui.transcript.start_page
"""
OTHERS = """
bisect contextlib copy copyreg enum errno fnmatch functools gc ipaddress itertools keyword ntpath
operator pathlib re reprlib rich select signal struct termios threading types typing unicodedata urllib
warnings weakref
"""
"""The packages that may be there, of the standard library and beside it; those of an underscore are parts of them."""
NEWER = {
    # The parts of `pathlib`, and `urllib.parse`.
    (3, 13): {"glob", "grp", "math", "pwd"},
    # The same, and what a `NamedTuple` with annotations needs.
    (3, 14): {"annotationlib", "ast", "fcntl", "io"},
}
"""The packages that the standard library itself imports there, by the version of Python that began with it."""


def test_the_first_frame_needs_few_modules(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "KIMI_TUI_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "KIMI_MODEL_NAME": "stand-in",
        "KIMI_API_KEY": "none",
        "KIMI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    said = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    ours, others = set[str](), set[str]()
    for name in said.stdout.split():
        package, _, rest = name.partition(".")
        if package == "kimi_tui":
            ours.add(rest)
        elif not package.startswith(("_", "encodings", "collections", "importlib")):
            others.add(package)
    assert ours - {""} - set(OURS.split()) == set()
    itself = {
        one for version, names in NEWER.items() if sys.version_info >= version for one in names
    }
    assert others - set(OTHERS.split()) - itself == set()
    rich = {name for name in said.stdout.split() if name.startswith("rich.")}
    assert all(name.startswith(("rich.cells", "rich._")) for name in rich)
