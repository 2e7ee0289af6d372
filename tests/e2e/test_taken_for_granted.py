"""Features that users expect of any such program: a plan, questions, copies, help, models, archived sessions, and a check-up."""

from __future__ import annotations

import base64
import json
import re

import pytest
from support.chat_server import ChatServerThread, call, gate, say
from support.program import Program
from support.terminal import Terminal

READY = "≡ at 75k"
QUESTION = {
    "question": "Tabs or spaces?",
    "options": [{"label": "Tabs", "description": "Fewer bytes."}, {"label": "Spaces"}],
}
MODELS = """
default_model = "fast"
mode = "ask"
[providers.local]
type = "openai_legacy"
dialect = "deepseek"
base_url = "{url}"
api_key = "sk-test"
headers = {{ "X-Team" = "blue" }}
[models.fast]
provider = "local"
model = "stand-in"
max_context_size = 100000
[models.slow]
provider = "local"
model = "thinker"
max_context_size = 100000
capabilities = ["thinking"]
"""


def clock(screen: str) -> int:
    """For how many seconds the turn has run, as the prompt says."""
    found = re.search(r"(\d):(\d\d)  step", screen)
    return int(found[1]) * 60 + int(found[2]) if found else 0


def answer(terminal: Terminal, question: str, key: str) -> None:
    """Answer a question once it listens."""
    terminal.wait_for(question)
    terminal.wait_quiet(0.8)
    terminal.key(key)
    terminal.wait_gone(question)


def say_to(terminal: Terminal, words: str) -> None:
    """Send a message or a command."""
    terminal.type(words)
    terminal.key("enter")


@pytest.mark.exhaustive
def test_planned_asked_told_and_copied(configured: Program, server: ChatServerThread) -> None:
    (configured.home / "config.toml").write_text(
        'mode = "ask"\n[sandbox]\nenabled = false\n[notify]\nfinished = true\n'
    )
    server.script(
        call("AskUserQuestion", {"questions": [QUESTION]}),
        call("ExitPlanMode", {"plan": "1. Write `made.py`.\n"}),
        call("WriteFile", {"path": "made.py", "content": "x = 1\n"}),
        gate(0, say("It is written:\n\n```py\nx = 1\n```\n")),
    )
    terminal = configured.start(size=(100, 30), env={"TERM_PROGRAM": "ghostty"})
    terminal.wait_for(READY)
    say_to(terminal, "/plan")
    terminal.wait_for("Mode plan:")
    say_to(terminal, "Make it")
    answer(terminal, "Other (your own answer)", "1")
    # With a yes the mode is chosen: edits need no further question.
    terminal.wait_for("1. Write made.py.")
    assert not (configured.work / "made.py").exists()
    answer(terminal, "Carry out this plan?", "1")
    server.wait_at_gate()
    begun = clock(terminal.wait_for(re.compile(r"\d:\d\d  step")))
    terminal.write(b"\x1b[O")  # the window loses the focus, which nothing on the screen tells
    terminal.wait_for(lambda screen: clock(screen) >= begun + 2)
    server.release()
    terminal.wait_for("It is written:")
    terminal.wait_for("accept edits")
    terminal.wait_raw(b"\x1b]9;4;3;0\x1b\\")
    terminal.wait_raw(b"\x1b]9;importer: Make it is done\x1b\\")
    terminal.write(b"\x1b[I")
    assert (configured.work / "made.py").read_text() == "x = 1\n"
    assert "Tabs" in str(server.requests[1].messages[-1])
    # Copies: the code of the last answer, and what the keys of the chat stand on.
    say_to(terminal, "/copy code")
    at = terminal.wait_raw(b"\x1b]52;c;" + base64.b64encode(b"x = 1"))
    terminal.wait_for("Enter send")
    terminal.key("tab")
    terminal.wait_for("y copy")
    terminal.wait_quiet(0.3)
    terminal.key("y")
    terminal.wait_raw(b"\x1b]52;c;" + base64.b64encode(b"It is written:")[:16], start=at)
    terminal.key("escape")
    # Help lists every place; a command is found by its words, and by the name that other programs have for it.
    terminal.key("f1")
    terminal.wait_for("Esc close")
    terminal.key("end")
    terminal.wait_for("/quit")
    terminal.key("escape")
    terminal.wait_gone("Esc close")
    terminal.key("ctrl+p")
    terminal.wait_for("Find a command")
    terminal.type("tokens in the session")
    terminal.wait_for("▌ /usage")
    terminal.key("enter")
    terminal.wait_for("of 100k tokens")
    say_to(terminal, "/exit")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_a_model_for_the_folder_and_a_session_out_of_the_trash(
    program: Program, server: ChatServerThread
) -> None:
    config = program.home / "config.toml"
    config.write_text(MODELS.format(url=server.base_url))
    config.chmod(0o600)
    (program.home / "hints.json").unlink()
    server.script(say("I have thought."))
    terminal = program.start(size=(100, 30))
    terminal.wait_for(READY)
    say_to(terminal, "/model")
    terminal.wait_for("✓ fast")
    terminal.key("down")
    terminal.wait_for("[default]")
    terminal.key("right")
    terminal.wait_for("[off]")
    terminal.wait_quiet(0.2)  # it can be seen
    terminal.key("ctrl+s")
    terminal.wait_for("This folder uses it from now on.")
    # The values for a command are offered.
    terminal.type("/thinking h")
    terminal.wait_for("▌ /thinking high")
    terminal.key("enter")
    terminal.wait_for("It applies to this folder from now on.")
    say_to(terminal, "Think about it")
    terminal.wait_for("I have thought.")
    terminal.wait_for("Ctrl+T: go back to any step")  # a hint, the first time
    assert server.requests[0].headers["x-team"] == "blue"
    sent = server.requests[0].body
    assert (sent["model"], sent["reasoning_effort"]) == ("thinker", "high")
    session = program.session_dir()
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert 'default_model = "fast"' in config.read_text()
    assert json.loads((program.home / "hints.json").read_text()) == ["turn"]
    # The setting is there in the next session, which cannot be chosen before a message is sent in it.
    terminal = program.start(size=(100, 30))
    terminal.wait_for("thinker thinking high")
    terminal.wait_for(READY)
    say_to(terminal, "/resume")
    terminal.wait_for("1 here, 1 in all")
    terminal.wait_for("Think about it")
    terminal.key("n")
    terminal.wait_for("Rename")
    terminal.key("ctrl+u")
    terminal.wait_for("new title; empty for")
    say_to(terminal, "Thoughts")
    terminal.wait_for("The session is now called Thoughts.")
    terminal.key("d")
    terminal.wait_for("Delete Thoughts?")
    terminal.wait_quiet(0.8)
    terminal.key("y")
    terminal.wait_for("Deleted Thoughts.")
    assert not session.exists()
    terminal.key("escape")
    terminal.wait_for(READY)
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    restored = program.start("sessions", "restore", session.name[:8], fresh=True)
    assert restored.wait_exit() == 0
    assert "from the trash" in restored.screen_text()
    assert session.exists()
    looked = program.start("doctor", "--offline", size=(120, 40))
    looked.wait_exit()
    for what in ("colours", "clipboard", "config.toml", "sandbox", "rg", "git"):
        assert what in looked.screen_text(), what
