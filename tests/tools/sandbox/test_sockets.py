"""The sockets of other programs that are found, by the kernel's own list and by the folders where they may be."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from kimi_tui.tools.sandbox import confine, sockets
from kimi_tui.tools.sandbox.sockets import stray_sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's list is Linux's")


def bound(held: ExitStack, folder: Path, name: str, kind: int = socket.SOCK_STREAM) -> Path:
    """Return a socket that was bound by a relative name."""
    folder.mkdir(parents=True, exist_ok=True)
    ear = held.enter_context(socket.socket(socket.AF_UNIX, kind))
    with chdir(folder):
        ear.bind(name)
    return folder / name


def test_strays_are_found_wherever_they_may_be(tmp_path: Path) -> None:
    with ExitStack() as held:
        home = tmp_path / "home"
        in_home = bound(held, home, "home.sock")
        datagrams = bound(held, home, "datagrams.sock", socket.SOCK_DGRAM)
        seen = bound(held, tmp_path / "work/deep", "seen.sock")
        beside = bound(held, tmp_path / "beside", "stray.sock")
        elsewhere = bound(held, tmp_path / "elsewhere", "out.sock")
        # No socket has this number, and nobody listens on the other one any more.
        (home / "file").touch()
        with socket.socket(socket.AF_UNIX) as ended, chdir(home):
            ended.bind("ended.sock")
        neighbour = held.enter_context(socket.socket(socket.AF_UNIX))
        neighbour.bind(str(tmp_path / "beside/named.sock"))
        current = bound(held, tmp_path / "current", "current.sock")
        process = held.enter_context(
            subprocess.Popen(["/bin/cat"], cwd=current.parent, stdin=subprocess.PIPE)
        )
        found = set(stray_sockets([str(seen)], str(home)))
        process.communicate()
        expected = {str(path) for path in (in_home, datagrams, seen, beside, current)}
        assert {path for path in found if path.startswith(str(tmp_path))} == expected
        assert str(elsewhere) not in found


def test_a_socket_that_was_renamed_is_found(tmp_path: Path) -> None:
    with ExitStack() as held:
        home = tmp_path / "home"
        home.mkdir()
        for name in ("one.sock", "two.sock"):
            held.enter_context(socket.socket(socket.AF_UNIX)).bind(str(home / name))
        assert not [path for path in stray_sockets([], str(home)) if path.startswith(str(home))]
        (home / "one.sock").rename(home / "x.sock")
        # A file in its place is no socket.
        (home / "two.sock").rename(home / "y.sock")
        (home / "two.sock").touch()
        found = stray_sockets([], str(home))
        assert [path for path in found if path.startswith(str(home))] == [
            str(home / "x.sock"),
            str(home / "y.sock"),
        ]


def test_a_stray_is_found_behind_any_name(tmp_path: Path) -> None:
    with ExitStack() as held:
        home, work = tmp_path / "home", tmp_path / "work"
        in_home = bound(held, home, "same.sock")
        # The socket of that name in this program's folder is another one.
        beside = bound(held, work, "same.sock")
        broken = home / "two\nlines.sock"
        ear = held.enter_context(socket.socket(socket.AF_UNIX))
        ear.bind(str(broken))
        (tmp_path / "link").symlink_to(work)
        with chdir(work):
            found = set(stray_sockets([str(tmp_path / "link/same.sock")], str(home)))
        expected = {str(path) for path in (in_home, beside, broken)}
        assert {path for path in found if path.startswith(str(tmp_path))} == expected


def test_a_socket_is_known_by_the_lower_half_of_its_number_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def status(path: str) -> os.stat_result:
        kind = stat.S_IFSOCK if path.endswith(".sock") else stat.S_IFREG
        return os.stat_result((kind | 0o600, 7 << 32 | 5, *[0] * 8))

    monkeypatch.setattr(os, "lstat", status)
    monkeypatch.setattr(os.path, "realpath", str)
    assert [*sockets._those_of({5}, ["/a.sock", "/a"])] == ["/a.sock"]
    assert [*sockets._those_of({4, 7 << 32 | 5}, ["/a.sock"])] == []


@pytest.mark.parametrize("said", [(36, 2), (4, 20), (0, 20)])
def test_an_error_of_the_kernel_is_no_end_of_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: tuple[int, int]
) -> None:
    answer = struct.pack("=IHHII", *said, 0, 1, 0) + bytes(20)
    # Each is asked for at most once: what goes on after an error would wait.
    answers = iter([answer, struct.pack("=IHHII", 16, 3, 0, 1, 0)])
    monkeypatch.setattr(socket.socket, "recv", lambda *_: next(answers))
    assert stray_sockets(["/b", "/a"], str(tmp_path)) == ["/a", "/b"]


def test_where_the_kernel_tells_nothing_all_that_was_seen_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses() -> None:
        raise OSError

    monkeypatch.setattr(sockets, "_bound", refuses)
    assert stray_sockets(["/b", "/a"], str(tmp_path)) == ["/a", "/b"]


def test_every_socket_of_a_long_list_is_told(tmp_path: Path) -> None:
    with ExitStack() as held:
        paths = [bound(held, tmp_path, f"{number}.sock") for number in range(300)]
        told = dict(sockets._bound())
        assert {path.stat().st_ino & 0xFFFFFFFF for path in paths} <= told.keys()


def test_by_their_names_those_below_tmp_count_where_commands_write(tmp_path: Path) -> None:
    with ExitStack() as held:
        base = Path(held.enter_context(_folder_in_tmp()))
        (base / "real").mkdir()
        (base / "link").symlink_to("real")
        ear = held.enter_context(socket.socket(socket.AF_UNIX))
        ear.bind(str(base / "link/s"))
        # Others are of the private folder in its place: commands reach one another's there.
        assert not [path for path in confine.sockets_of_others([]) if path.startswith(str(base))]
        here = confine.sockets_of_others([str(base)])
        assert [path for path in here if path.startswith(str(base))] == [str(base / "real/s")]


def _folder_in_tmp() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir="/tmp")


def test_a_socket_that_is_gone_counts_as_young(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert confine._is_young(str(tmp_path))
    monkeypatch.setattr(confine, "_YOUNG_S", -60)
    assert not confine._is_young(str(tmp_path))
    assert confine._is_young(str(tmp_path / "gone"))


def test_services_are_looked_for_in_folders_but_not_in_those_of_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a/b/pipe", "user/0/pipe", "media/x/pipe", "mount/x/pipe"):
        (tmp_path / name).parent.mkdir(parents=True)
        os.mkfifo(tmp_path / name)
    (tmp_path / "a/file").touch()
    (tmp_path / "a/link").symlink_to("b/pipe")
    assert [*confine._sockets_of_services(str(tmp_path))] == [str(tmp_path / "a/b/pipe")]
    monkeypatch.setattr(confine, "_MOST_OF_SERVICES", 0)
    assert [*confine._sockets_of_services(str(tmp_path))] == []
