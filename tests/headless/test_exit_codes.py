"""The table of exit codes: a test for each row, and the documentation has the same one."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest
from headless.conftest import Scripts
from support.cases import each
from support.chat_server import Chunk, call, delta, gate, say, status, stream

import kimi_tui
from kimi_tui.program import EXIT_CODES
from kimi_tui.session.store import SessionStore

PRICES = """
[models.m]
provider = "p"
model = "stand-in"
max_context_size = 200000
prices = {{input = 1000, cached_input = 1000, output = 1000}}
[providers.p]
base_url = "{url}"
api_key = "sk-test-key"
"""


def test_the_documentation_has_the_table() -> None:
    text = (Path(kimi_tui.__file__).parents[1] / "docs" / "headless.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\d+)` \| (.+?) \|$", text, re.MULTILINE)
    assert {int(code): words.replace("`", "") for code, words in rows} == EXIT_CODES


def test_0_a_turn_that_ended_and_answered(scripts: Scripts) -> None:
    scripts.server.script(say("Hello."))
    assert scripts.run("-p", "hi").code == 0


def test_0_with_a_refusal(scripts: Scripts) -> None:
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    assert len(scripts.result("--mode", "ask", "-p", "hi")["permission_denials"]) == 1


@each(
    "answer",
    [
        status(401, {"error": {"message": "Bad key"}}),
        status(404, {"error": {"message": "no such model"}}),
        status(400, {"error": {"message": "bad request"}}),
    ],
)
def test_1_a_turn_that_failed(scripts: Scripts, answer: object) -> None:
    scripts.server.script(answer)  # pyright: ignore[reportArgumentType]
    ran = scripts.run("-p", "hi", "-o", "out.txt")
    assert (ran.code, ran.out) == (1, "")
    assert not (scripts.work / "out.txt").exists()


def test_1_an_answer_that_breaks_off_is_on_standard_error(scripts: Scripts) -> None:
    full = stream(delta(content="Half of it"), Chunk({"error": {"message": "No", "code": 400}}))
    scripts.server.script(full, full)
    ran = scripts.run("-p", "hi")
    assert (ran.code, ran.out) == (1, "")
    assert "incomplete:\nHalf of it\n" in ran.err
    found = scripts.result("-p", "hi")
    assert (found["is_error"], found["result"]) == (True, "Half of it")


def test_2_wrong_usage(scripts: Scripts) -> None:
    assert scripts.run("-p", "hi", "--no-such").code == 2
    assert scripts.run("-p", "hi", "--session", "nope").code == 2


def test_3_a_refusal_with_strict(scripts: Scripts) -> None:
    scripts.server.script(call("Shell", {"command": "touch x"}), say("I could not."))
    ran = scripts.run("--mode", "ask", "--strict", "-p", "hi")
    assert (ran.code, ran.out) == (3, "I could not.\n")
    # A command that leaves files alone ends with the same code: tests/commands/test_time_travel.py.


def test_5_each_budget(scripts: Scripts) -> None:
    scripts.config.write_text(PRICES.format(url=scripts.server.base_url))
    for option, subtype, words in (
        (("--max-steps", "1"), "error_max_turns", "limit of 1 step"),
        (("--max-tokens", "10"), "error_max_tokens", "limit of 10 tokens"),
        (("--max-cost", ".01"), "error_max_budget_usd", "cost limit of 0.01"),
    ):
        scripts.server.script(call("ReadFile", {"path": "a"}, usage=(100, 5)))
        found = scripts.result("-p", "read", *option)
        assert (found["exit_code"], found["subtype"], found["is_error"]) == (5, subtype, True)
        assert words in found["errors"][0]
        assert found["total_cost_usd"] == 0.105
    assert not scripts.server.server.left


def test_5_time(scripts: Scripts) -> None:
    scripts.server.script(gate(1, say("never")))
    found = scripts.result("-p", "wait", "--max-time", "0.2")
    assert (found["exit_code"], found["subtype"]) == (5, "error_max_time")


def test_6_an_agent_that_goes_in_circles(scripts: Scripts) -> None:
    (scripts.work / "a").write_text("same")
    scripts.server.script(*[call("ReadFile", {"path": "a"}) for _ in range(20)])
    found = scripts.result("-p", "read")
    assert (found["exit_code"], found["subtype"]) == (6, "error_circles")
    assert "Continue?" not in found["errors"][0]
    assert found["num_turns"] < 20


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_130_and_143_leave_a_session_that_goes_on(scripts: Scripts, number: str, code: int) -> None:
    import signal

    scripts.server.script(gate(1, say("never")))

    def stop() -> None:
        scripts.server.wait_at_gate()
        os.kill(os.getpid(), getattr(signal, number))

    stopping = threading.Thread(target=stop)
    stopping.start()
    found = scripts.result("-p", "wait for it")
    stopping.join()
    assert (found["exit_code"], found["subtype"]) == (code, "error_interrupted")
    scripts.server.script(say("Well."))
    again = scripts.result("--continue", "-p", "and now?")
    assert (again["result"], again["session_id"]) == ("Well.", found["session_id"])
    assert "wait for it" in scripts.sent()


def test_4_a_session_is_open_elsewhere(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    from kimi_tui.soul import opening

    monkeypatch.setattr(opening, "OPEN_ELSEWHERE_S", 0.0)
    scripts.server.script(say("Hello."))
    session_id = scripts.result("-p", "hi")["session_id"]
    lock = SessionStore(scripts.home).find(session_id, scripts.work).lock
    lock.acquire()
    try:
        ran = scripts.run("-p", "hi", "--session", session_id)
        assert ran.code == 4
        assert "Add --fork" in ran.complaint
        scripts.server.script(say("Hello again."))
        assert scripts.run("-p", "hi", "--session", session_id, "--fork").code == 0
    finally:
        lock.release()


def test_every_code_has_a_test() -> None:
    tested = {int(found[1]) for name in globals() if (found := re.match(r"test_(\d+)_", name))}
    assert tested | {143} == set(EXIT_CODES)
