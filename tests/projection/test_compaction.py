"""Summaries of a part: what they replace goes or greys, and what was kept stands behind them with its new numbers."""

from __future__ import annotations

from kimi_tui.projection.blocks import (
    AgentBlock,
    CompactionBlock,
    DMailBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.rows import LayoutRoom
from kimi_tui.tui.timeline.layout import whole_label
from kimi_tui.tui.transcript.layout import compaction_card, dmail_card
from kimi_tui.wire import events as ev

TURNS: list[ev.Event] = [
    event
    for turn in range(3)
    for event in (
        ev.TurnBegin(f"words {turn}"),
        ev.CheckpointCreated(2 * turn, f"u{turn}", "user", f"words {turn}", 100 * turn),
        ev.StepBegin(1),
        ev.CheckpointCreated(2 * turn + 1, f"s{turn}", "step", "", 100 * turn + 50),
        ev.TextPart(f"answer {turn}"),
        ev.ToolCall(f"s{turn}:0", "ReadFile", '{"path": "a.txt"}'),
        ev.ToolStarted(f"s{turn}:0", "ReadFile", '{"path": "a.txt"}'),
        ev.ToolResult(f"s{turn}:0", False, "text"),
        ev.TurnEnd("done"),
    )
]
UP_TO: list[ev.Event] = [
    ev.CompactionBegin(300, False),
    ev.CheckpointCreated(0, "sum", "compaction", "", 40),
    ev.CheckpointCreated(1, "u2'", "user", "words 2", 40, "", "u2"),
    ev.CheckpointCreated(2, "s2'", "step", "", 60, "", "s2"),
    ev.CompactionEnd(300, 90, "SUMMARY", 1),
    ev.LineChanged("compaction", 1, 0, "sum"),
]
FROM: list[ev.Event] = [
    ev.CompactionBegin(300, False),
    ev.ContextReverted("compaction", 2, "u1", 5, 1, 8, 2, 300, 130),
    ev.CheckpointCreated(2, "sum", "summary", "", 120),
    ev.CompactionEnd(300, 130, "SUMMARY", 1),
    ev.LineChanged("compaction", 1, 0, "sum"),
]
EDITED: list[ev.Event] = [
    ev.CheckpointCreated(0, "sum2", "compaction", "", 30, "", "sum"),
    ev.CheckpointCreated(1, "u2''", "user", "words 2", 30, "", "u2'"),
    ev.CheckpointCreated(2, "s2''", "step", "", 50, "", "s2'"),
    ev.CompactionEnd(90, 80, "EDITED", 2),
    ev.LineChanged("compaction", 2, 0, "sum2"),
]


def told(*events: ev.Event) -> tuple[TranscriptModel, TimelineModel]:
    chat, timeline = TranscriptModel(), TimelineModel()
    for seq, event in enumerate(events, 1):
        record = ev.EventRecord(seq, float(seq), event)
        chat.apply(record)
        timeline.apply(record)
    return chat, timeline


def shown(chat: TranscriptModel) -> list[tuple[str, int | None, str, bool]]:
    found: list[tuple[str, int | None, str, bool]] = []
    for block in chat.blocks:
        text = ""
        if isinstance(block, UserBlock):
            text = block.text
        elif isinstance(block, AgentBlock):
            text = block.stream.text
        elif isinstance(block, CompactionBlock):
            text = block.summary
        if text:
            found.append((text, block.checkpoint, block.uid, block.live))
    return found


def test_a_kept_call_of_a_dmail_names_no_number_of_before() -> None:
    """It was delivered, taken back by an undo, and what precedes it was summarised."""
    call: list[ev.Event] = [
        ev.ToolCall("s2:1", "SendDMail", '{"checkpoint_id": 2, "message": "x"}'),
        ev.ToolStarted("s2:1", "SendDMail", '{"checkpoint_id": 2, "message": "x"}'),
        ev.ToolResult("s2:1", False, ""),
    ]
    chat, timeline = told(*TURNS[:-1], *call, TURNS[-1], *UP_TO)
    targets = [b.target for b in chat.blocks if isinstance(b, ToolBlock) and b.tool == "SendDMail"]
    assert targets == ["to an earlier checkpoint"]
    names = [(c.name, c.target) for c in timeline.tree.live[-1].calls or ()]
    assert names[-1] == ("D-Mail", "not sent, to an earlier checkpoint")
    # The line that was left keeps it as it was.
    left = timeline.path_of(1)[-1]
    assert [c.target for c in left.calls or ()][-1] == "not sent, to #2"


def test_a_kept_letter_does_not_name_its_sender_by_a_number_of_another_line() -> None:
    letter: list[ev.Event] = [
        ev.ContextReverted("dmail", 3, "s1", 5, 1, 3, 1, 300, 160, "Do not."),
        ev.CheckpointCreated(3, "mail", "dmail", "D-Mail from #5", 160),
        ev.TurnEnd("done"),
    ]
    moved: list[ev.Event] = [
        ev.CompactionBegin(160, False),
        ev.CheckpointCreated(0, "sum", "compaction", "", 40),
        ev.CheckpointCreated(1, "mail'", "dmail", "Do not.", 40, "", "mail"),
        ev.CompactionEnd(160, 60, "SUMMARY", 2),
    ]

    def ways(*events: ev.Event) -> tuple[str, str]:
        chat, timeline = told(*TURNS, *letter, *events)
        (card,) = [block for block in chat.blocks if isinstance(block, DMailBlock)]
        assert card.undid
        assert card.steps == 3
        title = " ".join(dmail_card(card, LayoutRoom(81))[1].text.split())
        return title, whole_label(timeline.tree.live[card.checkpoint or 0])

    title, label = ways()
    assert "D-Mail from #5 to #3" in title
    assert label == "D-Mail from #5"
    title, label = ways(*moved)
    assert "D-Mail from an earlier step to #1" in title
    assert label == "D-Mail from an earlier step"
    # Above a summary that stands for it its numbers mean nothing any more.
    cut = ev.ContextReverted("compaction", 2, "u1", 3, 2, 3, 0, 160, 130)
    past, _ = ways(cut, *FROM[2:])
    assert "D-Mail" in past
    assert "#" not in past


def test_up_to_here() -> None:
    chat, timeline = told(*TURNS, *UP_TO)
    assert shown(chat) == [
        ("words 0", 0, "u0", False),
        ("answer 0", 1, "s0", False),
        ("words 1", 2, "u1", False),
        ("answer 1", 3, "s1", False),
        ("SUMMARY", 0, "sum", True),
        ("words 2", 1, "u2'", True),
        ("answer 2", 2, "s2'", True),
    ]
    points = timeline.tree.live
    assert [(p.id, p.uid, p.kind) for p in points] == [
        (0, "sum", "compaction"),
        (1, "u2'", "user"),
        (2, "s2'", "step"),
    ]
    # The step still shows what it did.
    assert [(call.name, call.target) for call in points[2].calls or ()] == [("Read", "a.txt")]
    assert points[2].state == "done"
    assert points[0].saved == 90 - 300


def test_what_is_kept_of_a_step_and_of_a_letter_is_still_what_it_was() -> None:
    letter: list[ev.Event] = [
        ev.ContextReverted("dmail", 4, "u2", 5, 1, 3, 1, 300, 160, "Do not.", carried=("words 2",)),
        ev.CheckpointCreated(4, "mail", "dmail", "D-Mail from #5", 160),
        ev.TurnEnd("done"),
    ]
    # A word of the program stood before the step's answer, and what the letter carried is gone.
    kept: list[ev.Event] = [
        ev.CompactionBegin(160, False),
        ev.CheckpointCreated(0, "sum", "compaction", "", 40),
        ev.CheckpointCreated(1, "s1'", "step", "Read a.txt", 40, "", "s1", kept=(1, 2)),
        ev.CheckpointCreated(2, "mail'", "dmail", "Do not.", 40, "", "mail", kept=(1,)),
        ev.CompactionEnd(160, 60, "SUMMARY", 2),
    ]
    _, timeline = told(*TURNS, *letter, *kept)
    _, step, mail = timeline.tree.live
    assert [(call.name, call.target) for call in step.calls or ()] == [("Read", "a.txt")]
    assert (mail.text, mail.saved, mail.said) == ("Do not.", 160 - 300, ())


def test_the_card_counts_the_messages_that_stand_below_it() -> None:
    chat, _ = told(*TURNS, *UP_TO)
    (card,) = [block for block in chat.blocks if isinstance(block, CompactionBlock)]

    def says(*events: ev.Event) -> str:
        changes = [chat.apply(ev.EventRecord(0, 0.0, event)) for event in events]
        starts = [change.first for change in changes if change.first is not None]
        assert not events or min(starts) <= (chat.find(card) or 0)
        said = compaction_card(card, LayoutRoom(81))[-1].text
        return said.partition("This summary replaces the messages above. ")[2]

    # Words, an answer with a call, and its result.
    assert says() == "3 messages below are kept."
    cut = ev.ContextReverted("rewind", 2, "s2'", 2, 2, 2, 1, 90, 70)
    assert says(cut, ev.LineChanged("rewind", 2, 0, "x")) == "1 message below is kept."
    assert says(ev.LineChanged("undo", 3, 2, "x")) == "3 messages below are kept."
    letter = ev.ContextReverted("dmail", 1, "u2'", 2, 4, 3, 1, 90, 70, "No.", carried=("words 2",))
    came = ev.CheckpointCreated(1, "mail", "dmail", "D-Mail from #2", 70)
    assert says(letter, came, ev.LineChanged("dmail", 4, 0, "y")) == "1 message below is kept."
    # Above a newer summary nothing of that holds any more, until it is undone.
    newer = ev.CheckpointCreated(0, "sum2", "compaction", "", 40)
    assert not says(newer, ev.CompactionEnd(70, 40, "NEWER", 5))
    assert "now sees a newer summary instead" in compaction_card(card, LayoutRoom(81))[-1].text
    assert says(ev.LineChanged("undo", 6, 5, "")) == "1 message below is kept."


def test_from_here() -> None:
    chat, timeline = told(*TURNS, *FROM)
    first = [("words 0", 0, "u0", True), ("answer 0", 1, "s0", True)]
    past = [
        ("words 1", None, "u1", False),
        ("answer 1", None, "s1", False),
        ("words 2", None, "u2", False),
        ("answer 2", None, "s2", False),
    ]
    assert shown(chat) == [*first, *past, ("SUMMARY", 2, "sum", True)]
    assert [p.uid for p in timeline.tree.live] == ["u0", "s0", "sum"]
    assert [line.n for line in timeline.tree.lines.values()] == [1]
    # The pin goes with the summary, is not carried by a D-Mail, comes back with undo and is grey on the way there and back.
    assert [chat.blocks[place].live for place in chat.dropped_by(2)].count(True) == 1
    rewind = ev.ContextReverted("rewind", 2, "sum", 2, 2, 1, 0, 130, 100)
    assert shown(told(*TURNS, *FROM, rewind)[0]) == first
    letter = ev.ContextReverted("dmail", 1, "s0", 2, 2, 1, 0, 130, 100, "Do not.", carried=("x",))
    assert [one[0] for one in shown(told(*TURNS, *FROM, letter)[0])] == ["words 0", "x"]
    undo, redo = ev.LineChanged("undo", 2, 1, ""), ev.LineChanged("redo", 1, 2, "")
    assert shown(told(*TURNS, *FROM, undo)[0]) == shown(told(*TURNS)[0])
    assert shown(told(*TURNS, *FROM, undo, redo)[0]) == shown(chat)
    before = ev.LineChanged("jump", 1, 2, "sum")
    assert shown(told(*TURNS, *FROM, undo, before)[0]) == first


def test_an_edited_summary_and_the_way_back() -> None:
    chat, timeline = told(*TURNS, *UP_TO, *EDITED)
    assert shown(chat)[4:] == [
        ("EDITED", 0, "sum2", True),
        ("words 2", 1, "u2''", True),
        ("answer 2", 2, "s2''", True),
    ]
    assert [p.uid for p in timeline.tree.live] == ["sum2", "u2''", "s2''"]
    back = (ev.LineChanged("undo", 3, 2, ""), ev.LineChanged("undo", 0, 1, ""))
    chat, timeline = told(*TURNS, *UP_TO, *EDITED, back[0])
    assert shown(chat) == shown(told(*TURNS, *UP_TO)[0])
    assert [p.uid for p in timeline.tree.live] == ["sum", "u2'", "s2'"]
    chat, timeline = told(*TURNS, *UP_TO, *EDITED, *back)
    assert shown(chat) == shown(told(*TURNS)[0])
    assert [p.uid for p in timeline.tree.live] == ["u0", "s0", "u1", "s1", "u2", "s2"]
