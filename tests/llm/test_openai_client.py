from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi_tui.llm.openai_client import put_off

PACKAGE = "package_put_off"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text("from .one import ONE\nfrom .two import TWO\n")
    (folder / "one.py").write_text("ONE = 1\n")
    (folder / "two.py").write_text("TWO = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def test_a_package_runs_when_a_name_is_asked_of_it(package: Path) -> None:
    with put_off(PACKAGE, f"{PACKAGE}.absent"):
        from package_put_off.one import ONE  # pyright: ignore[reportMissingImports]
    assert ONE == 1
    assert f"{PACKAGE}.two" not in sys.modules
    module = sys.modules[PACKAGE]
    assert module.__file__ == str(package / "__init__.py")

    from package_put_off import TWO  # pyright: ignore[reportMissingImports]

    assert TWO == 2
    assert module.ONE == 1
    assert sys.modules[PACKAGE] is module
    with pytest.raises(AttributeError, match="has no attribute 'three'"):
        _ = module.three
    # Behind the context packages run at once.
    del sys.modules[PACKAGE], sys.modules[f"{PACKAGE}.two"]
    import package_put_off  # pyright: ignore[reportMissingImports]

    assert "TWO" in vars(package_put_off)


CLIENT = """
import sys
from kimi_tui.llm.openai_client import OpenAIClient
OpenAIClient("http://127.0.0.1:1/v1", "", read_s=1.0)
assert "openai.types.responses.response" not in sys.modules
from openai.types.responses import Response
assert Response.model_fields
"""


def test_the_client_is_made_without_shapes_that_nobody_asks_for() -> None:
    subprocess.run([sys.executable, "-c", CLIENT], check=True, timeout=30)
