"""The secrets and names that an export takes out of every text."""

from __future__ import annotations

from kimi_tui.export.redaction import Redactor


def test_keys_paths_and_names_go_and_are_counted() -> None:
    redactor = Redactor("/home/eve", {"eve": "user", "wonderland": "host"})
    text = "eve@wonderland:~$ cat /home/eve/.env\nOPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD\n"
    cleaned = redactor(text)
    assert "sk-proj-abc" not in cleaned
    assert "eve" not in cleaned
    assert "wonderland" not in cleaned
    assert cleaned.startswith("user@host:~$ cat ~/.env\n")
    assert redactor.counts == {"key": 1, "home folder": 1, "name": 2}
    assert redactor.words == ("1 possible key, 1 path of the home folder, 2 user or host names")


def test_a_name_inside_a_word_stays() -> None:
    redactor = Redactor("", {"eve": "user"})
    assert redactor("every eve_ning eve's") == "every user_ning user's"
    assert redactor.counts == {"name": 2}


def test_names_that_tell_nothing_stay() -> None:
    redactor = Redactor("/", {"root": "user", "me": "user", "localhost": "host"})
    assert redactor("root me localhost /etc") == "root me localhost /etc"
    assert redactor.words == ""


def test_the_redactor_of_this_machine_knows_its_home(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone-else")
    assert Redactor.of_this_machine()("/home/someone-else/x") == "~/x"
