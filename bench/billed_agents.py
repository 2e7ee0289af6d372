"""What one task is billed with several agents: `python -m bench.billed_agents`, up to a minute for each agent.

A server on loopback plays the model: it has the agent read 30 files, of which each tenth has about 10,000 tokens, and then end. The tools
run for real, with each agent's own prompts and limits. That the task succeeds is part of the script. The server counts the prefix that a
request shares with the last seven, and `kept` is how many of the 30 values in these files the last request still has.

- kimi-tui: with the built-in rules, each of whose reminders the model follows, and without any.
- peers: those whose command is on PATH. Each has a home folder of its own, and a model with a window of 400,000 tokens where that can be set.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench.billed import RULES, WINDOW, Bill, Part

N_FILES, LARGE_EVERY = 30, 10
_LARGE_LINES, _LINES, _WORDS = 500, 30, 11
_PIECE = 256
_LIMIT_S = 180
_TASK = (
    "Read every file of this folder, one after another, and tell when you have read all of them."
)
_VALUE = re.compile(r"VALUE of part (\d+) is (\d+)")
_REMINDER = re.compile(r"call SendDMail with checkpoint_id (\d+)")
_READS: dict[str, Callable[[str], dict[str, Any]]] = {
    "ReadFile": lambda path: {"path": path},
    "read": lambda path: {"path": path, "filePath": path},
    "Read": lambda path: {"file_path": path},
    "exec_command": lambda path: {"cmd": f"cat {path}"},
    "shell_command": lambda path: {"command": f"cat {path}"},
    "shell": lambda path: {"command": ["cat", path]},
}
"""The arguments with which a file is read, by the name of the tool; the first one that is offered is used."""


class Answer(NamedTuple):
    """What the model answers: a call (its name and arguments), or a text."""

    name: str = ""
    arguments: Mapping[str, Any] = {}
    text: str = ""

    @property
    def tokens(self) -> int:
        """Its length."""
        return max(1, (len(self.text) + len(json.dumps(self.arguments))) // 4)


class Request(NamedTuple):
    """A request: the texts that a cache sees, in order, the offered tools by name, and the protocol."""

    texts: list[str]
    tools: list[str]
    protocol: str


@dataclass
class Task:
    """The scripted task, and what its requests would cost.

    Attributes:
        folder: the folder of the files.
        bills: what is billed, by the rule of the cache.
        n_requests: the number of requests.
        n_read: the number of files that the agent was told to read.
        kept: how many values the last request of the task has.
        is_done: whether the task ended.
    """

    folder: Path
    bills: list[Bill] = field(default_factory=lambda: [Bill(rule) for rule in RULES])
    n_requests: int = 0
    n_read: int = 0
    kept: int = 0
    is_done: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, which is billed."""
        with self._lock:
            found = self._next(request)
            pieces: list[Part] = []
            text = "\n".join(request.texts)
            for start in range(0, len(text), _PIECE):
                piece = text[start : start + _PIECE]
                pieces.append((piece, len(piece) // 4))
            for bill in self.bills:
                bill.call(pieces, found.tokens)
            self.n_requests += 1
            return found

    def _next(self, request: Request) -> Answer:
        reads = next((name for name in _READS if name in request.tools), "")
        if not reads:
            # It is about something else, such as the title of the session.
            return Answer(text="Reading of files")
        end = "\n".join(request.texts[-2:])
        if "SendDMail" in request.tools and (reminder := _REMINDER.search(end)) is not None:
            note = " ".join(found[0] for found in _VALUE.finditer(end))
            arguments = {"message": f"{note}.", "checkpoint_id": int(reminder[1])}
            return Answer("SendDMail", arguments)
        if self.n_read < N_FILES:
            path = str(self.folder / f"part{self.n_read:02}.txt")
            self.n_read += 1
            return Answer(reads, _READS[reads](path))
        self.kept = len({part for part, _ in _VALUE.findall("\n".join(request.texts))})
        self.is_done = True
        return Answer(text="I have read all of them.")


def write_files(folder: Path) -> None:
    """Write the files of the task, the same each time."""
    rnd = random.Random(1)
    words = [
        "".join(rnd.choices("abcdefghijklmnopqrstuvwxyz", k=rnd.randint(3, 9))) for _ in range(900)
    ]
    for n in range(N_FILES):
        n_lines = _LARGE_LINES if n % LARGE_EVERY == LARGE_EVERY // 2 else _LINES
        lines: list[str] = [" ".join(rnd.choices(words, k=_WORDS)) for _ in range(n_lines)]
        lines[7] = f"VALUE of part {n} is {rnd.randint(1000, 9999)}"
        (folder / f"part{n:02}.txt").write_text("\n".join(lines) + "\n")


# -- the server -----------------------------------------------------------------------------------------


def parsed(path: str, body: dict[str, Any]) -> Request:
    """Return a request in one of three protocols: chat completions, responses, or messages."""
    body = _without_marks(body)
    tools: list[dict[str, Any]] = body.get("tools") or []
    texts = [json.dumps(tools)]
    if path.endswith("/chat/completions"):
        names = [tool["function"]["name"] for tool in tools]
        return Request([*texts, *map(json.dumps, body["messages"])], names, "chat")
    names = [str(tool.get("name", "")) for tool in tools]
    if path.endswith("/responses"):
        texts.append(json.dumps(body.get("instructions", "")))
        return Request([*texts, *map(json.dumps, body["input"])], names, "responses")
    texts.append(json.dumps(body.get("system", "")))
    return Request([*texts, *map(json.dumps, body["messages"])], names, "messages")


def _without_marks(value: Any) -> Any:
    """Return a request without the marks that say what to cache: they move with each request, and are no text."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: _without_marks(one) for key, one in pairs if key != "cache_control"}
    if isinstance(value, list):
        return [_without_marks(one) for one in cast("list[Any]", value)]
    return value


def events(answer: Answer, protocol: str, number: int, n_in: int) -> Iterator[bytes]:
    """Yield an answer as server-sent events."""
    arguments, call = json.dumps(answer.arguments), f"call_{number}"
    if protocol == "chat":
        delta: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.name:
            function = {"name": answer.name, "arguments": arguments}
            called = {"index": 0, "id": call, "type": "function", "function": function}
            delta = {"role": "assistant", "content": None, "tool_calls": [called]}
        usage = {
            "prompt_tokens": n_in,
            "completion_tokens": answer.tokens,
            "total_tokens": n_in + answer.tokens,
        }
        finish = "tool_calls" if answer.name else "stop"
        said: list[list[dict[str, Any]]] = [
            [{"index": 0, "delta": delta, "finish_reason": None}],
            [{"index": 0, "delta": {}, "finish_reason": finish}],
            [],
        ]
        for choices in said:
            chunk: dict[str, Any] = {"id": "b", "object": "chat.completion.chunk", "created": 1}
            chunk |= {"model": "bench", "choices": choices, **({} if choices else {"usage": usage})}
            yield _event("", chunk)
        yield b"data: [DONE]\n\n"
    elif protocol == "responses":
        item: dict[str, Any] = {
            "type": "message",
            "id": f"m{number}",
            "role": "assistant",
            "content": [{"type": "output_text", "text": answer.text}],
        }
        if answer.name:
            item = {
                "type": "function_call",
                "id": f"f{number}",
                "call_id": call,
                "name": answer.name,
                "arguments": arguments,
            }
        usage = {
            "input_tokens": n_in,
            "input_tokens_details": None,
            "output_tokens": answer.tokens,
            "output_tokens_details": None,
            "total_tokens": n_in + answer.tokens,
        }
        yield _event("response.created", {"response": {"id": f"r{number}"}})
        yield _event("response.output_item.done", {"output_index": 0, "item": item})
        yield _event("response.completed", {"response": {"id": f"r{number}", "usage": usage}})
    else:
        usage = {"input_tokens": n_in, "output_tokens": 0}
        message: dict[str, Any] = {
            "id": f"m{number}",
            "type": "message",
            "role": "assistant",
            "model": "bench",
            "content": [],
            "usage": usage,
        }
        block: dict[str, Any] = {"type": "text", "text": ""}
        piece: dict[str, Any] = {"type": "text_delta", "text": answer.text}
        if answer.name:
            block = {"type": "tool_use", "id": call, "name": answer.name, "input": {}}
            piece = {"type": "input_json_delta", "partial_json": arguments}
        reason = "tool_use" if answer.name else "end_turn"
        yield _event("message_start", {"message": message})
        yield _event("content_block_start", {"index": 0, "content_block": block})
        yield _event("content_block_delta", {"index": 0, "delta": piece})
        yield _event("content_block_stop", {"index": 0})
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": answer.tokens}})
        yield _event("message_stop", {})


def _event(name: str, body: dict[str, Any]) -> bytes:
    if not name:
        return b"data: " + json.dumps(body).encode() + b"\n\n"
    return f"event: {name}\ndata: {json.dumps({'type': name, **body})}\n\n".encode()


class _Handler(BaseHTTPRequestHandler):
    task: Task

    def do_GET(self) -> None:
        self._reply({"object": "list", "data": [{"id": "bench", "object": "model"}]})

    def do_POST(self) -> None:
        body: Any = json.loads(
            self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}"
        )
        path = self.path.partition("?")[0]
        if not path.endswith(("/chat/completions", "/responses", "/messages")):
            self._reply({"input_tokens": len(json.dumps(body)) // 4})
            return
        request = parsed(path, body)
        answer = self.task.answer(request)
        n_in = sum(map(len, request.texts)) // 4
        said = b"".join(events(answer, request.protocol, self.task.n_requests, n_in))
        if not body.get("stream"):
            self.send_error(400, "only streams")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _reply(self, value: object) -> None:
        said = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


# -- the agents -----------------------------------------------------------------------------------------


class Agent(NamedTuple):
    """One row: its name, and what starts it, from the base URL, its home folder and the folder of the task."""

    name: str
    launch: Callable[[str, Path, Path], tuple[list[str], dict[str, str]]]


def _ours(url: str, home: Path, work: Path, config: str = "") -> tuple[list[str], dict[str, str]]:
    (home / "config.toml").write_text(config)
    program = str(Path(sys.executable).parent / "kimi-tui")
    return [program, "--work-dir", str(work), "-p", _TASK], {
        "KIMI_TUI_HOME": str(home),
        "KIMI_BASE_URL": f"{url}/v1",
        "KIMI_API_KEY": "bench",
        "KIMI_MODEL_NAME": "bench",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": str(WINDOW),
    }


def _without_rules(url: str, home: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    return _ours(url, home, work, "[dmail]\nrules = []\n")


def _pi(url: str, home: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "bench",
        "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
        "models": [{"id": "bench", "contextWindow": WINDOW}],
    }
    (home / "models.json").write_text(json.dumps({"providers": {"bench": provider}}))
    command = ["pi", "--offline", "--no-session", "--provider", "bench", "--model", "bench"]
    return [*command, "-p", _TASK], {"PI_CODING_AGENT_DIR": str(home)}


def _opencode(url: str, home: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    model = {"name": "bench", "limit": {"context": WINDOW, "output": 8000}, "tool_call": True}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "bench",
        "options": {"baseURL": f"{url}/v1", "apiKey": "bench"},
        "models": {"bench": model},
    }
    config = {
        "provider": {"bench": provider},
        "model": "bench/bench",
        "small_model": "bench/bench",
        "autoupdate": False,
        "share": "disabled",
    }
    return ["opencode", "run", "--model", "bench/bench", _TASK], {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }


def _codex(url: str, home: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    (home / "config.toml").write_text(
        f'model = "bench"\nmodel_provider = "bench"\nmodel_context_window = {WINDOW}\n'
        f'[model_providers.bench]\nname = "bench"\nbase_url = "{url}/v1"\nenv_key = "BENCH_KEY"\nwire_api = "responses"\n'
    )
    # Its sandbox is not part of the task, whose commands are all `cat`.
    command = [
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
    ]
    return [*command, _TASK], {"CODEX_HOME": str(home), "BENCH_KEY": "bench"}


def _claude(url: str, home: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    return ["claude", "-p", _TASK, "--model", "claude-sonnet-4-5"], {
        "CLAUDE_CONFIG_DIR": str(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "bench",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


OURS = (Agent("kimi-tui", _ours), Agent("kimi-tui without rules", _without_rules))
PEERS = (
    Agent("claude", _claude),
    Agent("codex", _codex),
    Agent("opencode", _opencode),
    Agent("pi", _pi),
)


def run(agent: Agent) -> Task:
    """Have an agent do the task; return what it would be billed."""
    with tempfile.TemporaryDirectory() as top:
        home, work = Path(top, "home"), Path(top, "work")
        home.mkdir()
        work.mkdir()
        write_files(work)
        task = Task(work)
        handler = type("Handler", (_Handler,), {"task": task})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command, environ = agent.launch(f"http://127.0.0.1:{server.server_port}", home, work)
        usual = {key: os.environ[key] for key in ("PATH", "LANG", "TERM") if key in os.environ}
        try:
            subprocess.run(
                command,
                env={**usual, "HOME": str(home), **environ},
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{agent.name} did not end in {_LIMIT_S} s", file=sys.stderr)
        finally:
            server.shutdown()
            server.server_close()
        return task


def table() -> list[str]:
    """Return the table: requests, the largest one, what was kept, and the cost in thousands of fresh input tokens."""
    rows = [
        "| agent | requests | largest | kept | " + " | ".join(rule.name for rule in RULES) + " |"
    ]
    rows.append("|---" * (4 + len(RULES)) + "|")
    for agent in (*OURS, *(peer for peer in PEERS if shutil.which(peer.name))):
        task = run(agent)
        if not task.is_done:
            rows.append(
                f"| {agent.name} | stopped after {task.n_requests} |" + " |" * (2 + len(RULES))
            )
            continue
        costs = " | ".join(f"{bill.cost / 1e3:.0f}k" for bill in task.bills)
        peak = max(bill.peak for bill in task.bills)
        rows.append(
            f"| {agent.name} | {task.n_requests} | {peak / 1e3:.0f}k | {task.kept} of {N_FILES} | {costs} |"
        )
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
