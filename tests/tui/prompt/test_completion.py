"""The offers of the prompt, and the effects of keys meanwhile: files after an `@`, and the search of sent messages.

The menu of commands is tried in `tests/tui/prompt/test_menu.py`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from support.stored_sessions import store_session

from kimi_tui.session.prompt_history import append_history, history_file
from kimi_tui.tools.file_list import FileList
from kimi_tui.tui.prompt.completion import PromptCompletion, Written, mention, typed_mention


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def offered(one: Desk) -> str:
    """Return the text of what the menu has chosen."""
    menu = one.screen.completion.menu
    return menu.offer.text if menu is not None and menu.offer is not None else ""


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("@", (0, "")),
        ("see (@src/a", (5, "src/a")),
        ('x @"a na', (2, "a na")),
        ("me@home", None),
        ("@app.py ", None),
        ("@app.py#1", None),
    ],
)
def test_what_is_being_typed_of_a_path(before: str, found: tuple[int, str] | None) -> None:
    assert typed_mention(before) == found


def test_how_a_path_is_written() -> None:
    assert mention("src/app.py") == "@src/app.py"
    assert mention('a "b" c.py') == '@"a \\"b\\" c.py"'


@pytest.mark.exhaustive
async def test_what_is_typed_is_followed_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[str] = []
    follow = PromptCompletion.follow

    def counted(self: PromptCompletion, written: Written) -> bool:
        followed.append(written.text)
        return follow(self, written)

    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press("/")
        await one.sees("/timeline")
        monkeypatch.setattr(PromptCompletion, "follow", counted)
        await one.pilot.press("h", "e")
        await one.pilot.pause()
        # The field tells of the text and of the cursor.
        assert followed == ["/h", "/he"]


async def test_files_are_offered_taken_and_go_with_the_message(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_list = asyncio.Event()
    scan = FileList.scan

    async def late(self: FileList) -> None:
        await may_list.wait()
        await scan(self)

    monkeypatch.setattr(FileList, "scan", late)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("seen"))
        await one.ready()
        work = Path(one.screen.transcript.work_dir)
        (work / "src").mkdir()
        (work / "src" / "with blank.py").write_text("x = 1\n")
        (work / "src" / "\u0430.txt").write_text("x = 1\n")
        (work / "ignored.log").write_text("")
        (work / ".gitignore").write_text("*.log\n")
        area = one.screen.prompt.area
        await one.pilot.press(*"see @wib")
        await one.sees("Listing the files of")
        may_list.set()
        await one.until(lambda: offered(one) == '@"src/with blank.py" ')
        assert "Listing the files" not in one.text()
        # Esc closes; the next letter opens it again.
        await one.pilot.press("escape")
        assert offered(one) == ""
        await one.pilot.press("l")
        assert offered(one)
        await one.pilot.press("tab", *"now")
        assert area.text == 'see @"src/with blank.py" now'
        area.put("look at @ here")
        area.move_cursor((0, 9))
        await one.until(lambda: offered(one) != "")
        offers = one.screen.completion.offers(area.written) or ()
        assert "@ignored.log " not in [offer.text for offer in offers]
        assert "src/<U+0430>.txt" in [offer.shown for offer in offers]
        await one.pilot.press(*"src", "enter")
        assert area.text.startswith("look at @src/")
        # A file that somebody has just made is offered with the next path, even if that is pasted whole.
        (work / "brand_new.py").write_text("")
        area.put("")
        await one.pilot.press(*"@brand")
        await one.until(lambda: offered(one) == "@brand_new.py ")
        area.put('see @"src/with blank.py"')
        await one.pilot.press("enter")
        await one.sees("with blank.py 1 line")
        await one.idle()
        assert "x = 1" in json.dumps(server.requests[-1].body)


@pytest.mark.exhaustive
async def test_a_file_that_is_named_before_the_session_is_open_is_offered_then(home: Path) -> None:
    (home / "app").mkdir()
    (home / "app" / "named.py").write_text("")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        one.screen.prompt.area.put("see @nam")
        assert one.screen.conversation.soul is None
        await one.ready()
        await one.until(lambda: offered(one) == "@named.py ")
        # The space after it is removed if line numbers follow.
        for sign, lines in (("number_sign", "#1-3"), ("colon", ":1-3")):
            one.screen.prompt.area.put("see @nam")
            await one.until(lambda: offered(one) == "@named.py ")
            await one.pilot.press("tab", sign, *"1-3")
            assert one.screen.prompt.area.text == f"see @named.py{lines}"
        one.screen.prompt.area.put("see @nam")
        await one.until(lambda: offered(one) == "@named.py ")
        await one.pilot.press("tab", "x", "space", "number_sign")
        assert one.screen.prompt.area.text == "see @named.py x #"


async def test_the_past_is_searched_here_and_elsewhere(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        area = one.screen.prompt.area
        for text in ("fix the parser", "fix the lexer", "run it"):
            one.screen.bench.add_to_history(text)
        # The arrows go past a command, which no menu was opened for before, and do not choose from one.
        one.screen.bench.add_to_history("/usage")
        await one.pilot.press("up")
        await one.until(lambda: area.text == "/usage")
        await one.pilot.pause()
        await one.pilot.press("up")
        assert area.text == "run it"
        append_history(history_file(home, Path("/elsewhere")), "fix the moon")
        area.put("a draft")
        await one.pilot.press("ctrl+r")
        await one.sees("Search sent messages: Enter uses")
        await one.pilot.press(*"fix")
        await one.sees("other folder")
        assert offered(one) == "fix the lexer"
        await one.pilot.press("ctrl+r", "enter")
        await one.pilot.pause()
        assert area.text == "fix the parser"
        await one.pilot.press("ctrl+r", *"moon", "escape")
        assert area.text == "fix the parser"
        # A search text is not sent: neither if nothing is found, nor if a message equals it.
        await one.pilot.press("ctrl+r", *"fix it", "enter")
        await one.sees("No sent message contains this text.")
        assert area.text == "fix it"
        await one.pilot.press("ctrl+u", *"run it", "enter")
        await one.sees("› run it")
        assert "Search:" not in one.text(), one.text()
        assert area.text == "run it"
        await one.idle()
        assert server.requests == []


async def test_files_are_those_of_the_folder_of_the_session(home: Path) -> None:
    for folder, name in (("app", "own.py"), ("elsewhere", "other.py")):
        (home / folder).mkdir()
        (home / folder / name).write_text("x")
    session = store_session(home, home / "app", "Fix the import", "Done.")
    async with (
        ChatServer() as server,
        desk(home, server.base_url, work=home / "elsewhere", resume=session) as one,
    ):
        await one.ready()
        await one.pilot.press("@")
        await one.until(lambda: offered(one) != "")
        assert offered(one) == "@own.py "


async def test_resources_of_servers_are_offered_beside_files(home: Path) -> None:
    known = [
        ("notes:note://one", "first"),
        ("notes:note://a b", "blank"),
        ("notes:note://x\ny", "line"),
        ("notes:note://\u202e", "hidden"),
        ("notes:" + "x" * 999, "long"),
    ]
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        (Path(one.screen.transcript.work_dir) / "notes.md").write_text("")
        one.screen.completion.resources = lambda: known
        await one.pilot.press(*"see @")
        await one.until(lambda: offered(one) == "@notes.md ")
        await one.pilot.press(*"no")
        await one.until(lambda: offered(one) == "@notes:note://one ")
        offers = one.screen.completion.offers(one.screen.prompt.area.written) or ()
        assert [offer.text for offer in offers] == [
            "@notes:note://one ",
            '@"notes:note://a b" ',
            "@notes.md ",
        ]
        await one.pilot.press(*"tes:note", "down", "tab")
        assert one.screen.prompt.area.text == 'see @"notes:note://a b" '
