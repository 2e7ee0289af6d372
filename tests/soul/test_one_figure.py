"""A row has one figure: on the timeline, in previews, on the gauge, on the command line, and after a restart."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from support.chat_server import call, say, status
from support.soul import Stage, stage, until_end
from support.time_traveller import Views

from kimi_tui.commands.session_details import line_facts
from kimi_tui.projection.blocks import CompactionBlock, DMailBlock
from kimi_tui.soul.checkpoint_table import (
    list_checkpoints,
    shown_lines,
    shown_timeline,
    tokens_now,
)
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire.events import LineChanged
from kimi_tui.wire.queue import Subscription

LONG = "A long question about how the importer doubles quotes, and why. " * 40


class Places:
    """Everywhere where figures are shown; `look` compares them.

    Args:
        on: the session.
    """

    def __init__(self, on: Stage) -> None:
        self.on = on
        self.heard: Subscription = on.soul.wire.subscribe()
        self.views = Views(on.soul.hand_over_history())

    async def look(self) -> dict[str, tuple[int, bool]]:
        """Return the figures of all rows by uid, after checking that every place shows the same."""
        soul, session = self.on.soul, self.on.session
        drained = self.heard.drain()
        self.views.take(drained)
        journal = session.context.journal.entries
        if drained and isinstance(drained[-2].event, LineChanged) and journal[-1].changes_line:
            assert journal[-1].tokens_after == soul.used, journal[-1]
        timeline, anew = self.views.timeline, Views(await soul.history()).timeline
        used = soul.used
        if soul.message_count:
            there = await asyncio.to_thread(lambda: tokens_now(session, shown_timeline(session)))
            assert there == used
        assert (self.views.gauge.status.used, timeline.used, anew.used) == (used, used, used)
        found: dict[str, tuple[int, bool]] = {}
        lines = {one.n: one for one in await soul.lines.all()}
        shown = await asyncio.to_thread(shown_lines, session)
        listed = {one.n: line_facts(one, shown.get(one.n)) for one in session.world_lines.list()}
        for n in (0, *lines):
            points = timeline.path_of(n)
            rows = await asyncio.to_thread(list_checkpoints, session, n)
            figures = [(one.uid, one.tokens, one.measured) for one in points]
            assert figures == [(one.uid, one.tokens, one.measured) for one in anew.path_of(n)]
            assert figures == [(r.uid, r.tokens, not r.estimated) for r in rows if r.said < 0]
            changes = {r.uid: (r.tokens_change, r.change_estimated) for r in rows if r.said < 0}
            for one in points:
                if not one.is_heading and (one.change or one.change_measured):
                    assert changes[one.uid] == (one.change, not one.change_measured)
            found |= {uid: (tokens, measured) for uid, tokens, measured in figures}
            for point in points:
                if n or not point.is_summary or point.id:
                    preview = await soul.travel.preview(Target(point.id, n))
                    after = point.tokens if n else used - timeline.frees(point)
                    assert (preview.tokens_before, preview.tokens_after) == (used, after)
            if n in timeline.tree.lines:
                drawn = timeline.tree.lines[n]
                assert (
                    drawn.tokens_before
                    == lines[n].left_by.tokens_before
                    == listed[n]["tokens_before"]
                )
            if n and (after := timeline.tokens_after(n)[0]):
                assert after == listed[n]["tokens_after"]
            shown_change = {r.uid: r.tokens_change for r in rows if r.said < 0}
            for point, following in pairwise(points):
                # Only after an operation that removes something, or between two figures of the server, may the figure decrease.
                taken = point.kind in ("dmail", "compaction", "summary")
                both = point.measured and following.measured
                assert taken or both or following.tokens >= point.tokens, (point, following)
                assert taken or both or min(point.change, shown_change[point.uid]) >= 0
        self._look_at_cards()
        # A turn that costs nothing, or less, is none.
        live = [tokens for _, tokens, _ in figures] if (figures := _of(timeline.path_of(0))) else []
        assert all(tokens > 0 for tokens in live)
        return found

    def _look_at_cards(self) -> None:
        """Cards and rows give the same figure of what a D-Mail or a compaction left, and so does the line that it left."""
        timeline, chat = self.views.timeline, self.views.chat
        cards = {
            b.uid: b for b in chat.blocks if isinstance(b, (DMailBlock, CompactionBlock)) and b.live
        }
        live = timeline.tree.live
        for place, point in enumerate(live):
            card = cards.get(point.uid) if not point.is_kept else None
            if card is None or point.saved is None:
                continue
            # The messages that were kept beside a summary were on the line left as well.
            following = next((one for one in live[place + 1 :] if not one.is_kept), None)
            assert card.estimated == (not point.change_measured)
            if isinstance(card, DMailBlock):
                assert card.tokens_changed == point.saved
                # A line that was live again has been left by something else since.
                left, is_measured = timeline.tokens_after(card.world_line)
                assert not left or is_measured == (not card.estimated)
                left = left or (following.tokens if following is not None else 0)
            else:
                assert card.tokens_after - card.tokens_before == point.saved
                left = card.tokens_after
            if following is not None and following.kind == "step" and following.measured:
                assert (left, card.estimated) == (following.tokens, False)
            elif following is not None and following.kind == "user":
                assert left == following.tokens
        assert len(cards) < 3

    async def restart(self) -> None:
        """A new process shows what the last one showed."""
        before, used = await self.look(), self.on.soul.used
        await self.on.reopen()
        self.heard = self.on.soul.wire.subscribe()
        self.views = Views(self.on.soul.hand_over_history())
        assert (await self.look(), self.on.soul.used) == (before, used)

    async def rewind(self, target: Target) -> None:
        """Go back, as the preview says."""
        preview = await self.on.soul.travel.preview(target)
        await self.on.soul.travel.rewind(target)
        assert self.on.soul.used == preview.tokens_after
        await self.look()


def _of(points: Any) -> list[tuple[str, int, bool]]:
    return [(point.uid, point.tokens, point.measured) for point in points]


async def test_before_the_first_answer_and_after_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        places = Places(on)
        on.server.script(status(400, {"error": {"message": "No."}}))
        await until_end(on.soul.run(LONG))
        await places.restart()
        # Half as many as are estimated: what was estimated before is fitted to it, once.
        on.server.script(say("Hello.", usage=(2_000, 30)), say("More.", usage=(2_900, 30)))
        await until_end(on.soul.run("second"))
        fitted = await places.look()
        uids = [point.uid for point in places.views.timeline.tree.live]
        first = [fitted[uid][0] for uid in uids]
        # A call that failed has brought nothing, before and after.
        assert places.views.timeline.tree.live[1].change < 50
        assert first == sorted(first)
        assert fitted[uids[-1]] == (2_000, True)
        await until_end(on.soul.run("third"))
        assert (await places.look()).items() >= fitted.items()
        await places.restart()
        # A step that is not answered keeps what was estimated when it began.
        on.server.script(status(400, {"error": {"message": "No."}}))
        await until_end(on.soul.run(LONG))
        newest = places.views.timeline.tree.live
        await places.look()
        assert newest[-1].tokens > newest[-2].tokens == 2_930
        await places.rewind(Target(newest[-2].id))
        await places.restart()
        await places.rewind(Target(0))
        await places.restart()
        on.server.script(say("Anew.", usage=(1_500, 20)))
        await until_end(on.soul.run("anew"))
        await places.restart()


@pytest.mark.exhaustive
async def test_a_server_that_gives_no_figures(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        places = Places(on)
        (on.work / "a.txt").write_text("words of a file\n" * 400)
        on.server.script(call("ReadFile", {"path": "a.txt"}, usage=None), say("Read.", usage=None))
        await on.soul.run(LONG)
        await places.restart()
        on.server.script(say("Again.", usage=None))
        await on.soul.run("again")
        await places.rewind(Target(2))
        await places.restart()


@pytest.mark.exhaustive
async def test_an_answer_without_a_figure_goes_on_from_the_last_one_of_the_server(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        places = Places(on)
        (on.work / "a.txt").write_text("words of a file\n" * 40)
        # Our own estimate of the prompt and the tools is half as large again.
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, usage=(3_000, 40)),
            say("Read.", usage=None),
            call("SendDMail", {"message": "Read no more.", "checkpoint_id": 1}, usage=None),
            say("Done.", usage=None),
        )
        await on.soul.run("read it")
        assert 3_040 < on.soul.used < 3_400
        await on.soul.run("read it again")
        assert 3_000 < on.soul.used < 3_400
        await places.restart()
        assert places.views.gauge.status.used < 3_400
        # Without its record, the chat's card and the statistics say the same of it.
        await on.soul.aclose()
        (on.session.dir / "wire.jsonl").unlink()
        on.session = on.store.find(on.session.id, on.work)
        await on.open()
        places = Places(on)
        (card,) = (b for b in places.views.chat.blocks if isinstance(b, DMailBlock))
        assert (await on.soul.statistics()).dmail_tokens_saved == -card.tokens_changed > 0


@pytest.mark.sample
@pytest.mark.parametrize("lost", ["record", "last figures"])
async def test_what_a_dmail_left_is_known_by_the_context_too(tmp_path: Path, lost: str) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("words of a file\n" * 40)
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, usage=(6_000, 40)),
            call("SendDMail", {"message": "Read no more.", "checkpoint_id": 1}, usage=(7_000, 10)),
            say("Done.", usage=(6_100, 10)),
        )
        places = Places(on)
        await on.soul.run("read it")
        before = await places.look()
        (card,) = (b for b in places.views.chat.blocks if isinstance(b, DMailBlock))
        saved, is_estimated = -card.tokens_changed, card.estimated
        await on.soul.aclose()
        path = on.session.dir / "wire.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        place = min(n for n, line in enumerate(lines) if b'"context_tokens":6110' in line)
        # A kill, before what was published last was written.
        path.write_bytes(b"".join(lines[:place] if lost == "last figures" else lines[:1]))
        for _ in range(2):
            on.session = on.store.find(on.session.id, on.work)
            await on.open()
            places = Places(on)
            (card,) = (b for b in places.views.chat.blocks if isinstance(b, DMailBlock))
            assert (-card.tokens_changed, card.estimated) == (saved, is_estimated)
            assert (await on.soul.statistics()).dmail_tokens_saved == saved
            if lost == "last figures":
                assert await places.look() == before
            await on.soul.aclose()
        await on.open()


@pytest.mark.exhaustive
async def test_after_every_operation(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        places = Places(on)
        (on.work / "a.txt").write_text("words of a file\n" * 400)
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, usage=(4_000, 40)),
            say("Read.", usage=(7_500, 10)),
            call("ReadFile", {"path": "a.txt"}, usage=(8_000, 40)),
            call("SendDMail", {"message": "Read no more.", "checkpoint_id": 4}, usage=(11_000, 40)),
            say("Done.", usage=(8_300, 10)),
        )
        await on.soul.run(LONG)
        await on.soul.run("read it again")
        await places.look()
        await places.restart()
        # To a step whose tool's result was sent: what the server read there holds, also in a new process.
        await places.rewind(Target(2))
        await places.restart()
        await on.soul.travel.undo()
        await places.restart()
        await on.soul.dmails.send(Target(3), "Think first. " * 20)
        await places.restart()
        on.server.script(say("Thought.", usage=(7_900, 10)))
        await on.soul.resume()
        await places.look()
        on.server.script(say("A summary of it.", usage=(7_900, 50)))
        assert await on.soul.compact(start=Target(2))
        await places.restart()
        on.server.script(say("Go on.", usage=(4_600, 10)), say("All of it.", usage=(4_600, 50)))
        await on.soul.run("and now")
        assert await on.soul.compact()
        await places.restart()
        await on.soul.travel.undo()
        await places.look()
        for n in sorted(places.views.timeline.left_lines)[:2]:
            await places.rewind(Target(END, n))
            await places.restart()
        await places.rewind(Target(2, 1))
        await places.restart()
        await on.soul.travel.clear()
        await places.restart()
        on.server.script(say("Hello.", usage=(3_900, 10)))
        await on.soul.run("hello")
        await places.restart()


async def test_what_was_estimated_between_two_figures_lies_between_them(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        places = Places(on)
        (on.work / "a.txt").write_text("words of a file\n" * 400)
        # The estimate of what is read is far more than the server counts.
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, usage=(4_000, 40)),
            status(400, {"error": {"message": "No."}}),
        )
        await until_end(on.soul.run(LONG))
        await places.look()
        assert on.soul.used > 5_000
        on.server.script(say("Well.", usage=(4_400, 10)))
        await until_end(on.soul.run("again"))
        live = places.views.timeline.tree.live
        await places.look()
        assert 4_040 < live[2].tokens < live[3].tokens < live[4].tokens == 4_400
        assert not live[3].measured
        # Less than before, as where thoughts are not sent again: nothing is said to have shrunk but what did.
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, usage=(4_450, 900)),
            status(400, {"error": {"message": "No."}}),
        )
        await until_end(on.soul.run("and again"))
        on.server.script(say("Well.", usage=(4_800, 10)))
        await until_end(on.soul.run("once more"))
        await places.restart()
        # The figure after a compaction is known with the next answer, even if messages were kept and sent since.
        on.server.script(say("A summary of it.", usage=(4_800, 50)))
        assert await on.soul.compact()
        await places.look()
        (card,) = (b for b in places.views.chat.blocks if isinstance(b, CompactionBlock))
        assert card.estimated
        left = card.tokens_after
        on.server.script(say("On.", usage=(left - 400, 10)))
        await until_end(on.soul.run("go on"))
        await places.restart()
        (card,) = (b for b in places.views.chat.blocks if isinstance(b, CompactionBlock))
        assert left - 600 < card.tokens_after < left - 300


IMPORTED: dict[str, list[dict[str, Any]]] = {
    "answered": [
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": LONG},
        {"role": "_checkpoint", "id": 1},
        {"role": "assistant", "content": "Hello."},
        {"role": "_usage", "token_count": 900},
        {"role": "_checkpoint", "id": 2},
        {"role": "user", "content": "and?"},
        {"role": "_checkpoint", "id": 3},
        {"role": "assistant", "content": "Nothing."},
        {"role": "_usage", "token_count": 960},
    ],
    "never": [
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": LONG},
        {"role": "_checkpoint", "id": 1},
    ],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", IMPORTED)
async def test_a_session_without_a_record(tmp_path: Path, shape: str) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("To be replaced.", usage=(10, 1)))
        await on.soul.run("to be replaced")
        await on.soul.aclose()
        (prompt, *_) = on.file()
        records = [prompt, *IMPORTED[shape]]
        file = on.session.dir / "context.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        (on.session.dir / "wire.jsonl").unlink()
        await on.reopen()
        places = Places(on)
        await places.restart()
        live = places.views.timeline.tree.live
        if shape == "answered":
            # The program that wrote it gave its model other tools than ours.
            assert live[0].tokens < live[1].tokens == 900
            assert (live[2].tokens, live[2].measured) == (900, True)
        on.server.script(say("More.", usage=(5_000, 10)))
        await on.soul.run("more")
        await places.look()
        await places.restart()
        await places.rewind(Target(1))
        await places.restart()


@pytest.mark.parametrize("wish", ["lean", "off"])
async def test_other_tools_before_anything_was_said(
    tmp_path: Path, wish: Literal["lean", "off"]
) -> None:
    async with stage(tmp_path) as on:
        before = on.soul.used
        on.soul.use_tools(wish)
        assert 1 < on.soul.used < before
        await on.soul.flush()
        # A kill: a session in which nothing was said leaves no files when it is closed.
        folder = on.session.dir
        shutil.copytree(folder, tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
        await on.soul.aclose()
        shutil.copytree(tmp_path / "killed", folder, dirs_exist_ok=True)
        on.session = on.store.find(on.session.id, on.work)
        await on.open()
        assert on.soul.used == before
        on.soul.use_tools(wish)
        assert 1 < on.soul.used < before


async def test_fewer_tools_take_their_part_of_a_figure_that_was_fitted(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        # The server counts a third of what is estimated, so the figure of the beginning is less than the tools by estimate.
        on.server.script(say("Hello.", usage=(1_700, 30)))
        await on.soul.run("first")
        await on.soul.travel.rewind(Target(0))
        before = on.soul.used
        on.soul.use_tools("off")
        fewer = on.soul.used
        assert before / 20 < fewer < before / 5
        on.soul.use_tools("")
        assert on.soul.used == before
        on.soul.use_tools("off")
        await on.reopen()
        # The tools are on again, and the figure is the one of before.
        assert on.soul.used == pytest.approx(before, rel=0.02)
        on.soul.use_tools("off")
        assert on.soul.used == pytest.approx(fewer, rel=0.02)
