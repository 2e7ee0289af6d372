"""`kimi-tui doctor`: a line for everything, and an exit code that tells whether something is bad."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread
from support.commands import Place
from support.kernel_events import need_an_instance
from support.program import Program

from kimi_tui.commands import doctor
from kimi_tui.session.prompt_history import append_history, history_file, read_history
from kimi_tui.tui.main.first_time_hints import keep_seen, read_seen
from kimi_tui.workspace import tree_watch


def reported(place: Place, *arguments: str) -> dict[str, dict[str, str]]:
    """Return the findings by subject; the last one if a subject has several."""
    return {one["about"]: one for one in json.loads(place.run("doctor", "--json", *arguments).out)}


@pytest.mark.exhaustive
def test_each_thing_in_a_line_and_the_exit_code(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_API_KEY", "sk-secret")
    monkeypatch.setenv("KIMI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")
    ran = place.run("doctor", "--offline")
    assert ran.code == 0, ran.out
    said = ran.out.splitlines()
    for about in (
        "python",
        "colours",
        "clipboard",
        "images",
        "model",
        "folders",
        "file changes",
        "locks",
        "sandbox",
        "rg",
        "git",
    ):
        assert any(line[6:].startswith(about) for line in said), about
    assert "sk-secret" not in ran.out
    assert not list(place.folder.glob("data/*")), "looking leaves nothing behind"
    # A server that is not there.
    ran = place.run("doctor")
    assert ran.code == 1
    bad = [line for line in ran.out.splitlines() if line.startswith("bad")]
    assert len(bad) == 1
    assert "model" in bad[0]


@pytest.mark.exhaustive
def test_what_the_server_lists(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServerThread(models=("stand-in",)) as server:
        monkeypatch.setenv("KIMI_API_KEY", "sk-secret")
        monkeypatch.setenv("KIMI_BASE_URL", server.base_url)
        monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")
        assert reported(place)["model"]["state"] == "ok"
        monkeypatch.setenv("KIMI_MODEL_NAME", "other")
        assert reported(place)["model"]["state"] == "warn"


@pytest.mark.exhaustive
def test_a_configuration_that_cannot_be_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    config = place.folder / "broken.toml"
    config.write_text("theme = [")
    monkeypatch.setattr("kimi_tui.launch.config_file", lambda: config)
    found = reported(place)
    assert found["configuration"]["state"] == "bad"
    assert "line 1" in found["configuration"]["seen"]
    assert "model" not in found
    # A model is named there, and its server: only the key is missing.
    config.write_text(
        'default_model = "m"\n[providers.p]\nbase_url = "https://example.org/v1"\n'
        '[models.m]\nprovider = "p"\nmodel = "m"\n'
    )
    model = reported(place)["model"]
    assert (model["state"], model["seen"]) == (
        "bad",
        "the API key for https://example.org/v1 is missing",
    )


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    assert doctor._refusal(tmp_path) == ""  # pyright: ignore[reportPrivateUsage]
    assert doctor._refusal(tmp_path / "none")  # pyright: ignore[reportPrivateUsage]


def test_the_terminal_is_asked(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    program = Program(home, work, {"TERM": "xterm-kitty"})
    with program.stack:
        terminal = program.start("doctor", "--offline", size=(60, 40))
        terminal.wait_raw(b"\x1b[c")
        terminal.write(b"\x1b[?0u\x1b_Gi=31;OK\x1b\\\x1b[?1004;2$y\x1b[?62;22c")
        seen = terminal.wait_for("git")
        assert "reports all key" in seen
        assert "kitty" in seen
        assert "osc99" in seen
        # A line that is too long goes on below what was seen.
        assert re.search(r"^ok +python +3\.\S+ on\n {21}\S", seen)
        assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_files_that_are_silently_done_without_are_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.work)
    data = place.folder / "data"
    assert "files" not in reported(place, "--offline")
    path = history_file(data, place.work.resolve())
    path.mkdir(parents=True)
    found = reported(place, "--offline")["files"]
    assert found["state"] == "warn"
    assert found["seen"].startswith("history of sent messages: ")
    (data / "hints.json").symlink_to(path)
    assert reported(place, "--offline")["files"]["seen"].startswith("hints already shown: ")


def test_that_they_cannot_be_read_or_written_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_history(tmp_path / "missing") == []
    assert read_seen(tmp_path / "missing") == set()
    assert caplog.records == []
    assert read_history(tmp_path) == []
    assert read_seen(tmp_path) == set()
    append_history(tmp_path, "x")
    keep_seen(tmp_path, "turn")
    assert [record.msg.split(":")[0] for record in caplog.records] == [
        "what was sent before cannot be read",
        "which hints were shown cannot be read",
        "what was sent is not kept for Up",
        "which hints were shown cannot be read",
        "that a hint was shown is not kept",
    ]


@pytest.mark.exhaustive
def test_the_way_to_the_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_API_KEY", "sk-secret")
    monkeypatch.setenv("KIMI_BASE_URL", "https://api.example.test/v1")
    monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")
    for name in ("NO_PROXY", "no_proxy", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "socks://me:pass-word@127.0.0.1:1")
    network = reported(place, "--offline")["network"]
    assert network["state"] == "ok"
    assert network["seen"] == "through the proxy socks://127.0.0.1:1, set by HTTPS_PROXY"
    asked = reported(place)
    assert asked["model"]["state"] == "bad"
    assert "set by HTTPS_PROXY, cannot be reached" in asked["model"]["seen"]
    for name, value in (("HTTPS_PROXY", "gopher://h:1"), ("SSL_CERT_FILE", "/not/there")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            ran = place.run("doctor", "--json")
            assert ran.code == 1
            found = {one["about"]: one for one in json.loads(ran.out)}
            assert found["network"]["state"] == "bad"
            assert found["network"]["seen"].startswith(f'{name} is "')
            assert "model" not in found
            # The lines after it are reported, too.
            assert {"folders", "rg", "git"} <= found.keys()


def test_where_no_changes_are_told_it_says_so_with_a_count(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_an_instance()
    told = reported(place, "--offline")["file changes"]
    assert told["state"] == "ok"
    monkeypatch.setattr(tree_watch, "most_watches", lambda: 6)
    for name in "abc":
        (Path.cwd() / name).mkdir()
    told = reported(place, "--offline")["file changes"]
    assert told["state"] == "warn"
    assert "more than 2 folders" in told["seen"]

    def refused() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(tree_watch, "Inotify", refused)
    told = reported(place, "--offline")["file changes"]
    assert "fs.inotify.max_user_instances" in told["advice"]
