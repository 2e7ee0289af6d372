"""Files of other agents may be damaged or made by anybody: what can be read is read, and nothing raises but `CannotRead`."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.foreign_sessions import FILES, NAMES, PROJECT, folder_of, make_database, written

from kimi_tui.migration import opencode
from kimi_tui.migration.agents import AGENTS, read_session
from kimi_tui.migration.foreign_files import time_of
from kimi_tui.migration.plain import CannotRead
from kimi_tui.session.store import SessionStore

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("inf"),
    "",
    "\0\x1b]0;x\x07\ud800",
    "x" * 5_000,
    [],
    {},
    [None, {"type": "text", "text": 5}],
    {"a": {"b": []}},
    "9999-99-99T00:00:00Z",
    1e300,
)


def _changed(value: Any, chance: random.Random) -> Any:
    """Return a value with one thing in it that is of another type."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice([*value])
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        return [*value[:place], _changed(value[place], chance), *value[place + 1 :]]
    return chance.choice(ODD)


def _names(records: list[Any], chance: random.Random) -> None:
    """Have one record follow another one, itself or nobody."""
    held = [one for one in records if isinstance(one, dict)]
    for key in ("parentUuid", "parentId", "id", "uuid"):
        some = [one for one in held if key in one]
        if some:
            chance.choice(some)[key] = chance.choice(
                [chance.choice(some).get("uuid"), chance.choice(some).get("id"), "nobody"]
            )


def damage(lines: list[bytes], chance: random.Random) -> bytes:
    """Return the lines of a file with some damage."""
    lines = list(lines)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
            case 1:
                lines[place] = b"[" * 3_000 + b"]" * 3_000
            case 2:
                lines.insert(place, lines[chance.randrange(len(lines))])
            case 3 if len(lines) > 1:
                del lines[place]
            case 4:
                chance.shuffle(lines)
            case 5:
                lines[place] = bytes(chance.randrange(256) for _ in range(50))
            case _:
                try:
                    records = [json.loads(line) for line in lines]
                except (ValueError, RecursionError):
                    continue
                records[place] = _changed(records[place], chance)
                _names(records, chance)
                lines = [json.dumps(record).encode() for record in records]
    return b"\n".join(lines) + b"\n" * chance.randrange(2)


def _damaged_database(folder: Path, chance: random.Random) -> None:
    rows = json.loads((FILES / "opencode" / "rows.json").read_text())["rows"]
    for table, column in (("message", "data"), ("part", "data"), ("session", "revert")):
        row = chance.choice(rows[table])
        row[column] = damage([str(row[column]).encode()], chance).decode("utf-8", "replace")
    path = make_database(folder, rows)
    if chance.random() < 0.3:
        data = bytearray(path.read_bytes())
        for _ in range(20):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(bytes(data))


def try_damaged(name: str, seed: int, place: Path) -> int:
    """Damage a session, read and import it; return how many were imported."""
    chance = random.Random(seed)
    folder = place / name
    if name == "opencode":
        _damaged_database(folder, chance)
    else:
        folder_of(name, place)
        path = chance.choice(sorted(folder.rglob("*.jsonl")))
        path.write_bytes(damage(path.read_bytes().splitlines(), chance))
    store = SessionStore(place / "data")
    n_imported = 0
    try:
        for found in AGENTS[name].find(folder, PROJECT):
            plain = read_session(found)
            assert all(-1 <= entry.parent < at for at, entry in enumerate(plain.entries))
            written(store, plain, place)
            n_imported += 1
    except CannotRead:
        pass
    return n_imported


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_as_far_as_it_can_be(name: str, tmp_path: Path) -> None:
    assert sum(try_damaged(name, seed, tmp_path / str(seed)) for seed in range(5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(300)
def test_two_hundred_damaged_files(name: str, tmp_path: Path) -> None:
    assert sum(try_damaged(name, seed, tmp_path / str(seed)) for seed in range(1_000, 1_200)) > 100


def _as_link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_hole(path: Path) -> None:
    os.truncate(path, 600 << 20)


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("made", [_as_link, _as_pipe, _as_hole, _as_folder])
def test_what_is_no_ordinary_file_is_passed_over_or_refused(
    made: Callable[[Path], None], tmp_path: Path
) -> None:
    for name in NAMES:
        folder = folder_of(name, tmp_path)
        endings = (".jsonl",) if made is _as_hole else (".jsonl", ".db")
        paths = [path for path in folder.rglob("*") if path.name.endswith(endings)]
        for path in paths:
            made(path)
        try:
            for found in AGENTS[name].find(folder, PROJECT) if paths else ():
                with pytest.raises(CannotRead):
                    read_session(found)
        except CannotRead:
            assert name == "opencode"


def test_a_hostile_database_runs_nothing_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode, "STEPS_OF_A_QUERY", 3_000_000)
    path = make_database(tmp_path / "opencode")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("ALTER TABLE session RENAME TO other")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, 'a' AS directory, 'b' AS title, 1 AS time_updated, NULL AS parent_id FROM n"
    connection.execute(f"CREATE VIEW session AS {endless}")
    connection.commit()
    connection.close()
    with pytest.raises(CannotRead, match="interrupted"):
        AGENTS["opencode"].find(path.parent, "")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_795_945_674_404, 1_795_945_674.404),
        (1_795_945_674, 1_795_945_674.0),
        ("2026-11-29T09:42:15.344Z", 1_795_945_335.344),
        ("2026-11-29T09:42:15", 1_795_945_335.0),
        (-5, 0.0),
        (1e300, 0.0),
        (float("nan"), 0.0),
        (10**400, 0.0),
        (True, 0.0),
        ("0001-01-01T00:00:00+23:59", 0.0),
        ("tomorrow", 0.0),
        (None, 0.0),
    ],
)
def test_a_time_outside_the_calendar_is_unknown(value: object, seconds: float) -> None:
    assert time_of(value) == pytest.approx(seconds)
