"""Tests of imports that are made later: when a module runs, what it is then, and that nothing is left of it."""

import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from kimi_tui.late_imports import called_later, deferred, left_out

OUTER = "package_outer"
PACKAGE = f"{OUTER}.deferred"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / OUTER / "deferred"
    folder.mkdir(parents=True)
    (tmp_path / OUTER / "__init__.py").touch()
    (folder / "__init__.py").write_text("from .one import ONE\nfrom .two import TWO\n")
    (folder / "one.py").write_text("ONE = 1\n")
    (folder / "two.py").write_text("TWO = 2\ndef twice(n, *, more=0): return 2 * n + more\n")
    (tmp_path / OUTER / "broken.py").write_text("import time\nraise OSError('as it is')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith(OUTER)]:
        del sys.modules[name]


def test_a_package_runs_when_a_name_is_asked_of_it(package: Path) -> None:
    finders = list(sys.meta_path)
    with deferred(PACKAGE, f"{OUTER}.absent"):
        one = import_module(f"{PACKAGE}.one")
        assert import_module(PACKAGE) is import_module(PACKAGE)
        with pytest.raises(ModuleNotFoundError):
            import_module(f"{OUTER}.absent")
    assert sys.meta_path == finders

    assert one.ONE == 1
    assert f"{PACKAGE}.two" not in sys.modules
    module = sys.modules[PACKAGE]
    assert sys.modules[OUTER].deferred is module
    assert module.__file__ == str(package / "__init__.py")
    assert not hasattr(module, "__all__")
    assert f"{PACKAGE}.two" not in sys.modules

    assert module.TWO == 2
    assert module.ONE == 1
    assert sys.modules[PACKAGE] is module
    with pytest.raises(AttributeError, match="has no attribute 'three'"):
        _ = module.three


def test_a_second_thread_waits_until_the_module_has_run(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, read = threading.Event(), threading.Event(), list[object]()
    gate = ModuleType("package_outer_gate")
    setattr(gate, "wait", lambda: (begun.set(), goes_on.wait(10)))  # noqa: B010 - it has no such name, to the type checker
    monkeypatch.setitem(sys.modules, gate.__name__, gate)
    (package / "__init__.py").write_text("")
    (package / "two.py").write_text("import package_outer_gate as gate\ngate.wait()\nTWO = 2\n")
    with deferred(f"{PACKAGE}.two"):
        two = import_module(f"{PACKAGE}.two")
    threads = [threading.Thread(target=lambda: read.append(two.TWO)) for _ in range(2)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    threads[1].join(0.1)
    assert threads[1].is_alive()  # it does not find the name missing
    goes_on.set()
    for thread in threads:
        thread.join(10)
    assert read == [2, 2]


def test_a_module_that_cannot_run_says_why(package: Path) -> None:
    with deferred(f"{OUTER}.broken"):
        broken = import_module(f"{OUTER}.broken")
    with pytest.raises(OSError, match="as it is"):
        _ = broken.name


def test_a_module_that_could_not_run_is_run_again_with_the_next_name(package: Path) -> None:
    again = package / "again.py"
    again.write_text("from .one import ONE\nHALF = 1\nraise OSError('no descriptor')\n")
    (package / "__init__.py").write_text(
        "from .one import ONE\nfrom . import again\nHALF = ONE\nWHOLE = again.HALF\n"
    )
    with deferred(PACKAGE):
        module = import_module(PACKAGE)
    for name in ("WHOLE", "HALF", "ONE"):
        with pytest.raises(OSError, match="no descriptor"):
            getattr(module, name)
    again.write_text("HALF = 2\n" + 8 * "# another size\n")
    assert (module.WHOLE, module.HALF, module.ONE) == (2, 1, 1)
    # Its modules are there as after any import, also those that were loaded by the first attempt.
    assert module.one is sys.modules[f"{PACKAGE}.one"]
    assert module.again is sys.modules[f"{PACKAGE}.again"]


def test_a_function_is_imported_with_its_call(package: Path) -> None:
    two = f"{PACKAGE}.two"
    import_module(PACKAGE)
    del sys.modules[two]
    with called_later(two):
        twice = import_module(two).twice
        of_other = import_module(two).absent
    assert two not in sys.modules
    assert twice(3, more=1) == 7
    assert twice(4) == 8
    assert two in sys.modules
    with pytest.raises(AttributeError, match="absent"):
        of_other()
    with called_later(two):
        assert import_module(two).TWO == 2  # it is loaded


def test_a_function_can_be_called_before_the_end(package: Path) -> None:
    two = f"{PACKAGE}.two"
    import_module(PACKAGE)
    del sys.modules[two]
    with called_later(two):
        assert import_module(two).twice(3) == 6
    assert sys.modules[two].TWO == 2


def test_a_module_that_is_left_out_has_empty_classes(package: Path) -> None:
    two = f"{PACKAGE}.two"
    import_module(PACKAGE)
    del sys.modules[two]
    with left_out(two, "json"):
        assert import_module(two).Any().__class__.__name__ == "Any"
        assert import_module("json").loads("1") == 1
    assert import_module(two).TWO == 2
