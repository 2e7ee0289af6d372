"""`[[dmail.rules]]` in `config.toml`: what is read, and one clear line for what cannot be."""

from __future__ import annotations

from pathlib import Path

from support.cases import each

from kimi_tui.config.file import parse_config
from kimi_tui.config.settings import Config, DMailRule

PATH = Path("config.toml")


def parsed(text: str) -> Config:
    return parse_config(text.encode(), PATH)


def test_rules_replace_the_built_in_ones() -> None:
    assert [one.name for one in Config().dmail.active_rules] == ["large result", "payback"]
    assert Config().dmail.active_rules[0].result_tokens == 10_000
    first_off = parsed("[dmail]\nnudge_tokens = 0").dmail.active_rules
    assert [one.name for one in first_off] == ["payback"]
    assert parsed("[dmail]\nrules = []").dmail.active_rules == ()
    text = """
[[dmail.rules]]
name = "logs"
when = { result_tokens = 30_000, window_share = 0.4 }
then = "draft"

[[dmail.rules]]
when = { same_call_failed = 3, circle = true }
"""
    config = parsed(text)
    assert not config.notices
    assert config.dmail.active_rules == (
        DMailRule("logs", "draft", result_tokens=30_000, window_share=0.4),
        DMailRule("same call failed + circle", same_call_failed=3, circle=True),
    )


BAD = {
    "when = { result_token = 3 }": "'result_token', which is not known: did you mean `result_tokens`?",
    "when = { payback = 0 }": "payback must be a whole number from 1 to 1000000, not '0'",
    "when = { circle = 1 }": "circle must be true or false, not '1'",
    "when = { circle = false }": "needs at least one condition",
    "when = 3": "needs a table of conditions",
    "then = 'remind'": "needs a table of conditions",
    "when = { circle = true }\nthen = 'sent'": "has then = 'sent', which must be one of remind, draft, send",
    "when = { circle = true }\nthan = 'send'": "'than', which is not a known key: did you mean `then`?",
    "when = { circle = true }\nname = 3": "needs a name of one line",
}


@each("text", BAD)
def test_a_rule_that_cannot_be_used_is_off_and_named(text: str) -> None:
    config = parsed(f"[[dmail.rules]]\nwhen = {{ payback = 3 }}\n[[dmail.rules]]\n{text}\n")
    [notice] = config.notices
    assert notice.startswith("config.toml: dmail.rules, rule 2, ")
    assert BAD[text] in notice
    assert [one.payback for one in config.dmail.active_rules] == [3]


def test_names_are_unique_and_a_value_that_is_no_list_leaves_the_built_in_rules() -> None:
    twice = "[[dmail.rules]]\nwhen = { circle = true }\n" * 2
    assert "another rule has" in parsed(twice).notices[0]
    config = parsed("[dmail]\nrules = 3")
    assert "[[dmail.rules]]" in config.notices[0]
    assert len(config.dmail.active_rules) == 2
