"""Every key of `config.toml` as the settings screen and docs/configuration.md show it, from the declarations in `settings`.

Models and providers have names of the user's own and are chosen with `/model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kimi_tui.config.checks import Check, Kind
from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.config.settings import SETTINGS, Config, Holds, Setting

Value = bool | int | float | str | tuple[str, ...] | None

HOLDS: Mapping[Holds, str] = {
    "now": "at once",
    "session": "in the next session",
    "start": "after a restart",
}


def settings() -> Iterator[Setting]:
    """Yield all settings, in the order of the file; those of `[keys]` last."""
    yield from SETTINGS.values()
    for action, keys in DEFAULT_KEYS.items():
        yield Setting(keys, Check("key", str), holds="start", key=f"keys.{action}")


def value_of(config: Config, setting: Setting) -> Value:
    """Return the value of a setting in a configuration."""
    if setting.check.kind == "key":
        return config.keys.get(setting.action, setting.default)
    table = getattr(config, setting.section) if setting.section else config
    return cast(Value, getattr(table, setting.name))


def in_words(value: Value) -> str:
    """Return a value in words; empty for one that is not set."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "" if value is None else str(value)


def parsed(setting: Setting, text: str) -> Any:
    """Return the TOML value of a text that the user entered for a setting; None for an empty text, which means the default.

    Raises:
        ValueError: the text is no valid value of the setting.
    """
    text = text.strip()
    if not text:
        return None
    value = _value(setting, text)
    setting.check.read(value)
    return value


def _value(setting: Setting, text: str) -> Any:
    if setting.check.kind == "flag":
        return text == "on"
    if setting.check.kind == "list":
        return [
            part for line in text.split("\n") for one in line.split(",") if (part := one.strip())
        ]
    if setting.check.kind == "number":
        plain = text.replace(",", "").replace("_", "")
        try:
            return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
        except ValueError:
            raise ValueError(f'must be a number, not "{text[:40]}"') from None
    return text


def page() -> str:
    """Return the table as a page of Markdown."""
    rows = [
        "# Configuration",
        "",
        "`config.toml` is in the platform's configuration folder (`~/.config/kimi-tui` on Linux), or in `$KIMI_TUI_HOME`. "
        "If it does not exist, kimi-cli's `~/.kimi/config.toml` is read. `/settings` shows and changes every setting and keeps "
        "the rest of the file, including comments. An unknown setting, or one with a wrong value, is ignored; kimi-tui names it when it starts.",
        "",
        "You choose the names of models and providers. `/model` writes sections such as these:",
        "",
        "```toml",
        *_EXAMPLE.strip().split("\n"),
        "```",
    ]
    section = None
    for setting in SETTINGS.values():
        if setting.section != section:
            section = setting.section
            rows += ["", f"## [{section}]" if section else "## Top of the file", ""]
            rows += ["| key | default | values | takes effect | meaning |", "|---|---|---|---|---|"]
        default = _in_toml(setting.default)
        takes = ", ".join(f"`{one}`" for one in setting.check.choices) or _TAKES[setting.check.kind]
        rows.append(
            f"| `{setting.name}` | {f'`{default}`' if default else ''} | {takes} | {HOLDS[setting.holds]} | {setting.meaning} |"
        )
    rows += [
        "",
        "## [[dmail.rules]]",
        "",
        "When the agent is reminded of D-Mails, or one is drafted or sent: see [dmail-rules.md](dmail-rules.md).",
    ]
    rows += ["", "## [checks]", "", *_CHECKS.strip().split("\n")]
    rows += ["", "## [external_agents]", "", *_AGENTS.strip().split("\n")]
    rows += [
        "",
        "## [keys]",
        "",
        "Write several keys with commas between them. These are the actions and their default keys:",
        "",
    ]
    rows += ["| action | keys |", "|---|---|"]
    rows += [f"| `{action}` | `{keys}` |" for action, keys in DEFAULT_KEYS.items()]
    return "\n".join(rows) + "\n"


def _in_toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and value else in_words(value)


_TAKES: Mapping[Kind, str] = {
    "flag": "`true`, `false`",
    "number": "a number",
    "text": "a text",
    "list": "a list of strings",
}
_EXAMPLE = """
default_model = "kimi-k3"

[providers.moonshot]
type = "kimi"                  # or openai_legacy
base_url = "https://api.moonshot.ai/v1"
api_key = "..."                # or "keyring:NAME", for the system's keyring
headers = { "X-Org" = "..." }  # sent with every request to this server, kept as secret as the key; at most 20
                               # Authorization, Cookie, Host, User-Agent, Accept* and Content-* are set by the program alone
# max_parallel = 2             # how many futures (/futures) may use this server at a time; the default is 1 for a server on this machine or in the local network, else 2

[models.kimi-k3]
provider = "moonshot"
model = "kimi-k3"
max_context_size = 262144
capabilities = ["thinking"]
# lean = true                  # a short system prompt and five tools; the default only for contexts under 16,000 tokens

[models.kimi-k3.prices]        # per million tokens; the token gauge and /stats then show the cost
input = 0.6
cached_input = 0.15
output = 2.5
currency = "$"

[web.search]                   # without it the agent has no tool for searching the web
provider = "brave"             # or searxng, tavily, exa, kimi
api_key = "..."                # or "keyring:NAME"
# base_url = "http://localhost:8888"  # where SearXNG runs; for the others only if it is not the usual one
"""


_CHECKS = """
Programs (checks) that run in the sandbox after each edit of the agent, in this order. A check is a list of words and runs without a shell;
`{file}` is replaced with the path of the edited file. If a check fails, the agent gets the first 20 lines of its output. If a check changes the
file, as a formatter does, the chat shows this change as a separate diff, and a rewind undoes it too. `/checks` lists the checks. They are read
from your own configuration only, never from a repository.

```toml
[checks]
after_edit = [
  ["./tools/lint", "{file}"],                                  # after every edit
  { files = ["*.py"], run = ["ruff", "format", "{file}"] },     # after edits of such files
  { files = ["*.py"], run = ["ruff", "check", "{file}"] },
]
```
"""

_AGENTS = """
Other agents that kimi-tui can drive over the Agent Client Protocol, beside those that it knows: see [external-agents.md](external-agents.md).

```toml
[external_agents.codex]                # kimi-tui --external-agent codex
command = ["codex-acp"]                # the program and its arguments; no shell reads them; not needed for an agent that kimi-tui knows
env = ["OPENAI_API_KEY"]               # variables that it gets in addition to the usual ones
mcp = false                            # do not tell it of your MCP servers
```
"""


if __name__ == "__main__":
    print(page(), end="")
