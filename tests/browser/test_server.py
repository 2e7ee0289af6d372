"""The app in a browser: who gets a terminal, what the page may load, what a tab may send, and what its process is given."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from kimi_tui.browser import server as module
from kimi_tui.browser.server import BrowserServer, Served
from kimi_tui.browser.terminal import (
    MOST_WAITING_BYTES,
    BrowserTerminal,
    Watching,
    environment,
)
from kimi_tui.commands import serve as command


@asynccontextmanager
async def serving(
    folder: Path, *arguments: str
) -> AsyncIterator[tuple[BrowserServer, str, ClientSession]]:
    server = BrowserServer(Served(arguments or ("--version",), str(folder)))
    address = await server.start()
    try:
        async with ClientSession() as client:
            yield server, address.partition("#")[0].rstrip("/"), client
    finally:
        await server.aclose()


async def test_a_tab_with_the_token_is_a_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, base, client):
        said = b""
        async with client.ws_connect(
            f"{base}/ws/{server.token}?width=100&height=30", headers={"Origin": base}
        ) as tab:
            for wrong in (
                "nonsense",
                "[]",
                '["stdin"]',
                '["stdin", 5]',
                '["resize", {}]',
                "[" * 9000,
            ):
                await tab.send_str(wrong)
            await tab.send_str(json.dumps(["resize", {"width": 10**9, "height": -5}]))
            async for message in tab:
                if message.type is WSMsgType.BINARY:
                    said += message.data
        assert b"kimi-tui" in said
        page = await client.get(base)
        text = await page.text()
        assert server.token not in text
        assert "://" not in text
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        for path in (
            "/page/start.js",
            "/page/page.css",
            "/static/js/textual.js",
            "/static/css/xterm.css",
        ):
            assert (await client.get(base + path)).status == 200


@pytest.mark.parametrize(
    ("token", "origin", "host"),
    [
        ("", "{base}", ""),
        ("wrong", "{base}", ""),
        ("{token}x", "{base}", ""),
        ("{token}", "http://evil.example", ""),
        ("{token}", "https://127.0.0.1", ""),
        ("{token}", "null", ""),
        ("{token}", "", ""),
        ("{token}", "{base}.evil.example", ""),
        ("{token}", "http://evil.example", "evil.example"),
        ("{token}", "{base}", "evil.example:{port}"),
        ("{token}", "{base}", "127.0.0.1"),
        ("{token}/../x", "{base}", ""),
    ],
)
async def test_nobody_else_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, origin: str, host: str
) -> None:
    monkeypatch.setattr(module, "BrowserTerminal", None)
    async with serving(tmp_path) as (server, base, client):
        known = {"base": base, "token": server.token, "port": base.rpartition(":")[2]}
        headers = {"Origin": origin.format(**known)} if origin else {}
        if host:
            headers["Host"] = host.format(**known)
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(f"{base}/ws/{token.format(**known)}", headers=headers)
        assert refused.value.status in (403, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py",
        "/page/%2e%2e/server.py",
        "/static/..%2f..%2fserver.py",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/page//etc/passwd",
        "/page/",
        "/static/",
        "/download/x",
        "/ws",
    ],
)
async def test_no_other_file_is_served(tmp_path: Path, path: str) -> None:
    from yarl import URL

    async with serving(tmp_path) as (_, base, client):
        answer = await client.get(URL(base + path, encoded=True))
        assert answer.status in (403, 404)
        text = await answer.text()
        assert "root:" not in text
        assert "BrowserServer" not in text


async def test_other_methods_hosts_and_floods_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (server, base, client):
        assert (await client.post(base, data=b"x" * 4096)).status in (405, 413)
        assert (await client.get(base, headers={"Host": "rebound.example"})).status == 403
        monkeypatch.setattr(module, "MOST_TERMINALS", 0)
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(f"{base}/ws/{server.token}", headers={"Origin": base})
        assert refused.value.status == 503


async def test_a_closed_tab_ends_its_process_and_frees_its_place(tmp_path: Path) -> None:
    waits = "import sys, time; print('up', flush=True); time.sleep(60)"
    async with serving(tmp_path) as (server, base, client):
        from kimi_tui.browser import terminal

        before, terminal._ENTRY = terminal._ENTRY, waits
        try:
            async with client.ws_connect(
                f"{base}/ws/{server.token}", headers={"Origin": base}
            ) as tab:
                assert b"up" in (await tab.receive_bytes())
                (made,) = server._terminals
                await tab.send_str(json.dumps(["stdin", "\x03"]))
                process = made._process
        finally:
            terminal._ENTRY = before
        assert await asyncio.to_thread(process.wait, 30) is not None


async def test_a_second_tab_looks_on_and_types_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows = """
import fcntl, os, signal, sys, termios, tty
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
tty.setraw(0)
def say(*words):
    # A signal may come within another one of these, where `print` would raise.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def drawn(*_):
    size = os.get_terminal_size(0)
    say("size", size.columns, size.lines)
signal.signal(signal.SIGWINCH, drawn)
say("up")
while True:
    say("typed", os.read(0, 99))
"""
    monkeypatch.setattr("kimi_tui.browser.terminal._ENTRY", shows)

    async def sees(tab: ClientWebSocketResponse, words: str) -> str:
        said = ""
        async with asyncio.timeout(20):
            while words not in said:
                said += (await tab.receive_bytes()).decode()
        return said

    async with serving(tmp_path) as (server, base, client):
        url, headers = f"{base}/ws/{server.token}?width=", {"Origin": base}
        async with client.ws_connect(f"{url}80&height=24&watch=1", headers=headers) as alone:
            assert (await alone.receive()).type is WSMsgType.CLOSE
        with pytest.raises(WSServerHandshakeError):
            await client.ws_connect(f"{base}/ws/wrong?watch=1", headers=headers)
        async with client.ws_connect(f"{url}100&height=30", headers=headers) as tab:
            await sees(tab, "up")
            async with client.ws_connect(f"{url}90&height=40&watch=1", headers=headers) as second:
                # It is drawn whole, as large as fits into both.
                await sees(second, "size 90 30")
                await second.send_str(json.dumps(["stdin", "evil"]))
                await second.send_str(json.dumps(["resize", {"width": 70, "height": 20}]))
                await sees(second, "size 70 20")
                await tab.send_str(json.dumps(["stdin", "mine"]))
                assert "evil" not in await sees(second, "typed b'mine'")
                assert "evil" not in await sees(tab, "typed b'mine'")
            await sees(tab, "size 100 30")
            third = await client.ws_connect(f"{url}90&height=40&watch=1", headers=headers)
            await sees(third, "size 90 30")
        # The end of the tab is that of those who look on.
        async with asyncio.timeout(20):
            while (await third.receive()).type is WSMsgType.BINARY:
                pass


async def test_a_tab_that_looks_on_too_slowly_is_left_behind() -> None:
    slow = Watching()
    for _ in range(9):
        slow.take(b"x" * 1_000_000)
    assert sum([len(piece) async for piece in slow.output()]) <= MOST_WAITING_BYTES


async def test_what_is_typed_reaches_the_app_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = "import os, tty; tty.setraw(0); print('up', flush=True); n = 0\nwhile n < 300_000: n += len(os.read(0, 999))\nprint(n, flush=True)"
    monkeypatch.setattr("kimi_tui.browser.terminal._ENTRY", counts)
    made = BrowserTerminal((), str(tmp_path), (80, 24))
    said = b""
    try:
        output = made.output()
        while b"up" not in said:
            said += await anext(output)
        await made.type(b"x" * 300_000)
        async for data in output:
            said += data
    finally:
        await made.aclose()
    assert b"300000" in said


def test_the_app_gets_its_own_variables_and_no_others() -> None:
    given = {
        "HOME": "/h",
        "PATH": "/bin",
        "LC_ALL": "C",
        "KIMI_API_KEY": "k",
        "HTTPS_PROXY": "p",
        "AWS_SECRET_ACCESS_KEY": "s",
        "TMUX": "x",
        "COLUMNS": "10",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
    }
    found = environment(given)
    assert {"HOME", "PATH", "LC_ALL", "KIMI_API_KEY", "HTTPS_PROXY"} <= set(found)
    assert not {"AWS_SECRET_ACCESS_KEY", "TMUX", "COLUMNS", "LD_PRELOAD", "PYTHONPATH"} & set(found)
    assert found["KIMI_TUI_ONCE_ONLY"] == "1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "x"], '"x" is not a port'),
        (["--port", "70000"], '"70000" is not a port'),
        (["--host", "evil"], '"evil" is not an IP address'),
        (["--host", "0.0.0.0"], "means all addresses; use one address of this machine"),
        (["more"], "unrecognized arguments"),
    ],
)
def test_bad_arguments_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.run(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_port_in_use_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import socket

    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert command.run(["--port", str(port)]) == 2
    assert f"127.0.0.1:{port} cannot be used" in capsys.readouterr().err
    assert os.environ["KIMI_TUI_HOME"] == str(tmp_path)
