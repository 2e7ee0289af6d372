"""The page of a session: hostile text stays text, no request leaves it, and what is private is not in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import threading
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.commands import Place

HOSTILE = [
    "<script>document.title='run'</script>",
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "<svg onload=\"document.title='run'\">",
    "[link](javascript:document.title='run')",
    "[link](data:text/html,<script>alert(1)</script>)",
    "![picture](http://127.0.0.1:PORT/picture.png)",
    '<iframe src="http://127.0.0.1:PORT/frame"></iframe>',
    "<style>@import url(http://127.0.0.1:PORT/style)</style>",
    '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:PORT/refresh">',
    "<base href=http://127.0.0.1:PORT/>",
    '"><b onclick=alert(1)>',
    "</article></main></body></html>",
    "--> ]]> <!-- &lt;script&gt; \x1b[31mred\x1b[0m \u202eevil\u202c \u2028",
    "```html\n<script>document.title='run'</script>\n```",
    "```\"><script>document.title='run'</script>\nx\n```",
    "<a href='http://example.org' target=_top>x</a> <http://example.org/?a=1&b=\"2\">",
]


class _Reader(HTMLParser):
    """Collects the tags of a page with their attributes, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self._in_script = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def hostile_page(place: Place, port: int = 9) -> str:
    """Return the page of a session in which the user, the model, tools and file names say hostile things."""
    texts = [text.replace("PORT", str(port)) for text in HOSTILE]
    whole = "\n\n".join(texts)
    name = "<img src=x onerror=alert(1)>.txt"
    answers = [
        call("WriteFile", {"path": name, "content": whole}, text=whole),
        call("Shell", {"command": "cat ./*.txt; printf '\\033]0;x\\007'"}),
        call("SetTodoList", {"todos": [{"title": texts[0], "status": "done"}]}),
        say(whole),
    ]
    place.hold(answers, whole, texts[1])
    out = place.folder / "page.html"
    ran = place.run("export", "--html", "-o", out)
    assert (ran.code, ran.err) == (0, ""), ran
    return out.read_text()


def test_hostile_text_stays_text(place: Place) -> None:
    page = hostile_page(place)
    read = _Reader(page)
    scripts = [attributes for tag, attributes in read.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    digest = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    policies = [a["content"] for tag, a in read.tags if a.get("http-equiv")]
    assert len(policies) == 1
    assert policies[0] is not None
    assert f"script-src 'sha256-{digest}'" in policies[0]
    assert "default-src 'none'" in policies[0]
    json.loads(read.scripts[0])
    for tag, attributes in read.tags:
        assert tag not in ("iframe", "base", "object", "embed", "link", "form"), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert (attributes.get("src") or "data:").startswith("data:"), (tag, attributes)
        address = attributes.get("href") or "#"
        assert re.match(r"#|https?://|mailto:", address), (tag, attributes)
        if tag == "a" and address != "#":
            assert attributes.get("rel") == "noreferrer noopener"
    assert [tag for tag, _ in read.tags].count("main") == 1
    assert "\x1b" not in page
    assert "\u202e" not in page
    # It is there, as text.
    assert "&lt;script&gt;document.title=&#x27;run&#x27;&lt;/script&gt;" in page


def test_what_is_private_is_taken_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place.folder))
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2
    (place.work / "a.txt").write_text(f"KEY={key} in {place.folder}/secret\n")
    place.hold([call("Shell", {"command": "cat a.txt"}), say(f"The key is {key}.")], f"use {key}")
    for form in ("html", "cast"):
        out = place.folder / f"page.{form}"
        ran = place.run("export", f"--{form}", "-o", out)
        assert ran.code == 0
        assert "Removed from the export: " in ran.out
        assert "possible key" in ran.out
        text = out.read_text()
        assert key not in text
        assert str(place.folder) not in text


def test_files_are_not_overwritten_and_options_are_checked(place: Place) -> None:
    session = place.three_turns()
    assert place.run("export", "--html").code == 0
    (page,) = place.work.glob("*.html")
    before = page.read_text()
    again = place.run("export", "--html")
    assert (again.code, again.complaint) == (
        2,
        f'"{page.name}" already exists. Choose another name with -o FILE.',
    )
    assert page.read_text() == before
    assert "no checkpoint #99" in place.run("export", "--html", "--until", 99, "-o", "x").complaint
    assert place.run("export", "--html", "-o", "no/such/folder.html").code == 1
    assert place.run("export", "--html", "-o", str(place.work)).code != 0
    assert place.work.is_dir()
    facts = place.run("export", session.id, "--json").json
    assert {message["role"] for message in facts["messages"]} == {"user", "assistant", "tool"}
    assert len(facts["checkpoints"]) == 8
    assert place.run("export").out == place.run("sessions", "export", session.id).out


def test_a_part_of_a_session(place: Place) -> None:
    place.three_turns()
    place.run("export", "--html", "-o", "all.html")
    place.run("export", "--html", "--until", 6, "-o", "part.html")
    place.run("export", "--html", "--no-tools", "-o", "titles.html")
    whole, part, titles = (
        (place.work / name).read_text() for name in ("all.html", "part.html", "titles.html")
    )
    assert "third" in whole
    assert "third" not in part
    assert 'class="diff"' in whole
    assert 'class="diff"' not in titles
    assert "b.txt" in titles


def test_a_recording_of_a_terminal(place: Place) -> None:
    place.hold(
        [call("Shell", {"command": "printf '\\033[2J\\033]0;evil\\007'"}), say("done \x1b[31m")],
        "clear \x1b]0;evil\x07 the screen",
    )
    assert place.run("export", "--cast", "-o", "a.cast").code == 0
    head, *lines = map(json.loads, (place.work / "a.cast").read_text().splitlines())
    assert (head["version"], head["width"]) == (2, 100)
    assert [kind for _, kind, _ in lines] == ["o"] * len(lines)
    times = [at for at, _, _ in lines]
    assert times == sorted(times)
    text = "".join(said for _, _, said in lines)
    # Only colours of ours are in it.
    assert not re.sub(r"\x1b\[[0-9;]*m", "", text).count("\x1b")
    assert "\x1b[31mdone" not in text
    assert "the screen" in text


@pytest.mark.exhaustive
def test_a_browser_runs_nothing_of_it_and_asks_for_nothing(place: Place, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium on this machine")
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = tmp_path / "hostile.html"
        page.write_text(hostile_page(place, server.server_address[1]))
        quiet = "--disable-background-networking --disable-component-update --disable-sync --disable-quic"
        shown = subprocess.run(
            [
                browser,
                *(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]),
                *quiet.split(),
                f"--user-data-dir={tmp_path / 'profile'}",
                "--virtual-time-budget=4000",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    finally:
        server.shutdown()
        server.server_close()
    assert asked == []
    assert "<title>run</title>" not in shown
    # The page's own script did run: it shows the player.
    assert 'id="figures"' in shown
    assert " tokens · " in shown
