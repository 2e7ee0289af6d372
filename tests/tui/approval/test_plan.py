"""Plan mode and the agent's own questions: what the agent may do, what the user is shown, and what comes of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk

from kimi_tui.soul.approval import Mode

PLAN = "# Quotes\n\n1. Split `reader.py` at the quotes.\n2. Test **quoted** fields."
QUESTIONS = {
    "questions": [
        {
            "question": "Which parser?",
            "options": [
                {"label": "csv", "description": "The one of the standard library."},
                {"label": "our own"},
            ],
        },
        {"question": "Keep the old file?", "options": [{"label": "yes"}, {"label": "no"}]},
    ]
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def answer(one: Desk, words: str, *keys: str) -> None:
    """Wait for a question and answer it."""
    await one.sees(words)
    await one.until(lambda: (p := one.screen.bench.question) is not None and p.accepts_keys)  # pyright: ignore[reportPrivateUsage]
    panel = one.screen.bench.question
    await one.pilot.press(keys[0])
    if len(keys) > 1 and panel is not None:
        await one.until(lambda: not panel._opening.waits)  # pyright: ignore[reportPrivateUsage]
    await one.pilot.press(*keys[1:])


def told(server: ChatServer) -> str:
    """Return the newest result that the model was sent."""
    return str(server.requests[-1].body["messages"][-1]["content"])


@pytest.mark.exhaustive
async def test_a_plan_is_made_agreed_to_and_carried_out(home: Path) -> None:
    write = {"path": "a.txt", "content": "x\n"}
    async with ChatServer() as server, desk(home, server.base_url, mode="plan") as one:
        server.script(
            call("WriteFile", write),
            call("AskUserQuestion", QUESTIONS),
            call("ExitPlanMode", {"plan": PLAN}),
            call("WriteFile", write),
            say("Written."),
        )
        await one.ready()
        await one.sees("kimi-test   plan")
        await one.say("Mend the quotes")
        await answer(one, "Which parser?", "2")
        # The model was told of plan mode with the user's words, and that an edit is not to be had.
        first, second = (str(request.body["messages"][-1]) for request in server.requests[:2])
        assert "turned plan mode on" in first
        assert "Plan mode is on: nothing may be changed" in second
        assert not (home / "app" / "a.txt").exists()
        await answer(one, "question 2 of 2", "e")
        await one.pilot.press(*"perhaps", "enter")
        await answer(one, "Carry out this plan?", "1")
        await one.sees("Written.")
        assert (home / "app" / "a.txt").read_text() == "x\n"
        assert one.screen.conversation.state.mode == "edits"
        shown = one.text()
        assert "accept edits" in shown
        assert "Which parser? our own" in shown
        assert "Keep the old file? perhaps" in shown
        assert "1. Split reader.py" in shown
        agreed = [str(one) for one in server.requests[3].body["messages"]]
        assert "The user agreed to the plan" in agreed[-1]
        assert "edits in the work folder are made without asking" in agreed[-1]


ANSWERS: tuple[tuple[tuple[str, ...], Mode, str], ...] = (
    (("2",), "ask", "The user agreed to the plan: carry it out."),
    (("e", *"How?", "enter"), "plan", "How?"),
    (("c", "end", *"More.", "enter"), "edits", "but changed the plan"),
)
"""Keys, the mode after them, and the text for the agent."""


@pytest.mark.exhaustive
async def test_answers_to_a_plan(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="edits") as one:
        await one.ready()
        for n, (keys, mode, words) in enumerate(ANSWERS):
            server.script(call("ExitPlanMode", {"plan": PLAN}), say(f"Well {n}."))
            await one.say("/mode edits")
            await one.until(lambda: one.screen.conversation.state.mode == "edits")
            await one.say("/plan")
            await one.until(lambda: one.screen.conversation.state.mode == "plan")
            await one.say(f"Mend the quotes {n}")
            await answer(one, "Carry out this plan?", *keys)
            await one.sees(f"Well {n}.")
            await one.idle()
            assert one.screen.conversation.state.mode == mode, keys
            assert words in told(server), keys
            assert ("More." in told(server)) == (keys[0] == "c"), keys


@pytest.mark.exhaustive
async def test_a_changed_plan_never_leads_to_a_mode_that_was_not_offered(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="all") as one:
        server.script(call("ExitPlanMode", {"plan": PLAN}), say("Well."))
        await one.ready()
        await one.say("/plan")
        await one.sees("Mode plan:")
        await one.say("Mend the quotes")
        await one.sees("If you edit the plan, the agent carries it out in accept edits mode")
        await answer(one, "Carry out this plan?", "c", "end", *"More.", "enter")
        await one.sees("Well.")
        assert one.screen.conversation.state.mode == "edits"
        assert "accept edits" in one.text()


@pytest.mark.exhaustive
async def test_a_changed_plan_leads_to_the_mode_that_stands_there(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="ask") as one:
        server.script(call("ExitPlanMode", {"plan": PLAN}), say("Well."))
        await one.ready()
        await one.say("/plan")
        await one.sees("Mode plan:")
        await one.say("Mend the quotes")
        await one.sees("If you edit the plan, the agent carries it out in ask mode")
        # The mode goes through all values while the question is open, so the mode before plan mode is another one by then.
        await one.pilot.press("shift+tab", "shift+tab", "shift+tab")
        await one.until(lambda: one.screen.conversation.state.mode == "plan")
        assert "If you edit the plan, the agent carries it out in ask mode" in one.text()
        await answer(one, "Carry out this plan?", "c", "end", *"More.", "enter")
        await one.sees("Well.")
        assert one.screen.conversation.state.mode == "ask"


async def test_several_of_what_is_offered_are_an_answer(home: Path) -> None:
    # Other agents call their tools of this name like this.
    asked = {"header": "Checks", "multiSelect": True, "question": "Which checks?"}
    asked["options"] = [{"label": one} for one in ("ruff", "types", "tests; slow ones")]
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            *(call("AskUserQuestion", {"questions": [asked]}) for _ in range(3)), say("Well.")
        )
        await one.ready()
        await one.say("Go")
        # Nothing but what is checked is an answer, and a row is checked as often as it is chosen.
        await answer(one, "you can choose several", "enter")
        await one.sees("Nothing is checked")
        # Space checks a row even before an arrow has selected one.
        await one.pilot.press("space")
        await one.sees("[✓] ruff")
        await one.pilot.press("space")
        await one.sees("[ ] ruff")
        await one.pilot.press("down", "space", "2", "1", "3")
        await one.until(lambda: one.text().count("[✓]") == 2)
        await one.pilot.press("up", "up", "enter")
        await one.sees("Which checks? ruff; tests; slow ones")
        # The card has the answer before the model is asked with it.
        await one.until(lambda: "Which checks? ruff; tests; slow ones" in told(server))
        # Words besides, or alone.
        await answer(one, "you can choose several", "3")
        await one.sees("[✓] tests; slow ones")
        await one.pilot.press("e")
        await one.sees("with the 1 checked")
        await one.pilot.press(*"mypy", "enter")
        await one.until(lambda: "Which checks? tests; slow ones; mypy" in told(server))
        await answer(one, "you can choose several", "e")
        await one.pilot.press(*"later", "enter")
        await one.sees("Well.")
        assert "Which checks? later" in told(server)
        await one.idle()


@pytest.mark.exhaustive
async def test_a_question_is_left_to_the_agent_in_every_mode(home: Path) -> None:
    asked = {"questions": QUESTIONS["questions"][1:]}
    async with ChatServer() as server, desk(home, server.base_url, mode="all") as one:
        server.script(
            call("AskUserQuestion", asked), call("ExitPlanMode", {"plan": PLAN}), say("Well.")
        )
        await one.ready()
        await one.say("Go")
        await answer(one, "Keep the old file?", "l")
        await one.sees("Well.")
        results = [str(message.get("content")) for message in server.requests[-1].body["messages"]]
        assert any("(the user leaves this to you)" in result for result in results)
        assert any("Plan mode is off" in result for result in results)
