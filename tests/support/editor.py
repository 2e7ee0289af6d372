"""`kimi-tui acp` as an editor drives it: the process itself, the package's own client, and a model on a socket."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.chat_server import ChatServerThread

acp = pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")
from acp import schema  # noqa: E402
from acp._transport import memory_transport_pair  # noqa: E402

from kimi_tui.acp.agent import EditorAgent  # noqa: E402
from kimi_tui.launch import Options  # noqa: E402

_ENTRY = "import sys; from kimi_tui.cli import main; sys.exit(main())"


@dataclass
class Editor(acp.Client):
    """An editor that notes what it is told, and answers questions as the test says.

    Attributes:
        updates: what it was told, in order.
        asked: the questions, with the ids of their answers.
        choose: returns the id of the answer to a question; None for no answer.
        files: the texts of files that are open, by path.
        forms: the forms that it showed, with their words.
        fill: returns what is entered into a form, None for a refusal; without it the editor shows no forms after all.
    """

    updates: list[Any] = field(default_factory=list)
    asked: list[tuple[Any, list[str]]] = field(default_factory=list)
    choose: Callable[[list[schema.PermissionOption]], str | None] = lambda options: (
        options[0].option_id
    )
    files: dict[str, str] = field(default_factory=dict)
    forms: list[tuple[str, schema.ElicitationSchema]] = field(default_factory=list)
    fill: Callable[[str], dict[str, Any] | None] | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: Any) -> None:
        """Take the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.told.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, [one.option_id for one in options]))
        self.is_asked.set()
        chosen = self.choose(options)
        if chosen is None:
            await asyncio.Event().wait()
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen or "")
        )

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode.requested_schema))
        if self.fill is None:
            raise acp.RequestError.method_not_found("elicitation/create")
        content = self.fill(message)
        if content is None:
            return schema.CancelElicitationResponse(action="cancel")
        return schema.AcceptElicitationResponse(action="accept", content=content)

    async def read_text_file(
        self, session_id: str, path: str, **_: Any
    ) -> schema.ReadTextFileResponse:
        if path not in self.files:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.files[path])

    async def until(self, kind: type, most: int = 500) -> Any:
        """Return the first update of a kind, as soon as it comes."""
        for _ in range(most):
            if found := self.of(kind):
                return found[0]
            self.told.clear()
            await asyncio.wait_for(self.told.wait(), 20)
        raise AssertionError(f"no {kind.__name__}")

    def of(self, kind: type) -> list[Any]:
        """Return the updates of a kind."""
        return [one for one in self.updates if isinstance(one, kind)]

    @property
    def text(self) -> str:
        """Return what the agent said."""
        return "".join(one.content.text for one in self.of(schema.AgentMessageChunk))


def said(text: str) -> list[Any]:
    """Return a prompt of one text."""
    return [acp.text_block(text)]


@dataclass
class Desk:
    """A folder with a model, in which editors start the agent."""

    folder: Path
    server: ChatServerThread

    def __post_init__(self) -> None:
        self.work, self.home = self.folder / "work", self.folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        self.configure("")

    def configure(self, more: str) -> None:
        """Write the configuration; commands have no sandbox, whose trial is a process of its own."""
        (self.home / "config.toml").write_text(f"[sandbox]\nenabled = false\n{more}")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "KIMI_TUI_HOME": str(self.home),
            "KIMI_BASE_URL": self.server.base_url,
            "KIMI_API_KEY": "sk-test-key",
            "KIMI_MODEL_NAME": "stand-in",
            "KIMI_MODEL_MAX_CONTEXT_SIZE": "200000",
            "KIMI_DIALECT": "generic",
        }

    @asynccontextmanager
    async def editor(
        self, mode: Any = "ask", *, reads_files: bool = False, shows_forms: bool = False
    ) -> AsyncIterator[tuple[Editor, Any]]:
        """Connect an editor to the agent in this process; yield it and the connection, both ready."""
        editor, agent = Editor(), EditorAgent(Options(mode=mode))
        here, there = memory_transport_pair()
        serving = asyncio.create_task(acp.run_agent(agent, here, use_unstable_protocol=True))
        of_editor = acp.connect_to_agent(editor, there, use_unstable_protocol=True)
        try:
            await _initialize(of_editor, reads_files=reads_files, shows_forms=shows_forms)
            yield editor, of_editor
        finally:
            await agent.aclose()
            await of_editor.close()
            await serving

    @asynccontextmanager
    async def process(self, *arguments: str) -> AsyncIterator[tuple[Editor, Any]]:
        """Start the program itself; yield the editor and the connection, both ready."""
        editor = Editor()
        async with acp.spawn_agent_process(
            editor,
            sys.executable,
            "-c",
            _ENTRY,
            "acp",
            *arguments,
            env=self.environment,
            cwd=str(self.work),
            use_unstable_protocol=True,
            transport_kwargs={"stderr": None, "limit": 1 << 24},
        ) as (agent, _):
            await _initialize(agent)
            yield editor, agent


async def _initialize(agent: Any, *, reads_files: bool = False, shows_forms: bool = False) -> None:
    form = schema.ElicitationFormCapabilities()
    await agent.initialize(
        protocol_version=1,
        client_capabilities=schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=reads_files),
            elicitation=schema.ElicitationCapabilities(form=form) if shows_forms else None,
        ),
    )
