"""A stdio MCP server of the standard library alone, of the handshake's era, which misbehaves as its arguments say.

Usage: mcp_server.py [FAULT[:VALUE] ...]. Without faults it has the tools `add` (of two numbers), `echo`, `write` (a file), `ask`
(a question to the person), `wait` (with progress, for ever), `crash`, a prompt `greet` and a resource `note://one`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

FAULTS = {one.partition(":")[0]: one.partition(":")[2] for one in sys.argv[1:]}
_out = sys.stdout.buffer
_asked: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    _out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    _out.flush()


def raw(data: bytes) -> None:
    _out.write(data)
    _out.flush()


def note(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts], **more}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def tools() -> list[Any]:
    number, word = {"type": "number"}, {"type": "string"}
    found: list[Any] = [
        {
            "name": "add",
            "description": "Add two numbers.",
            "inputSchema": schema(a=number, b=number),
        },
        {"name": "echo", "description": "Say it again.", "inputSchema": schema(text=word)},
        {"name": "write", "description": "Write a file.", "inputSchema": schema(path=word)},
        {"name": "ask", "description": "Ask the person.", "inputSchema": schema()},
        {"name": "wait", "description": "Wait for ever.", "inputSchema": schema()},
        {"name": "crash", "description": "End the server.", "inputSchema": schema()},
    ]
    if "tools" in FAULTS:
        found = json.loads(FAULTS["tools"])
    if "many" in FAULTS:
        about = "Does one of many things, in many words that all take a place in the context. " * 3
        found += [
            {"name": f"many_{n}", "description": about, "inputSchema": schema(value=word)}
            for n in range(int(FAULTS["many"]))
        ]
    return found


def call(name: str, arguments: dict[str, Any], request: Any, token: Any) -> dict[str, Any] | None:
    if "answer" in FAULTS:
        return json.loads(FAULTS["answer"])
    match name:
        case "add":
            return text(str(arguments["a"] + arguments["b"]))
        case "echo":
            return text(arguments["text"])
        case "write":
            with open(arguments["path"], "w") as file:
                file.write("written by the server\n")
            return text("written")
        case "env":
            return text(json.dumps(dict(os.environ)))
        case "ask":
            _asked["q1"] = request
            form = {
                "type": "object",
                "properties": {"color": {"type": "string", "enum": ["red", "blue"]}},
                "required": ["color"],
            }
            send(
                {
                    "id": "q1",
                    "method": "elicitation/create",
                    "params": {"message": "Which color?", "requestedSchema": form},
                }
            )
            return None
        case "wait":
            note(
                "notifications/progress",
                progressToken=token,
                progress=1,
                total=3,
                message="working",
            )
            return None
        case "crash":
            os._exit(3)
        case "change":
            FAULTS["tools"] = json.dumps(
                [{"name": "new", "description": "New.", "inputSchema": schema()}]
            )
            note("notifications/tools/list_changed")
            return text("changed")
        case "big":
            return text("x" * int(FAULTS.get("big", "100000")))
        case "twice":
            send({"id": request, "result": text("first")})
            return text("second")
        case "wrong":
            send({"id": 987654, "result": text("nobody asked")})
            return text("right")
        case "flood":
            for n in range(int(FAULTS.get("flood", "5000"))):
                note("notifications/message", level="info", data=f"note {n}")
            return text("flooded")
        case "questions":
            for n in range(20):
                form = {"type": "object", "properties": {"x": {"type": "string"}}}
                send(
                    {
                        "id": f"f{n}",
                        "method": "elicitation/create",
                        "params": {"message": "Again?", "requestedSchema": form},
                    }
                )
            return text("asked")
        case "noise":
            for _ in range(int(FAULTS.get("noise", "2000"))):
                sys.stderr.write("\x1b]0;owned\x07" + "e" * 1000 + "\n")
            sys.stderr.flush()
            return text("noisy")
        case _:
            return text(f"no tool {name}", isError=True)


def answer(method: str, params: dict[str, Any], request: Any) -> None:
    if "line" in FAULTS:
        raw(FAULTS["line"].encode().decode("unicode_escape").encode("latin-1") + b"\n")
    match method:
        case "initialize":
            if "silent" in FAULTS:
                return
            if "refuse" in FAULTS:
                send({"id": request, "error": {"code": -32000, "message": FAULTS["refuse"]}})
                return
            can = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
            send(
                {
                    "id": request,
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": can,
                        "serverInfo": {"name": "made", "version": "1"},
                    },
                }
            )
        case "tools/list":
            page: dict[str, Any] = {"tools": tools()}
            if "pages" in FAULTS:
                page["nextCursor"] = str(time.monotonic_ns())
            send({"id": request, "result": page})
            if FAULTS.pop("news", None) is not None:
                FAULTS["many"] = "1"
                note("notifications/tools/list_changed")
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            result = call(params["name"], params.get("arguments", {}), request, token)
            if result is not None:
                send({"id": request, "result": result})
        case "prompts/list":
            arguments = [{"name": "who", "required": True}]
            send(
                {
                    "id": request,
                    "result": {
                        "prompts": [
                            {"name": "greet", "description": "Greet.", "arguments": arguments}
                        ]
                    },
                }
            )
        case "prompts/get":
            said = {"type": "text", "text": f"Greet {params['arguments']['who']} kindly."}
            send({"id": request, "result": {"messages": [{"role": "user", "content": said}]}})
        case "resources/list":
            send({"id": request, "result": {"resources": [{"uri": "note://one", "name": "one"}]}})
        case "resources/read":
            send(
                {
                    "id": request,
                    "result": {"contents": [{"uri": params["uri"], "text": "the first note"}]},
                }
            )
        case _:
            send({"id": request, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    if "exit" in FAULTS:
        sys.stderr.write("cannot find the settings\n")
        sys.exit(int(FAULTS["exit"]))
    for line in sys.stdin:
        message = json.loads(line)
        if "log" in FAULTS:
            with open(FAULTS["log"], "a") as file:
                file.write(line)
        if "method" not in message:
            waiting = _asked.pop(message["id"], None)
            if waiting is not None:
                send(
                    {
                        "id": waiting,
                        "result": text(json.dumps(message.get("result", message.get("error")))),
                    }
                )
        elif "id" in message:
            answer(message["method"], message.get("params", {}), message["id"])


main()
