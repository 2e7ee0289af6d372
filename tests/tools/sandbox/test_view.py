"""Other files at the path of the work folder: what is there of the user's folder, where it lies, and what stays hidden."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kimi_tui.tools.sandbox import view
from kimi_tui.tools.sandbox.policy import STANDS_FOR, SandboxSettings, policy_for
from kimi_tui.tools.sandbox.view import PastView, Share, Tier, opened_view, shares_of, tier_of
from kimi_tui.workspace.manifest import ManifestEntry

FILES = {
    "base": ("app.py", "src/a.py", "docs", "lib/x.py"),
    "work": (
        "app.py",
        "node_modules/x/index.js",
        "node_modules/x/.env",
        "very/deep/ignored/cache",
        ".venv/bin/tool",
        "docs/ignored/x",
        "lib/x.py",
        "local.cfg",
        "big.bin",
        "own.key",
        ".git/HEAD",
        "sub/.git/HEAD",
    ),
}
SHARES = [
    Share("went.cfg", False, False),
    Share("node_modules", True, False),
    Share(".venv", True, False, is_copied=True),
    Share("very/deep/ignored", True, False),
    # In the frozen folder a file has the name of its folder, and there is another file of its name.
    Share("docs/ignored", True, False),
    Share("lib", True, False),
    Share(".git", True, False),
    Share("sub/.git", True, False),
    Share("local.cfg", False, False),
    Share("big.bin", False, False),
    Share("own.key", False, True),
]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for folder, names in FILES.items():
        for name in names:
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{folder} {name}\n")
    (tmp_path / "work/big.bin").write_bytes(b"x" * 2_000)
    (tmp_path / "work").chmod(0o750)
    (tmp_path / "runs").mkdir()
    return tmp_path


def opened(
    top: Path, tier: Tier, *, is_confined: bool = True, hidden: tuple[str, ...] = ()
) -> AbstractContextManager[PastView]:
    work = top / "work"
    return opened_view(
        tier, top / "base", top / "runs", work, SHARES, is_confined=is_confined, hidden=hidden
    )


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_an_overlay_lies_over_the_frozen_files_and_over_each_ignored_folder(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_COPIED_BYTES", 1_000)
    work = str(top / "work")
    with opened(top, "overlay") as one:
        run = one.run
        assert (one.folder, one.tier, one.base) == (top / "work", "overlay", str(top / "base"))
        seen = [
            f"{work}/{name}" for name in ("node_modules", "very/deep/ignored", ".git", "sub/.git")
        ]
        files = [f"{work}/big.bin", f"{work}/own.key"]
        assert one.shared == (*seen, *files)
        assert one.mounts == (
            (work, str(top / "base"), f"{run}/layer-0"),
            *((path, path, f"{run}/layer-{n}") for n, path in enumerate(seen, 1)),
            *((path, path, "read-only") for path in files),
        )
        assert one.words()[:4] == (
            *(f"over:{work}", f"lower:{top}/base", f"upper:{run}/layer-0"),
            f"over:{work}/node_modules",
        )
        # What a command may write without a trace is copied; a secret is only a place, which nobody else may read.
        layer = Path(run, "layer-0/upper/files")
        assert names_in(layer) == {".venv/bin/tool", "local.cfg", "big.bin", "own.key"}
        assert (layer / "local.cfg").read_text() == "work local.cfg\n"
        assert (layer / "own.key").read_bytes() == (layer / "big.bin").read_bytes() == b""
        assert stat.S_IMODE((layer / "own.key").stat().st_mode) == 0o600
        assert stat.S_IMODE(layer.stat().st_mode) == 0o750
    assert not os.path.lexists(run)


def test_without_overlays_a_copy_is_mounted_and_ignored_folders_can_only_be_read(top: Path) -> None:
    with opened(top, "copy") as one:
        (work, place, upper), *others = one.mounts
        assert (work, upper) == (str(top / "work"), "")
        assert {"app.py", "src/a.py", "docs", "lib/x.py", ".venv/bin/tool"} <= names_in(Path(place))
        assert Path(place, "app.py").read_text() == "base app.py\n"
        assert [(mount.place, mount.upper) for mount in others] == [
            (path, "read-only") for path in one.shared
        ]
        assert f"{work}/node_modules" in one.shared
    assert not os.path.lexists(one.run)


def test_a_copy_elsewhere_has_links_to_ignored_folders_only_if_those_cannot_be_written(
    top: Path,
) -> None:
    (top / "base/src/own.py").write_text("x\n")
    secret = str(top / "work/node_modules/x/.env")
    with opened(top, "elsewhere", hidden=(secret, str(top / "work/own.key"))) as one:
        assert one.folder.name == "work"
        assert one.folder.is_relative_to(one.run)
        assert os.readlink(one.folder / "node_modules") == str(top / "work/node_modules")
        assert os.readlink(one.folder / "very/deep/ignored") == str(top / "work/very/deep/ignored")
        assert one.shared == (f"{top}/work/node_modules", f"{top}/work/very/deep/ignored")
        # Only what the links lead to has to be hidden: no other file is shown.
        assert one.hidden == (secret,)
        assert not (one.folder / ".venv").is_symlink()
        assert (one.folder / ".venv/bin/tool").read_text() == "work .venv/bin/tool\n"
        assert (one.folder / "docs").read_text() == "base docs\n"
        for name in (".git", "sub", "local.cfg", "own.key"):
            assert not os.path.lexists(one.folder / name), name
        assert one.variables == {
            "PYTHONPATH": f"{one.folder}:{one.folder}/src",
            STANDS_FOR: f"{top}/work",
        }
    with opened(top, "elsewhere", is_confined=False) as one:
        assert one.shared == ()
        assert not os.path.lexists(one.folder / "node_modules")
    assert (top / "work/node_modules/x/index.js").exists()


def test_no_more_is_copied_than_there_is_room_for(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Share("local.cfg", False, False), Share("app.txt", False, False)
    (top / "work/app.txt").write_text("work local.cfg\n")
    size = (top / "work/local.cfg").stat().st_size
    for room, kept in ((2 * size, set[str]()), (2 * size - 1, {"app.txt"})):
        monkeypatch.setattr(view, "_COPIED_IN_ALL", room)
        shares = [first, second]
        work, runs = top / "work", top / "runs"
        with opened_view("overlay", top / "base", runs, work, shares, is_confined=True) as one:
            assert {Path(path).name for path in one.shared} == kept


def test_a_file_that_has_become_a_link_is_copied_as_a_link(top: Path) -> None:
    (top / "work/local.cfg").unlink()
    (top / "work/local.cfg").symlink_to(top / "work/own.key")
    with opened(top, "overlay") as one:
        assert os.readlink(f"{one.run}/layer-0/upper/files/local.cfg") == f"{top}/work/own.key"


@pytest.mark.parametrize("can_layer", [False, True])
def test_the_way_depends_on_the_system_the_sandbox_and_the_kernel(
    monkeypatch: pytest.MonkeyPatch, can_layer: bool
) -> None:
    monkeypatch.setattr(view, "can_layer", lambda _environ: can_layer)
    monkeypatch.setattr(sys, "platform", "linux")
    ways = {backend: tier_of(backend, {}) for backend in ("full", "", "landlock", "bwrap")}
    assert ways == {
        "full": "overlay" if can_layer else "copy",
        "": "overlay" if can_layer else "elsewhere",
        "landlock": "elsewhere",
        "bwrap": "elsewhere",
    }
    monkeypatch.setattr(sys, "platform", "darwin")
    assert {tier_of(backend, {}) for backend in ("full", "", "macos")} == {"elsewhere"}


def test_files_without_a_snapshot_are_shared_but_none_that_is_hidden(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = top / "work"
    for name in ("a/b/__pycache__", "a/b/c", "__pycache__"):
        (work / name).mkdir(parents=True)
    os.mkfifo(work / "pipe")
    (work / "link").symlink_to("node_modules")
    kinds = {
        "app.py": "file",
        "src": "folder",
        "unreadable": "unreadable",
        "deep/.": "over",
        "lib/.": "ignored",
        "pipe": "ignored",
        "link": "ignored",
        "went": "ignored",
        "__pycache__": "ignored",
        "a/b/__pycache__": "ignored",
        "a/b/c": "ignored",
        "node_modules": "ignored",
        ".venv": "ignored",
        "very/deep/ignored": "ignored",
        "local.cfg": "ignored",
        "big.bin": "large",
        "own.key": "secret",
        "sub": "ignored",
    }
    files = {path: ManifestEntry(kind) for path, kind in kinds.items()}  # pyright: ignore[reportArgumentType]
    hidden = [str(work / "sub")]
    found = shares_of(files, work, hidden, {".venv", "local.cfg"})
    # Those of each folder of code come last, since there may be thousands.
    assert [one.path for one in found if one.is_folder] == [
        *(".venv", "node_modules", "a/b/c", "very/deep/ignored", "__pycache__", "a/b/__pycache__"),
    ]
    assert {one for one in found if not one.is_folder} == {
        Share("local.cfg", False, False),
        Share("big.bin", False, False),
        Share("own.key", False, True),
    }
    assert [one.path for one in found if one.is_copied] == [".venv"]
    monkeypatch.setattr(view, "_MOST_SHARED", 2)
    assert len(shares_of(files, work, hidden)) == 5


def test_what_is_thrown_away_needs_no_protection_and_secrets_stay_hidden(top: Path) -> None:
    work, other = top / "work", top / "other"
    other.mkdir()
    for name in (".env", "base/.env", "gone/.env", "node_modules/.env"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("token\n")
    for name in (".env", "own.key"):
        (top / "base" / name).write_text("token of then\n")
    environ = {"HOME": str(top / "home"), "KIMI_TUI_HOME": str(top / "app"), "PATH": "/usr/bin"}
    settings = SandboxSettings(writable=(str(other), str(top / "absent")))
    policy = policy_for(work, settings, environ)
    assert str(work / "gone/.env") in policy.hidden
    assert policy.kept
    with opened(top, "overlay") as one:
        narrower, narrowed = one.narrowed(policy)
    layer = f"{one.run}/layer-{len(one.mounts)}"
    assert narrower.mounts == (*one.mounts, (str(other), str(other), layer))
    of_work = {path for path in narrowed.hidden if path.startswith(f"{work}/")}
    # Of the files now, only those are there that are shown; of the files of then, all that have such a name.
    for name in (".env", "node_modules/.env", "own.key"):
        assert str(work / name) in of_work, name
    assert str(work / "gone/.env") not in of_work
    # What is not below the work folder is where it was.
    assert {*policy.hidden} - {*narrowed.hidden} == {
        str(work / name) for name in ("base/.env", "gone/.env")
    }
    assert (narrowed.kept, narrowed.links, narrowed.pinned, narrowed.held) == ((), (), (), {})
    with opened(top, "copy") as one:
        assert one.narrowed(policy)[0].mounts[-1] == (str(other), str(other), "read-only")
    with opened(top, "elsewhere", hidden=("/no", f"{work}/node_modules/.env")) as one:
        same, narrowed = one.narrowed(policy)
        assert same is one
        assert narrowed.hidden == (*policy.hidden, f"{work}/node_modules/.env")
        assert narrowed.home.shown == (*policy.home.shown, *one.shared)
        assert narrowed.kept == policy.kept
