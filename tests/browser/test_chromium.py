"""The app in a real browser, headless Chromium: typed, clicked and rewound there; skipped where there is no Chromium."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse
from support.chat_server import ChatServerThread, call, say

from kimi_tui.browser.server import BrowserServer, Served

pytestmark = pytest.mark.exhaustive
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


class Browser:
    """A page, driven over the DevTools protocol.

    Attributes:
        hosts: the hosts that the page asked.
    """

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._n = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.hosts: set[str] = set()
        self.is_there = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            found = json.loads(message.data)
            if found.get("method") == "Network.requestWillBeSent":
                self.hosts.add(found["params"]["request"]["url"].split("/")[2])
            if found.get("method") == "Page.domContentEventFired":
                self.is_there.set()
            if (waiting := self._answers.pop(found.get("id", 0), None)) is not None:
                waiting.set_result(found)

    async def do(self, method: str, **params: Any) -> Any:
        self._n += 1
        self._answers[self._n] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._n, "method": method, "params": params})
        return (await asyncio.wait_for(self._answers[self._n], 30)).get("result", {})

    async def type(self, text: str) -> None:
        for sign in text:
            more = (
                {"text": "\r", "key": "Enter", "windowsVirtualKeyCode": 13} if sign == "\r" else {}
            )
            await self.do(
                "Input.dispatchKeyEvent", type="keyDown", **({"text": sign, "key": sign} | more)
            )
            await self.do("Input.dispatchKeyEvent", type="keyUp", key=more.get("key", sign))

    async def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.do(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def picture(self, path: Path) -> None:
        shot = await self.do("Page.captureScreenshot")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Browser]:
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,760"),
        *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60), ClientSession() as client:
            while b"DevTools listening on ws://" not in (line := await process.stderr.readline()):
                assert line, "Chromium did not start"
            place = line.decode().split("ws://")[1].split("/")[0]
            async with client.get(f"http://{place}/json") as found:
                page = next(one for one in await found.json() if one["type"] == "page")
        async with (
            ClientSession() as client,
            client.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=1 << 26) as socket,
        ):
            browser = Browser(socket)
            await browser.do("Network.enable")
            await browser.do("Page.enable")
            yield browser
            browser.reading.cancel()
    finally:
        process.kill()
        await process.wait()


async def until(condition: Any, seconds: float = 40) -> None:
    """Wait for a file, which no event tells of."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium")
@pytest.mark.timeout(180)
async def test_a_checkpoint_is_clicked_and_rewound_in_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    with ChatServerThread() as model:
        model.script(
            call("WriteFile", {"path": "a.txt", "content": "one\n"}),
            call("WriteFile", {"path": "b.txt", "content": "two\n"}),
            say("Done."),
        )
        for name, value in {
            "HOME": str(home),
            "KIMI_TUI_HOME": str(home),
            "KIMI_BASE_URL": model.base_url,
            "KIMI_API_KEY": "sk-test-key",
            "KIMI_MODEL_NAME": "stand-in",
            "KIMI_DIALECT": "generic",
        }.items():
            monkeypatch.setenv(name, value)
        server = BrowserServer(Served(("--mode", "edits"), str(work)))
        address = await server.start()
        try:
            async with chromium(tmp_path / "profile") as browser:
                browser.is_there.clear()
                await browser.do("Page.navigate", url=address)
                await asyncio.wait_for(browser.is_there.wait(), 30)
                # These keys come before the terminal is there.
                await browser.type("write two files\r")
                try:
                    await until((work / "b.txt").exists)
                except TimeoutError:
                    await browser.picture(tmp_path / "typed.png")
                    raise
                await until(lambda: len(model.requests) == 3)
                await asyncio.sleep(2)
                await browser.picture(tmp_path / "written.png")
                # The row of the step that wrote b.txt: the pane begins at column 94, the rows have 17 pixels.
                await browser.click(960, 195)
                await asyncio.sleep(2)
                await browser.picture(tmp_path / "preview.png")
                await browser.type("f")
                await until(lambda: not (work / "b.txt").exists())
                await browser.picture(tmp_path / "rewound.png")
                assert browser.hosts == {address.split("/")[2]}
        finally:
            await server.aclose()
