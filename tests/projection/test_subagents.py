"""What a session tells of its sub-agents: at the card of the call that started one, and in the row of its step."""

from __future__ import annotations

from dataclasses import replace

from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.projection.subagents import (
    agent_news,
    agent_state_words,
    agent_target,
    agent_title,
    asker_words,
)
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.timeline.layout import label_of, whole_label
from kimi_tui.wire.events import (
    AgentChanged,
    CheckpointCreated,
    EventRecord,
    StepBegin,
    TextPart,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnBegin,
    TurnEnd,
)

ARGUMENTS = '{"description": "Find the callers", "prompt": "p", "kind": "explore"}'
EXPLORE = AgentChanged(
    "explore-1", 1, "explore", "Find the callers", "working", key="k1", uid="u1", step=4
)


def session(*agents: AgentChanged) -> SessionModel:
    """Return a session whose step #1 calls two sub-agents; the given states are heard while they run."""
    model = SessionModel()
    events = [
        CheckpointCreated(0, "u0", "user", "Look"),
        TurnBegin("Look"),
        StepBegin(1),
        CheckpointCreated(1, "u1", "step", ""),
        ToolCall("k1", "Agent", ARGUMENTS),
        ToolCall("k2", "Agent", ARGUMENTS.replace("the callers", "the tests")),
        ToolStarted("k1", "Agent", ARGUMENTS),
        ToolStarted("k2", "Agent", ARGUMENTS.replace("the callers", "the tests")),
        *agents,
    ]
    for n, event in enumerate(events):
        model.apply(EventRecord(n + 1, float(n), event))
    return model


def cards(model: SessionModel) -> list[ToolBlock]:
    return [block for block in model.chat.blocks if isinstance(block, ToolBlock)]


def test_each_card_has_the_state_of_its_own_and_the_newest_one() -> None:
    tests = replace(EXPLORE, name="explore-2", number=2, key="k2", title="Find the tests")
    model = session(EXPLORE, tests, replace(EXPLORE, step=5))
    first, second = cards(model)
    assert first.agent == replace(EXPLORE, step=5)
    assert second.agent == tests
    assert [one.name for one in model.state.agents] == ["explore-1", "explore-2"]
    # A state that says nothing new changes nothing that is drawn.
    version = first.version
    model.apply(EventRecord(99, 1.0, replace(EXPLORE, step=5)))
    assert first.version == version


def test_the_row_of_the_step_says_how_far_they_are() -> None:
    model = session(EXPLORE)
    (step,) = [one for one in model.timeline.tree.live if one.kind == "step"]
    text = "".join(span.text for span in label_of(step, 60, UNICODE))
    assert text == "Agent Find the callers · 4 steps +1"
    # The task and the steps are left where there is no room for all of it.
    for room, words in (
        (32, "Agent Find the cal… · 4 steps +1"),
        (30, "Find the callers · 4 steps +1"),
        (21, "Find the c… · 4 steps"),
        (9, "Find the…"),
    ):
        assert "".join(span.text for span in label_of(step, room, UNICODE)) == words
    model.apply(EventRecord(98, 1.0, replace(EXPLORE, name="explore-2", key="k2", step=8)))
    assert "".join(span.text for span in label_of(step, 24, UNICODE)) == "2 sub-agents · 12 steps"
    assert "Agent Find the callers · 4 steps" in whole_label(step)
    moved = model.apply(EventRecord(99, 1.0, replace(EXPLORE, doing="Grep a"))).timeline
    assert not moved


def test_states_come_back_with_their_world_line_and_into_a_model_that_is_made_anew() -> None:
    model = session(EXPLORE)
    done = replace(EXPLORE, state="done", step=12)
    for n, event in enumerate(
        [ToolResult("k1", is_error=False, output="Three."), TurnEnd("done"), done]
    ):
        model.apply(EventRecord(50 + n, 50.0, event))
    assert cards(model)[0].agent == done
    again = session()
    assert cards(again)[0].agent is None
    again.take_state(model)
    assert cards(again)[0].agent == done
    (step,) = [one for one in again.timeline.tree.live if one.kind == "step"]
    assert "12 steps" in whole_label(step)


def test_words_of_a_model_are_one_clean_line() -> None:
    hostile = replace(EXPLORE, name="a\x1b[31mb\n", title="x\x1b]0;t\x07\ny" * 99, kind="k\u202e")
    assert "\x1b" not in agent_target(hostile) + asker_words(hostile.name, [hostile])
    assert "\n" not in agent_title(hostile)
    assert len(agent_title(hostile)) <= 200
    assert agent_title(replace(EXPLORE, title=" \n")) == "explore-1"
    assert asker_words("", [EXPLORE]) == ""
    assert asker_words("explore-1", [EXPLORE]) == "Sub-agent explore-1: Find the callers"
    assert asker_words("gone-1", []) == "Sub-agent gone-1"


def test_what_one_does_is_said_in_a_few_words() -> None:
    said = {
        "waiting": ("waiting", "Waiting for other sub-agents."),
        "working": ("step 4", "Grep src"),
        "asking": ("waiting for you", ""),
        "paused": ("paused", "kimi-tui exited before the sub-agent was done."),
        "done": ("4 steps", ""),
        "failed": ("failed", "The model request failed."),
        "stopped": ("stopped", "You stopped it."),
    }
    for state, (words, news) in said.items():
        one = replace(EXPLORE, state=state, doing="Grep src", why="" if state == "done" else news)
        if state == "asking":
            one = replace(one, doing="")
        assert agent_state_words(one) == words  # pyright: ignore[reportArgumentType]
        assert agent_news(one) == news


def test_what_one_streams_is_the_last_line_of_its_card_a_few_times_a_second() -> None:
    model = session(EXPLORE)
    (card, _) = cards(model)

    def said(text: str, at: float) -> bool:
        record = EventRecord(99, at, TextPart(text), source="explore-1")
        assert not model.apply(record).timeline
        return model.chat.apply_beside(record).first is not None

    assert said("First I look.\nThen ", 100.0)
    assert card.live_output == ["Then"]
    assert not said("I read \x1b[31mon", 100.1)
    assert said(".", 100.3)
    assert card.live_output == ["Then I read on."]
    # The next step begins a new line, and the old one stays until there is one.
    model.chat.apply_beside(EventRecord(99, 100.9, StepBegin(2), source="explore-1"))
    assert card.live_output == ["Then I read on."]
    assert said("It is here.", 101.2)
    assert card.live_output == ["It is here."]
    assert (
        model.chat.apply_beside(EventRecord(99, 101.0, TextPart("x"), source="no-1")).first is None
    )
    for n in range(1_000):
        said("w" * 50, 102.0 + n)
    assert len(card.live_output[0]) <= 400
