"""An agent for the Agent Client Protocol that does what its prompts say, word for word; a process without the package.

A prompt is lines of `WORD REST`; `_Turn` has a method for each word. Everything that it was sent is appended to the file
`AGENT_LOG`, one message a line. `AGENT_ABLE` lists what it can do: load, resume, fork, close, delete, http, sse, image, modes, options, login. Sessions are
kept as files in `AGENT_SESSIONS`, so that a later process can load them; a prompt of `what do you know` says them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from itertools import count
from typing import Any

ABLE = set(os.environ.get("AGENT_ABLE", "").split())
LOG = os.environ.get("AGENT_LOG", "")
SESSIONS = os.environ.get("AGENT_SESSIONS", "")
_ids = count(1)
_writing = threading.Lock()
_answers: dict[int, dict[str, Any]] = {}
_answered = threading.Condition()
_cancelled: set[str] = set()
_known: dict[str, list[str]] = {}
_chosen = {"mode": "ask", "model": "small", "effort": "low"}


def note(message: object) -> None:
    if LOG:
        with open(LOG, "a") as file:
            file.write(json.dumps(message) + "\n")


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def write(line: str) -> None:
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    number = next(_ids)
    send({"id": number, "method": method, "params": params})
    with _answered:
        while number not in _answers:
            _answered.wait()
    return _answers.pop(number)


def file_of(session: str) -> str:
    return os.path.join(SESSIONS, f"{session}.json")


def known(session: str) -> list[str]:
    if session not in _known and SESSIONS and os.path.exists(file_of(session)):
        with open(file_of(session)) as file:
            _known[session] = json.load(file)
    return _known.setdefault(session, [])


def keep(session: str) -> None:
    if SESSIONS:
        with open(file_of(session), "w") as file:
            json.dump(_known[session], file)


def extras() -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "modes" in ABLE:
        modes = [{"id": one, "name": one.title()} for one in ("ask", "code")]
        found["modes"] = {"currentModeId": "ask", "availableModes": modes}
    if "options" in ABLE:
        found["configOptions"] = options()
    return found


def options() -> list[Any]:
    return [
        option("mode", "Mode", "mode", _chosen["mode"], ("ask", "code")),
        option("model", "Model", "model", _chosen["model"], ("small", "large")),
        option("effort", "Effort", "thought_level", _chosen["effort"], ("low", "high")),
    ]


def option(name: str, title: str, category: str, value: str, values: tuple[str, ...]) -> Any:
    return {
        "type": "select",
        "id": name,
        "name": title,
        "category": category,
        "currentValue": value,
        "options": [{"value": one, "name": one.title()} for one in values],
    }


def said_text(text: str) -> Any:
    return {"type": "content", "content": {"type": "text", "text": text}}


class Turn:
    """One prompt."""

    def __init__(self, session: str, number: Any) -> None:
        self.session = session
        self.number = number
        self.calls = count(1)

    def update(self, what: str, **fields: Any) -> None:
        update = {"sessionUpdate": what, **fields}
        send({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def text(self, text: str, kind: str = "agent_message_chunk") -> None:
        self.update(kind, content={"type": "text", "text": text})

    def call(self, title: str, kind: str, **fields: Any) -> str:
        name = f"{self.number}-{next(self.calls)}"
        self.update(
            "tool_call", toolCallId=name, title=title, kind=kind, status="pending", **fields
        )
        return name

    def progress(self, name: str, status: str, **fields: Any) -> None:
        self.update("tool_call_update", toolCallId=name, status=status, **fields)

    # -- words

    def do_say(self, rest: str) -> None:
        for word in rest.split(" "):
            self.text(word + " ")

    def do_think(self, rest: str) -> None:
        self.text(rest, "agent_thought_chunk")

    def do_plan(self, rest: str) -> None:
        states = ("completed", "in_progress", "pending")
        entries = [
            {"content": one, "priority": "medium", "status": states[min(n, 2)]}
            for n, one in enumerate(rest.split(","))
        ]
        self.update("plan", entries=entries)

    def do_write(self, rest: str) -> None:
        """Write a file by itself, as most agents do, with a call that shows the change."""
        path, _, text = rest.partition(" ")
        place = os.path.abspath(path)
        old = None
        if os.path.exists(place):
            with open(place) as file:
                old = file.read()
        diff = {"type": "diff", "path": place, "newText": text + "\n", "oldText": old}
        name = self.call(f"Edit {path}", "edit", locations=[{"path": place}], content=[diff])
        self.progress(name, "in_progress")
        with open(place, "w") as file:
            file.write(text + "\n")
        self.progress(name, "completed", content=[diff])

    def do_refused(self, rest: str) -> None:
        """Show the change of a file that is not made in the end."""
        diff = {"type": "diff", "path": os.path.abspath(rest), "newText": "new\n", "oldText": None}
        name = self.call(f"Edit {rest}", "edit", content=[diff])
        self.progress(name, "failed", content=[diff])

    def do_quietly(self, rest: str) -> None:
        """Write a file without telling anybody."""
        path, _, text = rest.partition(" ")
        with open(path, "w") as file:
            file.write(text + "\n")

    def do_read(self, rest: str) -> None:
        said = ask("fs/read_text_file", {"sessionId": self.session, "path": rest})
        self.text(json.dumps(said.get("result", said.get("error"))))

    def do_readpart(self, rest: str) -> None:
        """Read some lines of a file: LINE LIMIT PATH, where `-` is none."""
        line, limit, path = rest.split(" ", 2)
        wanted = {"line": line, "limit": limit}
        params = {name: int(value) for name, value in wanted.items() if value != "-"}
        said = ask("fs/read_text_file", {"sessionId": self.session, "path": path, **params})
        self.text(json.dumps(said.get("result", said.get("error"))))

    def do_save(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        params = {"sessionId": self.session, "path": path, "content": text + "\n"}
        said = ask("fs/write_text_file", params)
        self.text(json.dumps(said.get("error") or "saved"))

    def do_ask(self, rest: str) -> None:
        kind, _, title = rest.partition(" ")
        raw = {"command": title} if kind == "execute" else {"what": title}
        name = self.call(title, kind, rawInput=raw)
        options = [
            {"optionId": "yes", "name": "Go for it", "kind": "allow_once"},
            {"optionId": "ever", "name": "Always go for it", "kind": "allow_always"},
            {"optionId": "no", "name": "Better not", "kind": "reject_once"},
        ]
        params = {"sessionId": self.session, "toolCall": {"toolCallId": name}, "options": options}
        said = ask("session/request_permission", params)
        outcome = said.get("result", {}).get("outcome", said)
        if outcome.get("optionId") in ("yes", "ever") and kind == "execute":
            ran = subprocess.run(title, shell=True, capture_output=True, text=True)
            text = {"type": "content", "content": {"type": "text", "text": ran.stdout}}
            self.progress(
                name, "completed", content=[text], rawOutput={"exit_code": ran.returncode}
            )
        else:
            self.progress(name, "failed")
        self.text(json.dumps(outcome))

    def do_form(self, rest: str) -> None:
        """Show a form with the fields of a JSON object."""
        fields = {"type": "object", **json.loads(rest)}
        params = {"mode": "form", "message": "Fill in.", "requestedSchema": fields}
        said = ask("elicitation/create", {"sessionId": self.session, **params})
        self.text(json.dumps(said.get("result", said.get("error"))))

    def do_address(self, rest: str) -> None:
        """Have the user open an address."""
        params = {"mode": "url", "message": "Look there.", "url": rest, "elicitationId": "e1"}
        said = ask("elicitation/create", {"sessionId": self.session, **params})
        self.text(json.dumps(said.get("result", said.get("error"))))

    def do_flood(self, rest: str) -> None:
        """Ask for permission so many times at once, without waiting."""
        for number in range(int(rest)):
            params = {
                "sessionId": self.session,
                "toolCall": {"toolCallId": f"f{number}", "title": f"flood {number}"},
                "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}],
            }
            send({"id": next(_ids), "method": "session/request_permission", "params": params})
        self.do_hang("")

    def do_terminal(self, rest: str) -> None:
        name = self.call(rest, "execute", rawInput={"command": rest})
        said = ask("terminal/create", {"sessionId": self.session, "command": rest})
        if "error" in said:
            self.progress(name, "failed")
            self.text(json.dumps(said["error"]))
            return
        terminal = said["result"]["terminalId"]
        self.progress(name, "in_progress", content=[{"type": "terminal", "terminalId": terminal}])
        params = {"sessionId": self.session, "terminalId": terminal}
        code = ask("terminal/wait_for_exit", params)["result"]
        shown = ask("terminal/output", params)["result"]
        ask("terminal/release", params)
        self.progress(name, "completed")
        self.text(json.dumps([code, shown]))

    def do_alone(self, rest: str) -> None:
        """Run a command through a shell in a terminal, without a call of its own."""
        made = {"sessionId": self.session, "command": "/bin/bash", "args": ["-c", rest]}
        terminal = ask("terminal/create", made)["result"]["terminalId"]
        params = {"sessionId": self.session, "terminalId": terminal}
        ask("terminal/wait_for_exit", params)
        self.do_output(terminal)
        _known[self.session].append(terminal)

    def do_output(self, rest: str) -> None:
        """Say the output of a terminal; without a name that of the last one."""
        name = rest or next(one for one in reversed(_known[self.session]) if "terminal-" in one)
        said = ask("terminal/output", {"sessionId": self.session, "terminalId": name})
        self.text(said["result"]["output"] if "result" in said else said["error"]["message"])

    def do_elsewhere(self, rest: str) -> None:
        """Ask for everything on behalf of another session, and say the errors."""
        place = {"path": os.path.abspath("in.txt")}
        here = {"sessionId": self.session, "command": "true"}
        terminal = ask("terminal/create", here)["result"]["terminalId"]
        ask("terminal/wait_for_exit", {"sessionId": self.session, "terminalId": terminal})
        for method, params in (
            ("fs/read_text_file", place),
            ("fs/write_text_file", {**place, "content": "x"}),
            ("terminal/create", {"command": "true"}),
            ("terminal/output", {"terminalId": terminal}),
        ):
            said = ask(method, {"sessionId": "other", **params})
            self.text(said["error"]["data"]["details"] + "\n")

    def do_picture(self, rest: str) -> None:
        content = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        self.update("agent_message_chunk", content=content)

    def do_asked(self, rest: str) -> None:
        """Ask about a command, and have it run in a terminal, wrapped in a shell, a folder and variables, as Kimi Code 2.1 does.

        Its arguments come as text in pieces, and the question does not repeat them. `A => B` asks about A and runs B.
        """
        asked, _, ran = rest.partition(" => ")
        given = json.dumps({"command": asked})
        name = self.call("Bash", "execute", content=[said_text(given[:9])])
        self.progress(name, "in_progress", content=[said_text(given[:15])])
        self.progress(name, "in_progress", content=[said_text(given)])
        options = [
            {"optionId": "yes", "name": "Approve", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        words = said_text(f"Requesting approval to Running: {asked[:50]}")
        call = {"toolCallId": name, "title": "Bash", "content": [words]}
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        said = ask("session/request_permission", params)
        if said.get("result", {}).get("outcome", {}).get("optionId") != "yes":
            self.progress(name, "failed")
            return
        self.progress(
            name, "in_progress", rawInput={"command": ran or asked}, content=[said_text(given)]
        )
        env = {"NO_COLOR": "1", "TERM": "dumb", "GIT_TERMINAL_PROMPT": "0", "SHELL": "/bin/bash"}
        params = {
            "sessionId": self.session,
            "command": "/bin/bash",
            "args": ["-c", f"cd '{os.getcwd()}' && {ran or asked}"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "cwd": os.getcwd(),
        }
        terminal = ask("terminal/create", params)["result"]["terminalId"]
        params = {"sessionId": self.session, "terminalId": terminal}
        ask("terminal/wait_for_exit", params)
        self.text(ask("terminal/output", params)["result"]["output"])
        ask("terminal/release", params)
        self.progress(name, "completed")

    def do_usage(self, rest: str) -> None:
        used, size = map(int, rest.split())
        self.update("usage_update", used=used, size=size, cost={"amount": 0.5, "currency": "USD"})

    def do_title(self, rest: str) -> None:
        self.update("session_info_update", title=rest)

    def do_mode(self, rest: str) -> None:
        self.update("current_mode_update", currentModeId=rest)

    def do_know(self, rest: str) -> None:
        self.text(json.dumps(known(self.session)))

    def do_hang(self, rest: str) -> str:
        while self.session not in _cancelled:
            time.sleep(0.01)
        return "cancelled"

    def do_deaf(self, rest: str) -> None:
        time.sleep(3600)

    def do_die(self, rest: str) -> None:
        print("ValueError: I cannot go on", file=sys.stderr, flush=True)
        os._exit(int(rest or 3))

    def do_junk(self, rest: str) -> None:
        for line in (
            "not json at all",
            "[1, 2]",
            '{"id": []}',
            '{"jsonrpc": "2.0", "id": 99999, "result": {}}',
            '{"jsonrpc": "2.0", "id": "x", "result": {}}',
            '{"jsonrpc": "2.0", "id": 1, "error": "words"}',
            '{"method": 7}',
            '{"jsonrpc": "2.0", "method": "no/such", "params": {}}',
            '{"jsonrpc": "2.0", "id": 7001, "method": "no/such", "params": {}}',
            '{"jsonrpc": "2.0", "id": 7002, "method": "fs/read_text_file", "params": {"path": 5}}',
            '{"jsonrpc": "2.0", "method": "session/update", "params": 5}',
            '{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": 1}}',
            '{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "other", "update": '
            '{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "INTRUDER"}}}}',
            "[" * 5_000,
        ):
            write(line)
        with _writing:
            sys.stdout.buffer.write(b"\xff\xfe broken \xc3\n")
            sys.stdout.flush()
        self.progress("never-begun", "completed")
        self.update("no_such_update", x=1)
        self.update(
            "tool_call", toolCallId="a\x1b[31m" + "x" * 10_000, title="t\x1b]0;x\x07" + "y" * 10_000
        )

    def do_big(self, rest: str) -> None:
        self.text("x" * int(rest))

    def do_fail(self, rest: str) -> None:
        raise ValueError(rest)


def run_turn(number: Any, params: dict[str, Any]) -> None:
    session = params["sessionId"]
    texts = [one.get("text", f"<{one['type']}>") for one in params["prompt"]]
    known(session).extend(texts)
    keep(session)
    turn, stop = Turn(session, number), "end_turn"
    _cancelled.discard(session)
    try:
        for line in texts[-1].strip().split("\n"):
            word, _, rest = line.partition(" ")
            method = getattr(turn, f"do_{word}", None)
            stop = (method(rest) if method else turn.text(f"You said: {line}")) or stop
            if session in _cancelled:
                stop = "cancelled"
                break
    except ValueError as error:
        send({"id": number, "error": {"code": -32603, "message": str(error)}})
        return
    usage = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
    send({"id": number, "result": {"stopReason": stop, "usage": usage}})


def answer(message: dict[str, Any]) -> None:
    method, params, number = message["method"], message.get("params") or {}, message.get("id")
    session = params.get("sessionId", "")
    if method == "initialize":
        if "mute" in ABLE:
            return
        sessions: dict[str, Any] = {}
        sessions |= {"fork": {}} if "fork" in ABLE else {}
        sessions |= {"resume": {}} if "resume" in ABLE else {}
        sessions |= {"delete": {}} if "delete" in ABLE else {}
        sessions |= {"close": {}} if "close" in ABLE else {}
        able = {
            "loadSession": "load" in ABLE,
            "promptCapabilities": {"image": "image" in ABLE},
            "sessionCapabilities": sessions,
            "mcpCapabilities": {"http": "http" in ABLE, "sse": "sse" in ABLE},
        }
        version = 9 if "future" in ABLE else 1
        info = {"name": "scripted", "version": "1.2.3"}
        result: Any = {"protocolVersion": version, "agentCapabilities": able, "agentInfo": info}
    elif method == "session/new":
        if "login" in ABLE:
            error = {"code": -32000, "message": "Authentication required"}
            send({"id": number, "error": error})
            return
        session = f"s{os.getpid()}-{next(_ids)}"
        known(session)
        keep(session)
        result = {"sessionId": session, **extras()}
    elif method == "session/fork" and "close" in ABLE and session not in _known:
        send({"id": number, "error": {"code": -32002, "message": "this session is not open"}})
        return
    elif method == "session/fork":
        new = f"f{os.getpid()}-{next(_ids)}"
        _known[new] = list(known(session))
        keep(new)
        result = {"sessionId": new, **extras()}
    elif method in ("session/load", "session/resume"):
        if not os.path.exists(file_of(session)):
            send({"id": number, "error": {"code": -32002, "message": "no such session"}})
            return
        known(session)
        if method == "session/load":
            for one in known(session):
                Turn(session, number).text(f"REPEATED {one}", "user_message_chunk")
        result = extras()
    elif method == "session/close":
        _known.pop(session)
        result = {}
    elif method == "session/delete":
        os.unlink(file_of(session))
        result = {}
    elif method == "session/prompt":
        threading.Thread(target=run_turn, args=(number, params), daemon=True).start()
        return
    elif method == "session/cancel":
        if "deaf" not in ABLE:
            _cancelled.add(session)
        return
    elif method == "session/set_config_option":
        _chosen[params["configId"]] = params["value"]
        result = {"configOptions": options()}
    elif method == "session/set_mode":
        result = {}
    else:
        send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": number, "result": result})


def main() -> None:
    if "noise" in ABLE:
        write("Welcome to the scripted agent!")
    for line in sys.stdin:
        message = json.loads(line)
        note(message)
        if "method" in message:
            answer(message)
        else:
            with _answered:
                _answers[message["id"]] = message
                _answered.notify_all()


if __name__ == "__main__":
    main()
