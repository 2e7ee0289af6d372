"""A session as frames: each shows what the reducers of the app show at that moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

from support.story import moment_at, whole_story

from kimi_tui.export.cast import write_cast
from kimi_tui.export.markup import BlockWriter
from kimi_tui.export.redaction import Redactor
from kimi_tui.export.story import Story, tell
from kimi_tui.projection.blocks import UserBlock
from kimi_tui.projection.replay import Replay
from kimi_tui.wire.events import CheckpointCreated, EventRecord, FilesChanged, TurnBegin, TurnEnd

RECORDS = whole_story().records


def moments(story: Story) -> Iterator[tuple[list[int], list[str], dict[str, int]]]:
    """Yield the blocks, the uids of the checkpoints and the files of each frame, as a reader of the frames finds them."""
    keys: list[int] = []
    points: list[int] = []
    files: dict[str, int] = {}
    for frame in story.frames:
        keys[frame.blocks.start :] = frame.blocks.items
        points[frame.points.start :] = frame.points.items
        for path, number in frame.files.items():
            files.pop(path, None)
            if number is not None:
                files[path] = number
        yield [*keys], [story.points[place].uid for place in points], dict(files)


def test_every_frame_is_what_a_replay_shows_at_its_stop() -> None:
    replay = Replay(RECORDS)
    story = tell(RECORDS, "")
    stops = replay.recording.stops
    assert len(story.frames) == len(stops)
    for stop, frame, (keys, points, files) in zip(stops, story.frames, moments(story), strict=True):
        moment = moment_at(replay, stop)
        session = moment.session
        assert keys == [block.key for block in session.chat.blocks]
        assert points == [point.uid for point in session.timeline.path_of(0)]
        assert files == {one.path: one.id for one in moment.files.files}
        assert frame.tokens == session.gauge.status.used
        assert frame.at_s == replay.recording.time_of(stop)


def test_a_block_is_described_as_it_is_at_the_end_and_once() -> None:
    story = tell(RECORDS, "")
    assert len(story.blocks) == len({key for keys, _, _ in moments(story) for key in keys})
    # The steps that a D-Mail folded away are in the page, on the world line that it left.
    last = [keys for keys, _, _ in moments(story)][-1]
    assert story.blocks.keys() > set(last)
    assert set(story.lines) >= {0, 1}


def test_the_current_world_line_alone_leads_straight_to_the_end() -> None:
    at = max(n for n, one in enumerate(RECORDS) if isinstance(one.event, CheckpointCreated))
    point = cast("CheckpointCreated", RECORDS[at].event)
    change = FilesChanged(point.uid, ("a.py",))
    records = [*RECORDS[: at + 1], RECORDS[at]._replace(event=change), *RECORDS[at + 1 :]]
    whole, current = tell(records, ""), tell(records, "", all_lines=False)
    *_, (keys, points, files) = moments(whole)
    listed = [files for _, _, files in moments(current)]
    assert files == listed[-1]
    assert files
    # Every file appears with the step that changed it last.
    assert all(now.items() >= before.items() for before, now in pairwise(listed))
    assert list(current.blocks) == keys
    assert [point.uid for point in current.points] == points
    assert set(current.lines) == {0}
    shown: Sequence[int] = []
    for now, _, _ in moments(current):
        assert now[: len(shown)] == shown, "nothing is ever taken away"
        shown = now
    assert shown == keys


def test_records_that_make_no_sense_are_counted_and_the_rest_is_shown() -> None:
    broken = [record for place, record in enumerate(RECORDS) if place % 5]
    story = tell(broken, "")
    assert story.frames
    assert story.blocks


def test_an_empty_session_and_its_title() -> None:
    assert tell([], "").blocks == {}
    assert tell([], "").title == "Untitled session"
    assert tell([], "", title="Mine").title == "Mine"
    said = EventRecord(0, 1.0, TurnBegin("Fix the parser"))
    assert "Fix the parser" in tell([said], "").title


def test_a_message_that_was_not_sent_says_so_in_every_export() -> None:
    last = RECORDS[-1]
    unsent = [TurnBegin("never sent"), TurnEnd("interrupted")]
    more = [last._replace(seq=last.seq + n, event=event) for n, event in enumerate(unsent, 1)]
    story, redactor = tell([*RECORDS, *more], ""), Redactor.of_this_machine()
    writer = BlockWriter(redactor, lambda _: "")
    said = [block for block in story.blocks.values() if isinstance(block, UserBlock)]
    pages = {block.text: writer.article(0, block) for block in said}
    assert ["not sent" in page for page in pages.values()] == [
        text == "never sent" for text in pages
    ]
    cast_lines = "".join(write_cast(story, redactor, 0.0))
    assert cast_lines.count("(not sent)") == 1
