"""The files of servers: forms of three programs, variables, what cannot be used, and what `mcp add` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.mcp_session import configure

from kimi_tui.mcp import package
from kimi_tui.mcp.config import (
    BadEntry,
    ServerConfig,
    check_encryption,
    configured,
    server_of,
    write_entry,
)


def made(**fields: object) -> ServerConfig:
    return server_of("x", fields, Path("mcp.json"), "user")


def test_the_first_file_counts_and_says_where_a_server_is_from(folder: Path) -> None:
    work = folder / "work"
    configure(folder / "home" / "mcp.json", a={"command": "own"})
    configure(work / ".mcp.json", a={"command": "theirs"}, b={"url": "https://x.example/mcp"})
    configure(folder / "home" / ".kimi" / "mcp.json", b={"command": "late"}, c={"command": "c"})
    found = configured(work)
    assert [(one.name, one.target, one.origin) for one in found.servers] == [
        ("a", "own", "user"),
        ("b", "https://x.example/mcp", "project"),
        ("c", "c", "user"),
    ]
    assert found.problems == ()


def test_the_forms_of_other_programs_are_read() -> None:
    assert made(url="https://x.example").transport == "http"
    assert made(type="streamable-http", url="http://[::1]:9/mcp").transport == "http"
    assert made(transport="sse", url="https://x.example").transport == "sse"
    one = made(
        command="npx", args=["-y", "x"], env={"A": "1", "N": 2}, timeout=5000, startupTimeoutMs=100
    )
    assert (one.env, one.tool_timeout_s, one.start_timeout_s) == (
        (("A", "1"), ("N", "2")),
        5.0,
        0.1,
    )
    assert one.has_network
    assert not made(command="x", network=False).has_network
    assert not server_of("x", {"command": "x"}, Path(), "project").has_network
    assert not made(command="x", disabled=True).enabled


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ([], "not an object"),
        ({}, 'neither "command" nor "url"'),
        ({"command": 3}, '"command" is not a string'),
        ({"command": "a\0b"}, '"command" contains the character U+0000'),
        ({"command": "x", "args": "y"}, '"args" is not a list'),
        ({"command": "x", "args": [1]}, '"args" is not a list'),
        ({"command": "x", "env": {"A=B": "c"}}, '"env" has a value'),
        ({"url": "https://x.example", "headers": {"A": "b\r\nC: d"}}, '"headers" has a value'),
        ({"url": "file:///etc/passwd"}, "not an address"),
        ({"url": "https://user:word@x.example"}, "a user or a password"),
        ({"url": "https://["}, "not an address"),
        ({"type": "websocket", "url": "ws://x"}, '"websocket" is not a type'),
        ({"command": "x", "network": "yes"}, "neither true nor false"),
        ({"command": "x", "timeout": -1}, "not a number"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(entry: object, words: str) -> None:
    with pytest.raises(BadEntry, match=re.escape(words)):
        server_of("x", entry, Path("mcp.json"), "user")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"headers": {"X-Team": "web"}}, 'its headers would be sent to nas.lan unencrypted; use https, or leave out the headers (mcp.json)'),
        ({"bearerTokenEnvVar": "TRACKER"}, 'the token of TRACKER would be sent to nas.lan unencrypted; use https, or leave out "bearerTokenEnvVar" (mcp.json)'),
    ],
)  # fmt: skip
def test_a_secret_is_not_for_an_unencrypted_address_elsewhere(
    fields: dict[str, object], words: str
) -> None:
    def check(url: str, *, has_login: bool = False) -> None:
        config, unset = made(url=url, **fields).replaced({"TRACKER": "s3cret", "HOST": "nas.lan"})
        assert unset == ()
        check_encryption(config, has_login=has_login)

    for url in ("http://nas.lan/mcp", "HTTP://nas.lan:80/mcp", "http://${HOST}/mcp"):
        with pytest.raises(BadEntry, match=re.escape(words)):
            check(url)
    for near in ("localhost", "localhost.", "a.localhost", "127.1", "127.0.0.2", "[::1]"):
        check(f"http://{near}:8080/mcp", has_login=True)
    for url in ("https://nas.lan/mcp", "HTTPS://nas.lan/mcp"):
        check(url, has_login=True)
    check_encryption(made(url="http://nas.lan/mcp"))
    with pytest.raises(BadEntry, match="its login would be sent to nas"):
        check_encryption(made(url="http://nas.lan/mcp"), has_login=True)


@pytest.mark.parametrize("name", ["", "a b", "a__b", "_a", "../a", "a" * 33, "a\x1b[2J"])
def test_a_name_that_could_be_taken_for_another_is_refused(name: str) -> None:
    with pytest.raises(BadEntry, match="a name has 1 to 32"):
        server_of(name, {"command": "x"}, Path("mcp.json"), "user")


def test_a_broken_file_or_entry_hides_no_other(folder: Path) -> None:
    work = folder / "work"
    (folder / "home" / "mcp.json").write_text('{"mcpServers": {')
    configure(work / ".mcp.json", good={"command": "x"}, bad={"command": 1})
    found = configured(work)
    assert [one.name for one in found.servers] == ["good"]
    assert len(found.problems) == 2
    assert "is not valid JSON" in found.problems[0]
    assert '"command" is not a string' in found.problems[1]


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": 3}', "[" * 100_000, "\x00"])
def test_a_file_of_another_form_is_one_sentence(folder: Path, text: str) -> None:
    (folder / "work" / ".mcp.json").write_text(text)
    found = configured(folder / "work")
    assert (found.servers, len(found.problems)) == ((), 1)


def test_a_projects_file_that_is_a_link_is_not_read(folder: Path) -> None:
    configure(folder / "elsewhere.json", a={"command": "x"})
    (folder / "work" / ".mcp.json").symlink_to(folder / "elsewhere.json")
    found = configured(folder / "work")
    assert (found.servers, len(found.problems)) == ((), 1)


def test_variables_are_replaced_and_unset_ones_are_named() -> None:
    one = made(
        command="${BIN:-run}",
        args=["--key=${KEY}", "${EMPTY:-x}", "${GONE}"],
        env={"T": "${KEY}"},
    )
    assert one.variables == ("BIN", "EMPTY", "GONE", "KEY")
    found, unset = one.replaced({"KEY": "k", "EMPTY": ""})
    assert (found.command, found.args, found.env) == (
        "run",
        ("--key=k", "x", "${GONE}"),
        (("T", "k"),),
    )
    assert unset == ("GONE",)
    token = made(url="https://x.example", bearerTokenEnvVar="T")
    assert token.replaced({"T": "abc"})[0].headers == (("Authorization", "Bearer abc"),)
    assert token.replaced({})[1] == ("T",)


def test_writing_keeps_the_others(folder: Path) -> None:
    path = folder / "home" / "mcp.json"
    write_entry(path, "a", {"command": "x"})
    assert path.stat().st_mode & 0o77 == 0
    path.write_text(json.dumps({"other": 1, **json.loads(path.read_text())}))
    write_entry(path, "b", {"url": "https://x.example"})
    write_entry(path, "a", None)
    assert json.loads(path.read_text()) == {
        "other": 1,
        "mcpServers": {"b": {"url": "https://x.example"}},
    }
    path.write_text("{")
    with pytest.raises(BadEntry):
        write_entry(path, "c", {"command": "x"})
    assert path.read_text() == "{"


def test_the_line_that_installs_the_package_is_for_this_installation(tmp_path: Path) -> None:
    pipx, tool, other = tmp_path / "kimi-tui", tmp_path / "uv", tmp_path / "env"
    for place in (pipx, tool, other):
        place.mkdir()
    (pipx / "pipx_metadata.json").touch()
    (tool / "uv-receipt.toml").touch()
    assert package.install_line(str(pipx)) == "pipx inject kimi-tui 'mcp>=2.3,<3'"
    assert package.install_line(str(tool)) == "uv tool install --with 'mcp>=2.3,<3' kimi-tui"
    assert package.install_line(str(other)).endswith("-m pip install 'mcp>=2.3,<3'")
    (other / "pyvenv.cfg").write_text("home = /usr\nuv = 0.9\n")
    assert package.install_line(str(other)).startswith("uv pip install --python ")
