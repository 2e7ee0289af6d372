"""Every key of `config.toml` in words: what it means, what it takes, its default, and from when on a change of it holds.

The settings screen and docs/configuration.md are made of this table; models and providers have names of the user's own and
are chosen with `/model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from kimi_tui.config.file import GLYPHS, KEYS_SENT, NOTIFY_WAYS, START_MODES, TABLES, THEMES
from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.config.settings import Config

Kind = Literal["flag", "choice", "number", "text", "list", "key"]
Holds = Literal["now", "session", "start"]
Value = bool | int | float | str | tuple[str, ...] | None

HOLDS: Mapping[Holds, str] = {
    "now": "at once",
    "session": "from the next session on",
    "start": "from the next start on",
}


class Setting(NamedTuple):
    """A key of the configuration.

    Attributes:
        key: its dotted name in the file (`loop_control.max_steps_per_turn`).
        meaning: a sentence.
        kind: what it takes.
        choices: the values of a `choice`, in the order in which they are offered.
        holds: from when on a change of it holds.
    """

    key: str
    meaning: str
    kind: Kind
    choices: tuple[str, ...] = ()
    holds: Holds = "session"

    @property
    def section(self) -> str:
        """The table in which it stands; empty for the top of the file."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name in that table."""
        return self.key.rpartition(".")[2]

    @property
    def action(self) -> str:
        """The action of a key, by its name in `[keys]`."""
        return self.key.partition(".")[2]


SETTINGS: tuple[Setting, ...] = (
    Setting("default_model", "The model to begin with, by its name in [models].", "text", (), "start"),
    Setting(
        "default_thinking",
        "How much the model thinks before it answers: on, off, or an effort that it takes, as low or high.",
        "text",
        (),
        "start",
    ),
    Setting("mode", "What is asked at the start.", "choice", START_MODES, "start"),
    Setting("theme", "The colours; auto is dark or light, as the terminal is.", "choice", THEMES, "now"),
    Setting("glyphs", "The signs on the screen: Unicode's, or ASCII's where a font lacks them.", "choice", GLYPHS, "start"),
    Setting("reduced_motion", "Nothing on the screen moves by itself.", "flag", (), "now"),
    Setting("titles", "Whether the model names a session after its first turn, in one small call.", "flag"),
    Setting("hints", "Whether a short hint comes when something happens for the first time; each comes once.", "flag", (), "now"),
    Setting("stream_timeout_s", "Seconds without a piece of an answer that has begun after which you are asked whether to wait on.", "number", (), "start"),
    Setting(
        "first_answer_timeout_s",
        "Seconds for which the first piece of an answer is waited for before you are asked; 0 for 1800, and for no limit at this machine and in its network.",
        "number",
        (),
        "start",
    ),
    Setting("loop_control.max_steps_per_turn", "Steps after which a turn stops and asks.", "number"),
    Setting("loop_control.max_retries_per_step", "How often a call that failed is made again.", "number"),
    Setting("loop_control.reserved_context_size", "Tokens of the window that are kept free for the answer.", "number"),
    Setting("loop_control.compaction_trigger_ratio", "The share of the window from which on the conversation is compacted by itself.", "number"),
    Setting("loop_control.compaction", "How: simple is the one there is.", "text"),
    Setting("loop_control.patience", "Seconds for which an overloaded or lost server is waited out; 0 for a few attempts.", "number"),
    Setting("loop_control.same_call_limit", "Same calls in a row, with the same result, after which you are asked how the turn goes on; 0 for never.", "number"),
    Setting("loop_control.same_dmail_limit", "D-Mails in a row without a new tool result after which you are asked how the turn goes on; 0 for never.", "number"),
    Setting("dmail.enabled", "Whether the agent may write to its past self.", "flag"),
    Setting("dmail.nudge_tokens", "Tokens of a tool's result from which on it is reminded of that; 0 for never.", "number"),
    Setting("dmail.review", "Whether you read each D-Mail before it goes.", "flag"),
    Setting("sandbox.enabled", "Whether commands and searches run in a sandbox, where the machine can hold one.", "flag", (), "start"),
    Setting("sandbox.writable", "Folders outside the work folder that commands can really change; caches of package managers have private layers without this.", "list"),
    Setting("sandbox.readable", "Files and folders of the home folder that commands may read besides toolchains, caches and settings.", "list"),
    Setting("sandbox.network", "Whether they may use the network.", "flag"),
    Setting(
        "secrets.send",
        "What is done about a result that has what looks like a key: mark it on its card, or ask too before it goes to the model.",
        "choice",
        KEYS_SENT,
    ),
    Setting("notify.asking", "Whether you are told when the agent asks while the terminal has no focus.", "flag", (), "start"),
    Setting("notify.finished", "Whether you are told when a turn ends while the terminal has no focus.", "flag", (), "start"),
    Setting("notify.how", "By which means of the terminal.", "choice", NOTIFY_WAYS, "start"),
    Setting("prompt.vim", "Whether the prompt has the keys of vim: Esc leads from writing to commands.", "flag", (), "now"),
    Setting("mouse.capture", "Whether the program takes the mouse; else selecting is the terminal's.", "flag", (), "start"),
)  # fmt: skip
"""All but the keys, in the order of the file."""


def settings() -> Iterator[Setting]:
    """All settings, the keys of each action last."""
    yield from SETTINGS
    for action in DEFAULT_KEYS:
        yield Setting(f"keys.{action}", "", "key", (), "start")


_TABLES = {"loop_control": "loop"}
_FIELDS = {"default_thinking": "thinking"}


def value_of(config: Config, setting: Setting) -> Value:
    """What a configuration says of a setting, its default where the file says nothing."""
    if setting.kind == "key":
        return config.keys.get(setting.action, DEFAULT_KEYS[setting.action])
    table = (
        getattr(config, _TABLES.get(setting.section, setting.section))
        if setting.section
        else config
    )
    return cast(Value, getattr(table, _FIELDS.get(setting.key, setting.name)))


def default_of(setting: Setting) -> Value:
    """Its value where the file says nothing."""
    return value_of(Config(), setting)


def in_words(value: Value) -> str:
    """A value for people; empty for one that nothing says."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "" if value is None else str(value)


def parsed(setting: Setting, text: str) -> Any:
    """The TOML value of a text that the user entered for a setting; None for an empty one, which means the default.

    Raises:
        ValueError: it is nothing that the setting takes.
    """
    text = text.strip()
    if not text:
        return None
    value = _value(setting, text)
    table, _, name = setting.key.rpartition(".")
    if check := TABLES.get(table, {}).get(name):
        check(value)
    return value


def _value(setting: Setting, text: str) -> Any:
    if setting.kind == "flag":
        return text == "on"
    if setting.kind == "list":
        return [
            part for line in text.split("\n") for one in line.split(",") if (part := one.strip())
        ]
    if setting.kind == "number":
        plain = text.replace(",", "").replace("_", "")
        try:
            return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
        except ValueError:
            raise ValueError(f"must be a number, not {text[:40]}") from None
    return text


def page() -> str:
    """The table as a page of Markdown."""
    rows = [
        "# Configuration",
        "",
        "`config.toml` stands in the platform's configuration folder (`~/.config/kimi-tui` on Linux), or in `$KIMI_TUI_HOME`. "
        "Where there is none, kimi-cli's `~/.kimi/config.toml` is read. `/settings` shows and changes all of it; what else "
        "stands in the file stays, comments too. A key that is unknown or wrong costs only itself and is named at the start.",
        "",
        "Models and providers have names of your own; `/model` writes them:",
        "",
        "```toml",
        *_EXAMPLE.strip().split("\n"),
        "```",
    ]
    section = None
    for setting in SETTINGS:
        if setting.section != section:
            section = setting.section
            rows += ["", f"## [{section}]" if section else "## Top of the file", ""]
            rows += ["| key | default | takes | holds | meaning |", "|---|---|---|---|---|"]
        default = _in_toml(default_of(setting))
        takes = ", ".join(f"`{one}`" for one in setting.choices) or _TAKES[setting.kind]
        rows.append(
            f"| `{setting.name}` | {f'`{default}`' if default else ''} | {takes} | {HOLDS[setting.holds]} | {setting.meaning} |"
        )
    rows += [
        "",
        "## [keys]",
        "",
        "Several keys are written with commas. The actions and what they have without a line here:",
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
    "list": "a list of texts",
}
_EXAMPLE = """
default_model = "kimi-k3"

[providers.moonshot]
type = "kimi"                  # or openai_legacy
base_url = "https://api.moonshot.ai/v1"
api_key = "..."                # or "keyring:NAME", for the system's keyring
headers = { "X-Org" = "..." }  # sent with every request to this server, kept as secret as the key; at most 20
                               # Authorization, Cookie, Host, User-Agent, Accept* and Content-* are set by the program alone

[models.kimi-k3]
provider = "moonshot"
model = "kimi-k3"
max_context_size = 262144
capabilities = ["thinking"]
# lean = true                  # a short system prompt and five tools; by itself only for windows under 16,000 tokens

[models.kimi-k3.prices]        # per million tokens; the gauge and /stats then say what was spent
input = 0.6
cached_input = 0.15
output = 2.5
currency = "$"
"""


if __name__ == "__main__":
    print(page(), end="")
