"""Only regular files are opened, and they are written completely or not at all, whatever the disk reports."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_storage import FullStorage, ShortStorage, WatchedStorage, failing
from support.odd_files import put

from kimi_tui.filesystem import (
    NotARegularFile,
    Storage,
    copy_tree,
    create_file,
    open_folder,
    open_regular,
    publish,
    read_regular,
    real_path,
    spread,
)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fifo", "it is a FIFO, not a regular file"),
        ("socket", "it is a socket, not a regular file"),
        ("folder", "it is a folder, not a regular file"),
        ("zero", "it is a symbolic link, not a file of its own"),
        ("dangling", "it is a symbolic link, not a file of its own"),
    ],
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND])
def test_what_is_no_file_is_refused_and_named(
    tmp_path: Path, kind: str, words: str, flags: int
) -> None:
    path = tmp_path / "file"
    put(path, kind)
    with pytest.raises(NotARegularFile) as caught:
        open_regular(path, flags)
    assert caught.value.strerror == words
    assert caught.value.filename == str(path)


@pytest.mark.parametrize(("kind", "words"), [("fifo", "FIFO"), ("zero", "device")])
def test_where_links_are_followed_their_target_counts(
    tmp_path: Path, kind: str, words: str
) -> None:
    put(tmp_path / "odd", kind)
    (tmp_path / "link").symlink_to("odd")
    with pytest.raises(NotARegularFile, match=words):
        open_regular(tmp_path / "link", links=True)
    (tmp_path / "good").write_bytes(b"words")
    (tmp_path / "other").symlink_to("good")
    assert read_regular(tmp_path / "other", 5, links=True) == b"words"


def test_what_is_too_long_is_refused_and_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_regular(path, 10) == b"x" * 10
    with pytest.raises(OSError, match="longer than 9 bytes") as caught:
        read_regular(path, 9)
    assert caught.value.errno == errno.EFBIG
    put(path, "hole")
    with pytest.raises(OSError, match="longer than"):
        read_regular(path, 1 << 20)


def test_a_new_file_is_for_its_owner_alone_and_no_child_inherits_it(tmp_path: Path) -> None:
    fd = open_regular(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    assert not os.get_inheritable(fd)
    os.close(fd)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    put(tmp_path / "fifo", "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(NotARegularFile):
            open_regular(tmp_path / "fifo")
    assert len(os.listdir("/proc/self/fd")) == before


# --- the storage's use of single calls


def test_an_append_that_is_refused_leaves_the_end_as_it_was(tmp_path: Path) -> None:
    storage, path = FullStorage(room=5), tmp_path / "log"
    path.write_bytes(b"one\n")
    with storage.opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        with pytest.raises(OSError, match="No space"):
            storage.append(fd, b"two and more\n")
        assert path.read_bytes() == b"one\n"
        storage.room = 100
        storage.append(fd, b"two\n", sync=True)
        storage.before = failing({"fsync"}, errno.EIO)
        with pytest.raises(OSError, match="Input"):
            storage.append(fd, b"three\n", sync=True)
    assert path.read_bytes() == b"one\ntwo\n"


def test_short_writes_and_reads_are_gone_on_with(tmp_path: Path) -> None:
    storage, path = ShortStorage(3), tmp_path / "file"
    storage.write_file(path, b"0123456789")
    with storage.opened(path) as fd:
        assert storage.read_exactly(fd, 8, 1) == b"12345678"
        with pytest.raises(OSError, match="shorter"):
            storage.read_exactly(fd, 8, 5)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("call", ["write", "fsync", "close", "replace"])
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, call: str, shared: bool) -> None:
    storage, path = WatchedStorage(), tmp_path / "state.json"
    storage.replace_file(path, b"old", shared=shared)
    storage.before = failing({call})
    with pytest.raises(OSError, match="No space"):
        storage.replace_file(path, b"new", shared=shared)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.json"]
    storage.before = failing(set())
    storage.replace_file(path, b"new", shared=shared)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_that_replace_a_file_have_temporary_names_of_their_own(
    tmp_path: Path,
) -> None:
    path, inner, storage = tmp_path / "config.toml", Storage(), WatchedStorage()

    def other(name: str, _arguments: object) -> None:
        if name == "replace":
            inner.replace_file(path, b"theirs", shared=True)

    storage.before = other
    storage.replace_file(path, b"ours", shared=True)
    assert path.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["config.toml"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV])
def test_without_hard_links_a_file_is_copied(tmp_path: Path, number: int) -> None:
    storage, source, target = WatchedStorage(), tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"content")
    storage.before = failing({"link"}, number)
    storage.link_or_copy(source, target)
    assert target.read_bytes() == b"content"
    assert target.stat().st_ino != source.stat().st_ino
    assert "fsync" in storage.calls
    source.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        storage.link_or_copy(source, target)
    assert target.read_bytes() == b"content"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_link_that_the_disk_refuses_is_no_copy(tmp_path: Path) -> None:
    storage = WatchedStorage()
    (tmp_path / "a").touch()
    storage.before = failing({"link"}, errno.EIO)
    with pytest.raises(OSError, match="Input"):
        storage.link_or_copy(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path) == ["a"]


# --- folders that others write to as well


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = open_folder(tmp_path, [])
    yield fd
    os.close(fd)


def test_a_folder_is_walked_to_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch()
    os.close(open_folder(tmp_path / "link", ["inner"]))
    for parts, at in (
        (["link"], "link"),
        (["link", "inner"], "link"),
        (["file"], "file"),
        (["missing"], "missing"),
        (["real", "missing", "x"], "real/missing"),
    ):
        with pytest.raises((NotADirectoryError, FileNotFoundError)) as caught:
            open_folder(tmp_path, parts)
        assert Path(caught.value.filename) == tmp_path / at
    for part in ("..", ".", "", "real/inner"):
        with pytest.raises(OSError, match="cannot be the name of a folder"):
            open_folder(tmp_path / "real", ["inner", part], create=True)
    os.close(open_folder(tmp_path, ["real", "new", "newer"], create=True))
    assert (tmp_path / "real/new/newer").is_dir()
    with pytest.raises(NotADirectoryError):
        open_folder(tmp_path, ["link", "new"], create=True)
    assert not (tmp_path / "real/new/new").exists()


def test_a_folder_that_is_not_there_costs_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(FileNotFoundError):
            open_folder(tmp_path, ["missing", "inner"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC | os.O_CREAT])
def test_what_has_a_name_elsewhere_is_read_and_not_written(tmp_path: Path, flags: int) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    path = tmp_path / "here" / "a"
    path.write_text("precious")
    (tmp_path / "here" / "b").hardlink_to(path)
    os.close(open_regular(path, flags & ~os.O_TRUNC))
    (tmp_path / "there" / "a").hardlink_to(path)
    with pytest.raises(NotARegularFile, match="a hard link in another folder"):
        open_regular(path, flags)
    assert path.read_text() == "precious"
    assert read_regular(path, 100) == b"precious"
    (tmp_path / "there" / "a").unlink()
    os.close(open_regular(path, flags))
    assert path.read_text() == ("" if flags & os.O_TRUNC else "precious")


def test_a_new_file_has_its_mode_when_it_is_whole(tmp_path: Path, folder: int) -> None:
    create_file("a", folder, b"content", mode=0o755)
    assert (tmp_path / "a").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
    old = os.umask(0o027)
    try:
        create_file("b", folder, b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640
    with pytest.raises(FileExistsError):
        create_file("a", folder, b"other")
    assert (tmp_path / "a").read_bytes() == b"content"


@pytest.mark.parametrize("call", ["write", "fchmod", "fsync"])
def test_a_new_file_that_the_disk_refuses_is_not_there(
    tmp_path: Path, folder: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kimi_tui.filesystem.os." + call, full)
    if call == "write":
        monkeypatch.setattr("kimi_tui.filesystem.write_all", full)
    with pytest.raises(OSError, match="No space"):
        create_file("a", folder, b"content", mode=0o600)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_is_left_alone_unless_it_is_to_be_replaced(
    tmp_path: Path, folder: int, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    (tmp_path / "taken").write_bytes(b"theirs")
    create_file("t", folder, b"ours")
    with pytest.raises(FileExistsError):
        publish("t", "taken", folder, replace=False)
    assert (tmp_path / "taken").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["taken"]
    if not links:
        monkeypatch.setattr("kimi_tui.filesystem.os.link", refuse)
    create_file("t", folder, b"ours")
    publish("t", "new", folder, replace=False)
    create_file("t", folder, b"ours")
    publish("t", "taken", folder, replace=True)
    assert sorted(os.listdir(tmp_path)) == ["new", "taken"]
    assert (tmp_path / "new").read_bytes() == (tmp_path / "taken").read_bytes() == b"ours"


def test_a_path_is_followed_where_a_link_is_none_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert real_path(f"{tmp_path}/link/x/../y") == f"{tmp_path}/folder/y"

    def swapped(path: str) -> str:
        raise OSError(errno.EINVAL, "Invalid argument", path)

    # `realpath` does the same: it checks whether a path is a link and then reads it.
    monkeypatch.setattr(os.path, "realpath", swapped)
    assert real_path(f"{tmp_path}/link/x/../y") == f"{tmp_path}/folder/y"


def test_a_folder_is_copied_with_modes_times_and_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "run.sh").write_text("echo\n")
    (source / "deep" / "er" / "run.sh").chmod(0o751)
    (source / "empty").touch(mode=0o400)
    (source / "large").write_bytes(b"x" * 300_000)
    (source / "link").symlink_to("deep/nowhere")
    os.utime(source / "large", ns=(1, 1_700_000_000_123_456_789))
    os.mkfifo(source / "pipe")
    copy = tmp_path / "copy"
    copy_tree(source, copy)
    found = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    assert found == {"deep", "deep/er", "deep/er/run.sh", "empty", "large", "link"}
    assert (copy / "large").read_bytes() == b"x" * 300_000
    assert (copy / "large").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert stat.S_IMODE((copy / "deep/er/run.sh").stat().st_mode) == 0o751
    assert stat.S_IMODE((copy / "empty").stat().st_mode) == 0o400
    assert os.readlink(copy / "link") == "deep/nowhere"


@pytest.mark.parametrize("is_refused", [False, True], ids=["no such call", "refused"])
def test_files_are_copied_where_the_kernel_copies_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EXDEV, "cross-device")

    if is_refused:
        monkeypatch.setattr(os, "copy_file_range", refuses)
    else:
        monkeypatch.setattr("kimi_tui.filesystem._HAS_COPY_FILE_RANGE", False)
        monkeypatch.delattr(os, "copy_file_range")
    monkeypatch.setattr("kimi_tui.filesystem.COPY_CHUNK_BYTES", 1000)
    (tmp_path / "source").mkdir()
    content = os.urandom(2500)
    (tmp_path / "source" / "file").write_bytes(content)
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy" / "file").read_bytes() == content


def test_folders_of_many_files_are_spread_where_the_file_system_can(tmp_path: Path) -> None:
    lsattr = shutil.which("lsattr")
    if lsattr is None or b"ext4" not in subprocess.check_output(["df", "-T", tmp_path]):
        pytest.skip("needs ext4 and lsattr")
    (tmp_path / "source").mkdir()
    copy_tree(tmp_path / "source", tmp_path / "copy")
    told = subprocess.check_output([lsattr, "-d", tmp_path / "source", tmp_path / "copy"])
    assert ["T" in line.split()[0] for line in told.decode().splitlines()] == [False, True]
    # Elsewhere, and for what is gone, nothing happens.
    spread(Path("/dev/shm"))
    spread(tmp_path / "gone")
