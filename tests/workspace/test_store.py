"""The content store: whole or not there, deduplicated, within its budget."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimi_tui.workspace.store import BlobDamaged, BlobStore, StoreFull, hash_of


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


def test_the_same_content_is_stored_once(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    noise = os.urandom(10_000)
    store.put(noise)
    used = store.used_bytes()
    store.put(noise)
    store.flush()
    assert store.used_bytes() == used
    assert BlobStore(tmp_path / "store", 1 << 20).used_bytes() == used


def test_a_full_budget_says_so_and_keeps_what_is_there(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store", 8_000)
    name = store.put(b"first")
    with pytest.raises(StoreFull, match="disk"):
        store.put(os.urandom(9_000))
    store.flush()
    assert store.get(name) == b"first"


@pytest.mark.parametrize("damage", [b"", b"r", b"rother", b"zgarbage"])
def test_damage_is_noticed(tmp_path: Path, damage: bytes) -> None:
    store = BlobStore(tmp_path / "store", 1 << 20)
    name = store.put(b"content")
    store.flush()
    (tmp_path / "store" / name[:2] / name[2:]).write_bytes(damage)
    with pytest.raises(BlobDamaged):
        store.get(name)
