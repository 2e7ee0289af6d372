"""The chat recedes while the timeline floats over it, and comes back; a screen of another size is styled in slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, say
from support.screens import desk
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

from kimi_tui.tui import app
from kimi_tui.tui.textual_patches.compositor import RowCompositor
from kimi_tui.tui.transcript.transcript import Transcript


@pytest.mark.exhaustive
async def test_the_chat_recedes_only_behind_a_floating_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url, size=(80, 24)) as one:
        server.script(say("Plain words."))
        await one.ready()
        await one.say("Hello")
        await one.sees("Plain words.")
        await one.idle()
        chat = one.screen.query_one(Transcript)

        def ink() -> set[object]:
            return {
                segment.style.color
                for strip in chat.render_lines(chat.region.at_offset((0, 0)))
                for segment in strip
                if segment.style is not None and "Plain" in segment.text
            }

        before = ink()
        one.screen.bench.focus_timeline()
        assert chat.behind
        assert ink() != before
        await one.pilot.resize_terminal(120, 40)
        await one.until(lambda: not chat.behind)
        await one.pilot.resize_terminal(80, 24)
        await one.until(lambda: chat.behind)
        one.screen.bench.return_to_prompt()
        assert not chat.behind
        await one.until(lambda: ink() == before)


@pytest.mark.exhaustive
async def test_other_colours_are_styled_a_widget_at_a_time_and_drawn_behind_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setattr(app, "STYLE_SLICE_S", 0.0)
    async with ChatServer() as server, desk(tmp_path, server.base_url, size=(120, 40)) as one:
        await one.ready()
        await one.idle()
        run, style = asyncio.events.Handle._run, Stylesheet.update_nodes
        draw = RowCompositor.render_update
        happened: list[str] = []
        nodes_styled: Counter[DOMNode] = Counter()

        def counted(handle: Any) -> None:
            happened.append("callback")
            run(handle)

        def styled(self: Stylesheet, nodes: Iterable[DOMNode], animate: bool = False) -> None:
            nodes = list(nodes)
            happened.extend(["styled"] * len(nodes))
            nodes_styled.update(nodes)
            style(self, nodes, animate)

        def drawn(self: RowCompositor, *args: Any, **named: Any) -> Any:
            happened.append("drawn")
            return draw(self, *args, **named)

        monkeypatch.setattr(asyncio.events.Handle, "_run", counted)
        monkeypatch.setattr(Stylesheet, "update_nodes", styled)
        monkeypatch.setattr(RowCompositor, "render_update", drawn)
        n_widgets = len([*one.screen.walk_children(with_self=True)])
        assert n_widgets > 10
        before = one.screen.background_colors
        one.app.theme = next(name for name in one.app.available_themes if "light" in name)
        await one.until(lambda: one.screen.background_colors != before)
        await one.until(lambda: happened.count("styled") >= n_widgets and happened[-1] != "styled")
        await one.pilot.pause()
        monkeypatch.undo()
        styles = [at for at, what in enumerate(happened) if what == "styled"]
        assert all("callback" in happened[at:next_at] for at, next_at in pairwise(styles))
        assert "drawn" not in happened[styles[0] : styles[-1]]
        assert "drawn" in happened[styles[-1] :]
        assert set(nodes_styled.values()) == {1}
