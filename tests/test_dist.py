"""Wheel and sdist hold every file of the program that git tracks, and nothing else."""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="no git checkout: nothing says which files belong to the program",
)


@pytest.fixture
def check_dist() -> ModuleType:
    spec = spec_from_file_location("check_dist", ROOT / "scripts" / "check_dist.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.exhaustive
def test_what_is_built_is_complete(check_dist: ModuleType, tmp_path: Path) -> None:
    wheel, sdist = check_dist.build(tmp_path, isolated=False)
    check_dist.compare(wheel, sdist)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in ("css/app.tcss", "prompts/system.md", "prompts/lean/system.md", "demo/story.toml"):
        assert f"kimi_tui/{name}" in names
    assert not [name for name in names if name.startswith("tests")]
    # The wheel lacks one file, and has one that git does not track.
    odd = tmp_path / "odd.whl"
    with zipfile.ZipFile(odd, "w") as archive:
        for name in [*names[1:], "tests/conftest.py"]:
            archive.writestr(name, "")
    with pytest.raises(SystemExit) as refused:
        check_dist.compare(odd, sdist)
    assert str(refused.value).split("\n") == [
        f"The wheel lacks {names[0]}",
        "The wheel has tests/conftest.py, which git does not track",
    ]
