"""Builds wheel and sdist, compares both with the files that git tracks, and tries the wheel in an empty environment.

`make dist` uses it and gets the files in dist/ if they pass all checks. Each check raises `SystemExit` with a sentence.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDIST = ("kimi_tui", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", ".gitignore")
"""The contents of a source distribution, besides the metadata that the backend writes."""
_BUILD_S = 600


def build(folder: Path, *, isolated: bool = True) -> tuple[Path, Path]:
    """Build into a folder; return wheel and sdist. Without `isolated` the backend of this environment is used."""
    options = [] if isolated else ["--no-isolation"]
    _run(sys.executable, "-m", "build", *options, "--outdir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def compare(wheel: Path, sdist: Path) -> None:
    """Raise `SystemExit` if a wheel or sdist lacks a tracked file of the program, or has another file."""
    tracked = _tracked("kimi_tui")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    _same("wheel", names, tracked)
    with tarfile.open(sdist) as archive:
        files = [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]
    _same("sdist", [name for name in files if name != "PKG-INFO"], _tracked(*SDIST))


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment below a folder, ask its version, and run the demo in a terminal."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.terminal import Terminal

    from kimi_tui.tui.main.demo_player import DEMO_QUESTION

    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel))
    program = folder / "venv" / "bin" / "kimi-tui"
    home = folder / "home"
    home.mkdir()
    said = subprocess.run(
        [program, "--version"], cwd=home, capture_output=True, text=True, check=False, timeout=60
    )
    version = wheel.name.split("-")[1]
    if said.stdout != f"kimi-tui {version}\n":
        raise SystemExit(f"--version says {said.stdout!r} and not {version}: {said.stderr}")
    env = {"HOME": str(home), "KIMI_TUI_HOME": str(home), "TMPDIR": str(home)}
    with Terminal([str(program), "--demo"], env=env, cwd=home) as terminal:
        terminal.wait_for(DEMO_QUESTION, timeout_s=60)
        terminal.key("ctrl+q")
        code = terminal.wait_exit(60)
    if code:
        raise SystemExit(f"The demo ends with exit code {code}.")


def _tracked(*paths: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        raise SystemExit(f"git lists no files here: {listed.stderr.decode().strip()}")
    return [name for name in listed.stdout.decode().split("\0") if name]


def _same(what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
    found, wanted = set(found), set(wanted)
    lines = [f"lacks {name}" for name in sorted(wanted - found)]
    lines += [f"has {name}, which git does not track" for name in sorted(found - wanted)]
    if lines:
        raise SystemExit("\n".join(f"The {what} {line}" for line in lines))


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")


def main() -> None:
    """Build, check, and put the files into dist/."""
    with tempfile.TemporaryDirectory(prefix="kimi-tui-dist-") as made:
        folder = Path(made)
        wheel, sdist = build(folder / "dist")
        print(f"built {wheel.name} and {sdist.name}")
        compare(wheel, sdist)
        print("both hold what git tracks, and nothing else")
        try_wheel(wheel, folder)
        print("the wheel works in an empty environment: --version, and the demo")
        (ROOT / "dist").mkdir(exist_ok=True)
        for path in (wheel, sdist):
            shutil.copy2(path, ROOT / "dist" / path.name)
            print(f"dist/{path.name}")


if __name__ == "__main__":
    main()
