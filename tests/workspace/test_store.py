"""The content store: whole or not there, deduplicated, within its budget."""

from __future__ import annotations

import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kimi_tui.workspace.store import BlobDamaged, BlobStore, StoreFull, disk_usage, hash_of


def test_contents_come_back_after_a_flush(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    names = [store.put(content) for content in (b"", b"one", b"x" * 10_000, os.urandom(5_000))]
    store.flush()
    again = BlobStore(tmp_path / "store", 1 << 20)
    assert [again.get(name) for name in names][:3] == [b"", b"one", b"x" * 10_000]
    assert names[1] == hash_of(b"one")


def test_before_the_flush_nothing_bears_a_final_name(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    name = store.put(b"content")
    assert store.get(name) == b"content"
    assert not BlobStore(tmp_path / "store", 1 << 20).has(name)


def test_contents_that_are_synced_later_are_written_at_once_and_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    store = BlobStore(tmp_path / "store", 1 << 20)
    names: list[str] = []
    for content in (b"one", b"two"):
        names.append(store.put(content))
        store.flush(later=True)
    assert synced == []
    other = BlobStore(tmp_path / "store", 1 << 20)
    assert [other.get(name) for name in names] == [b"one", b"two"]
    store.sync()
    assert sorted(synced) == sorted(map(str, [*(tmp_path / "store").iterdir(), tmp_path / "store"]))
    store.flush()
    assert len(synced) == 3


@pytest.mark.parametrize("size", [0, 10, 9_999, 10_000, 10_001, 1 << 40])
def test_contents_are_read_whatever_size_is_told(tmp_path: Path, size: int) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    assert store.get(store.put(b"x" * 10_000), size) == b"x" * 10_000


def test_a_packed_body_takes_no_more_memory_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.workspace.store._SMALL_BODY", 1_000)
    store = BlobStore(tmp_path / "store", 1 << 26)
    content = bytes(8 << 20)
    name = store.put(content)
    assert store.get(name, len(content)) == content
    tracemalloc.start()
    with pytest.raises(BlobDamaged):
        store.get(name, 5_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_same_content_is_stored_once(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    noise = os.urandom(10_000)
    store.put(noise)
    store.put(noise)
    store.flush()
    used = disk_usage([tmp_path / "store"])
    assert len(noise) < used < 2 * len(noise)
    store.put(noise)
    store.flush()
    assert disk_usage([tmp_path / "store"]) == used


def test_very_many_contents_go_into_several_packs_that_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_MOST_BODIES", 40), ("_LARGE", 20), ("_SORTED", 7)):
        monkeypatch.setattr(f"kimi_tui.workspace.store.{name}", number)
    contents = [f"{number}".encode() * number for number in range(1, 101)]
    store = BlobStore(tmp_path / "store", 1 << 20)
    names = [store.put(content) for content in contents]
    names.append(store.put(contents[0]))
    store.flush()
    # The last one is too small to be searched in its sorted form.
    store.put(b"one more")
    store.flush()
    assert len(list((tmp_path / "store").iterdir())) == 4
    near = BlobStore(tmp_path / "near", 1 << 20, [tmp_path / "store"])
    for one in (store, BlobStore(tmp_path / "store", 1 << 20), near):
        assert all(map(one.has, names))
        assert [one.get(name) for name in names] == [*contents, contents[0]]
        assert not any(one.has(hash_of(f"not {number}".encode())) for number in range(100))
    assert disk_usage([tmp_path / "store", tmp_path / "near"]) == disk_usage([tmp_path / "store"])


def test_a_full_budget_says_so_and_keeps_what_is_there(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 8_000)
    name = store.put(b"first")
    with pytest.raises(StoreFull, match="limit"):
        store.put(os.urandom(9_000))
    store.flush()
    assert store.get(name) == b"first"


def only_pack(store: Path) -> Path:
    (pack,) = store.glob("*.pack")
    return pack


@pytest.mark.parametrize("where", ["body", "end", "whole"])
def test_damage_is_noticed_and_costs_no_more_than_what_it_hit(tmp_path: Path, where: str) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    names = [store.put(f"content {number} ".encode() * 50) for number in range(3)]
    store.flush()
    pack = only_pack(tmp_path / "store")
    content = bytearray(pack.read_bytes())
    if where == "body":
        content[60] ^= 0xFF
    elif where == "end":
        content[-30] ^= 0xFF
    else:
        content = content[:100]
    pack.write_bytes(content)
    again = BlobStore(tmp_path / "store", 1 << 20)
    found: list[bytes | None] = []
    for name in names:
        try:
            found.append(again.get(name))
        except BlobDamaged:
            found.append(None)
    whole = [f"content {number} ".encode() * 50 for number in range(3)]
    lost = {"body": [0], "end": [], "whole": [1, 2]}[where]
    assert found == [None if at in lost else text for at, text in enumerate(whole)]


def test_a_pack_ends_where_zeros_begin_and_before_a_body_that_is_cut(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    first, second = (store.put(f"{number} ".encode() * 50) for number in range(2))
    store.flush()
    pack = only_pack(tmp_path / "store")
    content = pack.read_bytes()
    end = len(b"KTPACK1\n")
    for _ in range(2):
        end += 36 + int.from_bytes(content[end + 32 : end + 36])
    # Without the table at its end a pack is read through.
    for there, is_whole in (
        (content[:end], True),
        (content[:end] + bytes(100), True),
        (content[: end - 1], False),
    ):
        pack.write_bytes(there)
        again = BlobStore(tmp_path / "store", 1 << 20)
        assert again.has(first)
        assert again.has(second) is is_whole
        assert not again.has("0" * 64)


def test_contents_that_are_not_what_they_should_be_are_refused(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    name = store.put(os.urandom(300))
    store.flush()
    content = bytearray(only_pack(tmp_path / "store").read_bytes())
    content[100] ^= 1
    only_pack(tmp_path / "store").write_bytes(content)
    with pytest.raises(BlobDamaged):
        store.get(name)


def test_a_pack_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    name = store.put(b"lost with the power")
    again = BlobStore(tmp_path / "store", 1 << 20)
    assert not again.has(name)
    # A reader may be beside the program that writes; only the next writer cleans up.
    assert len(list((tmp_path / "store").iterdir())) == 1
    again.put(b"stored")
    again.flush()
    assert [path.suffix for path in (tmp_path / "store").iterdir()] == [".pack"]


def test_what_a_neighbour_has_is_linked_and_outlives_it(tmp_path: Path) -> None:
    near = BlobStore(tmp_path / "near", 1 << 20)
    noise = os.urandom(5_000)
    near.put(noise)
    near.flush()
    store = BlobStore(tmp_path / "store", 1 << 20, [tmp_path / "near"])
    name = store.put(noise)
    store.flush()
    assert only_pack(tmp_path / "store").stat().st_nlink == 2
    assert disk_usage([tmp_path / "near", tmp_path / "store"]) < 6_000
    only_pack(tmp_path / "near").unlink()
    assert BlobStore(tmp_path / "store", 1 << 20).get(name) == noise


def test_threads_may_put_at_the_same_time(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 24)
    contents = [os.urandom(500) for _ in range(200)]

    def put(some: list[bytes]) -> list[str]:
        names = [store.put(content) for content in some]
        store.flush()
        return names

    with ThreadPoolExecutor(4) as pool:
        names = [
            name for done in pool.map(put, [contents[at::4] for at in range(4)]) for name in done
        ]
    again = BlobStore(tmp_path / "store", 1 << 24)
    assert {again.get(name) for name in names} == set(contents)
