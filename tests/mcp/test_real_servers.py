"""Servers that others wrote, as they are installed: only where npm can fetch them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.mcp_session import configure, session

PACKAGES = (
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@playwright/mcp",
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the packages."""
    place = tmp_path_factory.mktemp("npm")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", *PACKAGES]
    ran = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=240, check=False
    )
    if ran.returncode:
        pytest.skip("npm cannot fetch the servers")
    return place / "node_modules"


def node(script: Path, *arguments: str) -> dict[str, object]:
    return {
        "command": "node",
        "args": [str(script), *arguments],
        "sandbox": False,
        "startupTimeoutMs": 60_000,
    }


async def test_they_connect_list_and_answer(folder: Path, modules: Path) -> None:
    official = modules / "@modelcontextprotocol"
    configure(
        folder / "home" / "mcp.json",
        everything=node(official / "server-everything/dist/index.js"),
        files=node(official / "server-filesystem/dist/index.js", str(folder / "work")),
        browser=node(modules / "@playwright/mcp/cli.js", "--headless"),
    )
    async with session(folder) as one:
        assert {row.config.name: row.state for row in one.servers.rows} == dict.fromkeys(
            ("everything", "files", "browser"), "ready"
        )
        assert (await one.call("mcp__everything__echo", {"message": "hi"})).output == "Echo: hi"
        said: list[str] = []
        slow = {"duration": 1, "steps": 2}
        name = "mcp__everything__trigger-long-running-operation"
        assert not (await one.call(name, slow, "", emit=said.append)).is_error
        assert said
        path = folder / "work" / "a.txt"
        written = await one.call("mcp__files__write_file", {"path": str(path), "content": "hello"})
        assert not written.is_error
        assert path.read_text() == "hello"
        assert (await one.call("mcp__files__read_text_file", {"path": "/etc/passwd"})).is_error
        assert len(one.servers.named("browser").tools) > 10
        assert (
            "features"
            in (
                await one.servers.resource_text(
                    "everything", "demo://resource/static/document/features.md"
                )
                or ""
            ).lower()
        )
