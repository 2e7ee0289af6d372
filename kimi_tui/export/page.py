"""A session as one HTML page that plays it: chat, timeline with world lines, token curve and files, without any request.

All text is in the page as HTML, so it is readable without scripts. The one script only shows, hides and moves what is there;
a policy in the page allows it by its hash and nothing else, so no text of a session can run and no request leaves the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from html import escape
from importlib.resources import files
from typing import Any

from kimi_tui.export.markup import BlockWriter
from kimi_tui.export.story import Story
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.tui.formatting import change, tokens
from kimi_tui.tui.palette import DARK, LIGHT

_CURVE_WIDTH = 1000
_CURVE_HEIGHT = 100


def write_page(story: Story, writer: BlockWriter, note: Callable[[], str], at: datetime) -> str:
    """Return the page.

    Args:
        story: the session.
        writer: writes its blocks.
        note: says what was taken out of the texts; called once all are written.
        at: when it is made.
    """
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    last = set(story.end()[0])
    articles = "\n".join(
        _marked(writer.article(key, block), is_gone=key not in last)
        for key, block in story.blocks.items()
    )
    rows = "\n".join(
        _row(place, point, story.lines[place], writer) for place, point in enumerate(story.points)
    )
    lines = "".join(
        f"<li>World line {line}: {writer.text(name)}</li>"
        for line, name in story.line_names.items()
    )
    if lines:
        lines = f'<h2>World lines</h2><ul id="lines" class="quiet">{lines}</ul>'
    title = writer.text(story.title)
    data = _data(story, writer)
    foot = f"Exported by kimi-tui on {at:%Y-%m-%d %H:%M}."
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_colours()}{_asset("page.css")}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<div id="figures" class="quiet"></div>
<button id="timeline-button" type="button" aria-expanded="false" hidden>Timeline</button>
</header>
<main id="chat" tabindex="-1">
{articles}
</main>
<aside id="side">
<h2>Timeline</h2>
{_curve(story)}
<ol id="points">
{rows}
</ol>
{lines}
<h2>Changed files</h2>
<ul id="files"></ul>
</aside>
<nav id="player" hidden>
<button id="play" type="button">Play</button>
<button id="speed" type="button">1x</button>
<input id="at" type="range" min="0" max="{max(0, len(story.frames) - 1)}" value="0" aria-label="Position in the session">
<button id="theme" type="button">Light, dark</button>
<p class="quiet keys">Space plays · ← → step · [ ] turn · Home End · + − speed · t timeline · l light or dark</p>
</nav>
<footer class="quiet"><p>{escape(foot)} {escape(note())}</p></footer>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("kimi_tui.export").joinpath(name).read_text("utf-8")


def _colours() -> str:
    def variables(palette: Mapping[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in palette.items())

    dark, light = variables(DARK), variables(LIGHT)
    return (
        f":root{{{dark}color-scheme:dark}}:root.light{{{light}color-scheme:light}}"
        f"@media(prefers-color-scheme:light){{:root:not(.dark){{{light}color-scheme:light}}}}"
    )


def _marked(article: str, *, is_gone: bool) -> str:
    """Return an article; one that is not on the current world line is marked, for readers without scripts."""
    return article.replace(' class="', ' class="gone ', 1) if is_gone else article


def _label(point: CheckpointNode) -> str:
    if point.bookmark:
        return point.bookmark
    if point.kind == "dmail":
        return f"D-Mail from #{point.from_id}" if point.from_id >= 0 else "D-Mail"
    if point.is_summary:
        return "Compacted"
    if point.calls and (call := point.main_call):
        more = f" +{len(point.calls) - 1}" if len(point.calls) > 1 else ""
        return f"{call.name} {call.target}".rstrip() + more
    return point.words or ("Continue" if point.is_heading else "Answer")


def _row(place: int, point: CheckpointNode, line: int, writer: BlockWriter) -> str:
    kind = (
        "user"
        if point.is_heading
        else point.kind
        if point.kind in ("dmail", "compaction", "summary")
        else "step"
    )
    figure = (
        tokens(point.tokens) if point.is_heading else change(point.change) if point.change else ""
    )
    where = f' data-line="{line}"' if line else ""
    gone = " gone" if line else ""
    return (
        f'<li id="p{place}" class="{kind}{gone}"{where}><a href="#"><i>#{point.id}</i> '
        f"<span>{writer.text(_label(point))}</span> <b>{escape(figure)}</b></a></li>"
    )


def _curve(story: Story) -> str:
    """Return the tokens of all frames as a drawing; a click on it is a position."""
    frames = story.frames
    most = max([frame.tokens for frame in frames] + [1])
    width = _CURVE_WIDTH / max(1, len(frames) - 1)
    # More points than the drawing has columns make the page larger and nothing finer.
    step = max(1, len(frames) // _CURVE_WIDTH)
    corners = " ".join(
        f"{n * width:.1f},{_CURVE_HEIGHT - _CURVE_HEIGHT * frames[n].tokens / most:.1f}"
        for n in range(0, len(frames), step)
    )
    return (
        f'<svg id="curve" viewBox="0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Tokens in the context, at most {escape(tokens(most))}">'
        f'<polyline points="{corners}"/><line id="needle" y1="0" y2="{_CURVE_HEIGHT}"/></svg>'
    )


def _data(story: Story, writer: BlockWriter) -> str:
    """Return the frames as JSON that can stand in a page: no `<` is in it."""
    frames: list[list[Any]] = [
        [
            round(frame.at_s, 2),
            frame.blocks.start,
            list(frame.blocks.items),
            frame.n_past,
            frame.points.start,
            list(frame.points.items),
            frame.tokens,
            {writer.plain(path): number for path, number in frame.files.items()},
        ]
        for frame in story.frames
    ]
    turns = [place for place, point in enumerate(story.points) if point.begins_turn]
    value = {"frames": frames, "turns": turns, "limit": story.limit}
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
