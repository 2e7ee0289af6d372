"""What is known of a path from places elsewhere, and kept from one look to the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimi_tui.tools.paths import (
    holds_secrets,
    is_secret_by_name,
    locate,
    look_outside,
    protected_reason,
    secrets_below,
)
from kimi_tui.tools.sandbox import remembered
from kimi_tui.workspace import protected_names


def test_a_folder_beside_that_differs_in_case_alone_is_outside(tmp_path: Path) -> None:
    work, beside = tmp_path / "work", tmp_path / "Work"
    work.mkdir()
    if beside.exists():
        pytest.skip("names that differ in case alone are one here: nothing was tried")
    beside.mkdir()
    for name in ("", "a.txt", "new/a.txt"):
        assert not locate(f"{beside}/{name}", work, {}).inside
        assert locate(f"{work}/{name}", work, {}).inside


def test_of_files_below_a_folder_only_what_a_secret_name_leads_to_is_secret(tmp_path: Path) -> None:
    for name in ("plain.txt", "other.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / ".env").symlink_to("plain.txt")
    is_secret = secrets_below(locate(".", tmp_path, {}), {})
    assert is_secret is not None
    found = [name for name in (b"plain.txt", b"other.txt", b"sub/.env") if is_secret(name)]
    assert found == [b"plain.txt", b"sub/.env"]


def test_a_new_place_of_secrets_in_the_home_folder_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of secrets is a link into the work folder: what it leads to holds secrets from then on."""
    monkeypatch.setattr(remembered, "SETTLED_NS", -(10**18))
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / "keys"):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home)}
    target = locate("keys/one", work, environ)
    place = next(
        Path(one) for one in protected_names.secret_places(environ) if Path(one).parent == home
    )
    os.utime(home, ns=(1, 1))
    assert [holds_secrets(target, environ) for _ in range(2)] == [False, False]
    place.symlink_to(work / "keys")
    assert holds_secrets(target, environ)
    place.unlink()
    os.utime(home, ns=(2, 2))
    assert not holds_secrets(target, environ)


def test_a_new_link_to_the_own_settings_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the work folder that the settings are read from is the program's own, as soon as a link leads there."""
    monkeypatch.setattr(remembered, "SETTLED_NS", -(10**18))
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home / "ours", work / "dots"):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home), "KIMI_TUI_HOME": str(home / "ours")}
    target = locate("dots/one", work, environ)
    os.utime(home / "ours", ns=(1, 1))
    for _ in range(2):
        look = look_outside()
        assert not is_secret_by_name(target, environ, look=look)
        assert not protected_reason(target, environ, look=look)
    (home / "ours/config.toml").symlink_to(work / "dots/one")
    assert protected_reason(target, environ)
    assert is_secret_by_name(target, environ)
    # The link itself may lead on.
    (work / "dots/one").symlink_to("two")
    assert protected_reason(locate("dots/two", work, environ), environ)
