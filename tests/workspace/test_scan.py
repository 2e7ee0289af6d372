"""Scanning: what changed is found, what is left out is said, nothing is followed."""

from __future__ import annotations

import os
from pathlib import Path

from kimi_tui.workspace.entries import Limits, was_looked_for
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.store import BlobStore


def make(tmp_path: Path, limits: Limits | None = None) -> tuple[Path, BlobStore, Scanner]:
    root = tmp_path / "work"
    root.mkdir()
    store = BlobStore(tmp_path / "store", 1 << 30)
    return root, store, Scanner(str(root), store, limits or Limits())


def age(*paths: Path) -> None:
    """Put the times an hour back, so that the scan trusts them (the change time stays young)."""
    for path in paths:
        os.utime(path, (1_600_000_000, 1_600_000_000))


def test_the_second_scan_names_what_changed(tmp_path: Path) -> None:
    root, store, scanner = make(tmp_path)
    (root / "keep").write_text("same")
    (root / "edit").write_text("old")
    (root / "gone").write_text("bye")
    assert scanner.scan().changed == ("edit", "gone", "keep")
    (root / "edit").write_text("new")
    (root / "gone").unlink()
    (root / "sub").mkdir()
    (root / "sub/born").write_text("hi")
    second = scanner.scan()
    assert second.changed == ("edit", "gone", "sub/born")
    assert store.get(second.manifest["edit"].blob) == b"new"


def test_a_rewrite_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / "a").write_text("one")
    age(root / "a")
    scanner.scan()
    (root / "a").write_text("two")
    age(root / "a")
    assert scanner.scan().changed == ("a",)


def test_new_ignore_rules_take_effect_below(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / "sub").mkdir()
    (root / "sub/x.log").write_text("log")
    assert scanner.scan().manifest["sub/x.log"].kept
    (root / ".gitignore").write_text("*.log\n")
    assert scanner.scan().manifest["sub/x.log"].kind == "ignored"


def test_links_are_kept_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root, store, scanner = make(tmp_path)
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    manifest = scanner.scan().manifest
    assert manifest["link"].kind == "link"
    assert store.get(manifest["dangling"].blob) == b"nowhere"
    assert manifest["pipe"].kind == "special"
    assert not any(path.startswith("link/") for path in manifest)


def test_limits_are_remarks_not_failures(tmp_path: Path) -> None:
    limits = Limits(max_files=3, max_file_bytes=100)
    root, _, scanner = make(tmp_path, limits)
    (root / "big").write_bytes(b"x" * 101)
    for number in range(5):
        (root / f"f{number}").write_text(str(number))
    kinds = [entry.kind for _, entry in sorted(scanner.scan().manifest.items())]
    assert kinds == ["large", "file", "file", "file", "over", "over"]


def test_what_was_not_looked_for_was_not_absent(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / ".gitignore").write_text("venv/\n")
    (root / "venv").mkdir()
    (root / "venv/lib").write_text("x")
    manifest = scanner.scan().manifest
    assert not was_looked_for(manifest, "venv/lib")
    assert was_looked_for(manifest, "src/new.py")


def test_a_scan_that_is_not_wanted_any_more_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("a")
    wanted = [True]
    scanner = Scanner(
        str(root), BlobStore(tmp_path / "s", 1 << 20), Limits(), cancelled=lambda: not wanted[0]
    )
    first = scanner.scan()
    wanted[0] = False
    (root / "b").write_text("b")
    second = scanner.scan()
    assert not second.complete
    assert second.manifest == first.manifest
