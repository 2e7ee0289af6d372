"""The configuration as plain values. A setting is declared once, at its field: its type and default, the check of its value
(`checks`), its meaning, and the time at which a change takes effect. The reader of the file, the settings screen and
docs/configuration.md use these declarations (`declared`, `TABLES`).

They are named tuples because they are made before the first paint: a frozen dataclass takes seven times as long to define.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast

from kimi_tui.config.checks import (
    COMMAND,
    CURRENCY,
    FLAG,
    PROVIDER_TYPE,
    SHELL_COMMAND,
    STRIPPED,
    TEXT,
    TEXTS,
    THINKING,
    URL,
    VARIABLES,
    Check,
    number,
    one_of,
    some_of,
    whole,
)

LEAST_WINDOW = 1_024
"""Tokens. Not even the short system prompt and an answer would fit into a smaller window."""
KEYRING_PREFIX = "keyring:"
"""The beginning of an `api_key` that names a key in the system's keyring."""
AUTO = "auto"
"""The theme that is dark or light as the terminal is."""
THEMES = tuple(
    f"{AUTO} dark light 16 atom-one-dark atom-one-light catppuccin-frappe catppuccin-latte catppuccin-macchiato "
    "catppuccin-mocha dracula flexoki gruvbox monokai nord rose-pine rose-pine-dawn rose-pine-moon solarized-dark "
    "solarized-light tokyo-night".split()
)
"""Our themes, and those of Textual, whose names are needed before Textual is imported."""
Holds = Literal["now", "session", "start"]
T = TypeVar("T")


class Setting:
    """A key of the configuration.

    Args:
        default: its value if the file does not have the key.
        check: the check of its value.
        meaning: a sentence; empty for a key that has no row on the settings screen.
        holds: the time at which a change takes effect.
        title: a few words, for the settings screen.
        group: the heading under which the settings screen lists it.
        former_name: another name, which is read as well.
        key: its dotted name in the file (`loop_control.max_steps_per_turn`).
    """

    __slots__ = ("check", "default", "former_name", "group", "holds", "key", "meaning", "title")

    def __init__(
        self,
        default: Any,
        check: Check,
        meaning: str = "",
        holds: Holds = "session",
        *,
        title: str = "",
        group: str = "",
        former_name: str = "",
        key: str = "",
    ) -> None:
        self.default = default
        self.check = check
        self.meaning = meaning
        self.holds: Holds = holds
        self.title = title
        self.group = group
        self.former_name = former_name
        self.key = key

    @property
    def section(self) -> str:
        """The table of the key; empty for the top of the file."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name of the key in its table."""
        return self.key.rpartition(".")[2]

    @property
    def action(self) -> str:
        """The action of a key binding, by its name in `[keys]`."""
        return self.key.partition(".")[2]


NEEDED: Any = object()
"""The default of a field without one."""
_DECLARED: dict[type, dict[str, Setting]] = {}


def setting(
    default: T,
    check: Check,
    meaning: str = "",
    holds: Holds = "session",
    *,
    title: str = "",
    group: str = "",
    former_name: str = "",
) -> T:
    """Declare a field of a `table` as a setting, instead of its default. See `Setting`."""
    return cast(
        T,
        Setting(default, check, meaning, holds, title=title, group=group, former_name=former_name),
    )


MODEL, PERMISSIONS, LOOKS = "Model", "Permissions and sandbox", "Appearance"
CONTEXT, LIMITS, DMAILS, ALERTS = "Context", "Limits", "D-Mails", "Notifications"
GROUPS = (MODEL, PERMISSIONS, LOOKS, CONTEXT, LIMITS, DMAILS, ALERTS)
"""The headings of the settings screen, in its order."""


def table(kind: type[T]) -> type[T]:
    """Set the defaults of a named tuple's fields to those of its settings."""
    named: Any = kind
    fields: dict[str, Any] = named._field_defaults
    settings = {name: one for name, one in fields.items() if isinstance(one, Setting)}
    defaults = {name: one.default for name, one in settings.items()}
    named._field_defaults = {
        name: one for name, one in (fields | defaults).items() if one is not NEEDED
    }
    named.__new__.__defaults__ = (*named._field_defaults.values(),)
    _DECLARED[kind] = settings
    return kind


def declared(kind: type) -> Mapping[str, Setting]:
    """Return the settings among the fields of a table, by field name."""
    return _DECLARED[kind]


class ConfigError(Exception):
    """The configuration cannot be used at all; the message is one line for the user, with file and line."""


@table
class ProviderConfig(NamedTuple):
    """A server with its own values: `api_key` and the values of `headers` are never shown and never logged. `max_parallel` is how
    many requests of futures it gets at once; 0 for the usual number.
    """

    name: str
    base_url: str = setting(NEEDED, URL)
    api_key: str = setting("", STRIPPED)
    type: str = setting("openai_legacy", PROVIDER_TYPE)
    dialect: str | None = setting(None, TEXT)
    max_parallel: int = setting(0, whole(0, 16))
    headers: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"ProviderConfig({self.name!r}, {self.base_url!r})"


_PRICE = number(0, 1_000_000)


@table
class ModelPrices(NamedTuple):
    """The price of a million tokens. `cached_input` is for input that the server had cached from an earlier call."""

    input: float = setting(NEEDED, _PRICE)
    cached_input: float = setting(NEEDED, _PRICE)
    output: float = setting(NEEDED, _PRICE)
    currency: str = setting("$", CURRENCY)


USUAL_PRICES = ModelPrices(1.0, 0.1, 5.0, "")
"""Prices in shares of fresh input, where the configuration has none: those of most servers with a prefix cache."""


@table
class ModelConfig(NamedTuple):
    """A model under a name of the user's own. `max_context_size`, `prices` and `lean` are None if they are not configured.

    With `lean` the model gets a short system prompt and few tools.
    """

    name: str
    provider: str = setting(NEEDED, TEXT)
    model: str = setting(NEEDED, TEXT)
    max_context_size: int | None = setting(None, whole(LEAST_WINDOW, 100_000_000))
    capabilities: tuple[str, ...] = setting((), TEXTS)
    prices: ModelPrices | None = None
    lean: bool | None = setting(None, FLAG)


@table
class LoopControl(NamedTuple):
    """The limits of the agent's loop, under kimi-cli's names."""

    max_steps_per_turn: int = setting(
        1000,
        whole(1, 1_000_000),
        "Number of steps after which a turn stops and asks you.",
        title="Steps per turn",
        group=LIMITS,
        former_name="max_steps_per_run",
    )
    max_retries_per_step: int = setting(
        3,
        whole(1, 100),
        "Number of times that a failed request is retried.",
        title="Retries",
        group=LIMITS,
    )
    reserved_context_size: int = setting(
        50_000,
        whole(0, 100_000_000),
        "Tokens of the context that are kept free for the answer.",
        title="Reserved for answer (tokens)",
        group=CONTEXT,
    )
    compaction_trigger_ratio: float = setting(
        0.85,
        number(0.1, 1.0),
        "Fraction of the context, from 0.1 to 1, at which it is compacted automatically.",
        title="Compaction threshold",
        group=CONTEXT,
    )
    compaction: str = setting(
        "simple",
        STRIPPED,
        "How the context is compacted: simple, or package.module:Class for a method of your own.",
        title="Compaction method",
        group=CONTEXT,
    )
    patience: float = setting(
        600.0,
        number(0, 86_400),
        "How many seconds to keep retrying an overloaded or unreachable server. If it is 0, the number of retries (max_retries_per_step) is the limit.",
        title="Time limit of retries (s)",
        group=LIMITS,
        former_name="retry_limit_s",
    )
    same_call_limit: int = setting(
        3,
        whole(0, 1_000),
        "After this number of identical tool calls with identical results in a row, you are asked how to continue; 0 means never.",
        title="Repeated tool calls",
        group=LIMITS,
    )
    same_dmail_limit: int = setting(
        3,
        whole(0, 1_000),
        "After this number of D-Mails in a row without a new tool result between them, you are asked how to continue; 0 means never.",
        title="Repeated D-Mails",
        group=LIMITS,
    )


class DMailRule(NamedTuple):
    """A rule of `[[dmail.rules]]`: when the program reminds the agent of D-Mails, drafts one, or sends one.

    All conditions that are given must hold; those that are not given are 0 or false.

    Attributes:
        name: the name in the chat and in the statistics.
        then: `remind`, `draft` (the draft is shown to the user, who decides), or `send` (asks as `draft` does where D-Mails
            are reviewed).
        result_tokens: the least number of tokens of the step's largest result.
        result_share: the least share of the model's window that the largest result takes, from 0 to 1.
        payback: the number of model calls within which a D-Mail about the step has to pay for itself.
        same_call_failed: the number of failures in a row of the same call.
        circle: one more equal call with an equal result would make the program ask about a circle.
        steps_without_check: the number of steps without a change that passed a check, since the last one.
        window_share: the least share of the window that the context takes, from 0 to 1.
        check_failed: a check after an edit failed.
    """

    name: str
    then: Literal["remind", "draft", "send"] = "remind"
    result_tokens: int = 0
    result_share: float = 0.0
    payback: int = 0
    same_call_failed: int = 0
    circle: bool = False
    steps_without_check: int = 0
    window_share: float = 0.0
    check_failed: bool = False


RULE_CONDITIONS: Mapping[str, Check] = {
    "result_tokens": whole(1, 100_000_000),
    "result_share": number(0.001, 1),
    "payback": whole(1, 1_000_000),
    "same_call_failed": whole(2, 1_000),
    "circle": FLAG,
    "steps_without_check": whole(1, 1_000_000),
    "window_share": number(0.001, 1),
    "check_failed": FLAG,
}
"""The keys of a rule's `when`, with the checks of their values."""
RULE_ACTIONS = one_of(("remind", "draft", "send"))
PAYBACK_STEPS = 5
"""The model calls within which a D-Mail pays for itself by the built-in rule `payback`: about half of what a turn with tools
takes, so that it seldom fires in the last steps."""


@table
class DMailConfig(NamedTuple):
    """Whether the agent may send D-Mails, and the review of them. `rules` are those of the file; None without any there."""

    enabled: bool = setting(
        True,
        FLAG,
        "Let the agent send D-Mails: it goes back to a checkpoint, and a note replaces the steps since that checkpoint.",
        title="Allow D-Mails",
        group=DMAILS,
    )
    nudge_tokens: int = setting(
        10_000,
        whole(0, 100_000_000),
        "After a tool result of at least this many tokens, the agent is reminded that it can send a D-Mail; 0 turns this reminder off. "
        "If config.toml has [[dmail.rules]], those rules apply instead.",
        title="D-Mail reminder (tokens)",
        group=DMAILS,
    )
    review: bool = setting(
        False,
        FLAG,
        "Ask you before a D-Mail of the agent is sent.",
        title="Review D-Mails",
        group=DMAILS,
    )
    rules: tuple[DMailRule, ...] | None = None

    @property
    def active_rules(self) -> tuple[DMailRule, ...]:
        """The rules of the file, or else the built-in ones."""
        if self.rules is not None:
            return self.rules
        payback = DMailRule("payback", payback=PAYBACK_STEPS)
        if not self.nudge_tokens:
            return (payback,)
        return DMailRule("large result", result_tokens=self.nudge_tokens), payback


@table
class AgentsConfig(NamedTuple):
    """The limits of sub-agents."""

    steps: int = setting(
        100,
        whole(1, 100_000),
        "Number of steps after which a sub-agent ends and reports what it has found.",
        title="Sub-agent step limit",
        group=LIMITS,
    )
    tokens: int = setting(
        0,
        whole(0, 1_000_000_000),
        "Number of tokens, input and output of all its requests, after which a sub-agent ends; 0 means no limit.",
        title="Sub-agent token limit",
        group=LIMITS,
    )
    cost: float = setting(
        0.0,
        number(0, 1_000_000),
        "Cost after which a sub-agent ends, in the currency of the prices in config.toml; 0 means no limit.",
        title="Sub-agent cost limit",
        group=LIMITS,
    )
    parallel: int = setting(
        4,
        whole(1, 16),
        "Number of read-only sub-agents that may work at the same time; the others wait.",
        title="Parallel sub-agents",
        group=LIMITS,
    )


@table
class SandboxConfig(NamedTuple):
    """The sandbox of commands."""

    enabled: bool = setting(
        True,
        FLAG,
        "Run commands and searches in a sandbox, if this machine supports one.",
        "start",
        title="Sandbox",
        group=PERMISSIONS,
    )
    writable: tuple[str, ...] = setting(
        (),
        TEXTS,
        "Folders outside the work folder that sandboxed commands may change. "
        "Caches of package managers need no entry: commands get private copies of them.",
        title="Writable folders",
        group=PERMISSIONS,
    )
    readable: tuple[str, ...] = setting(
        (),
        TEXTS,
        "Files and folders in the home folder that sandboxed commands may read, in addition to toolchains, caches and settings.",
        title="Readable files",
        group=PERMISSIONS,
    )
    network: bool = setting(
        False,
        FLAG,
        "Let sandboxed commands use the network.",
        title="Network in the sandbox",
        group=PERMISSIONS,
    )


@table
class FuturesConfig(NamedTuple):
    """The files of futures."""

    copy: tuple[str, ...] = setting(
        (),
        TEXTS,
        "Ignored folders, relative to the work folder, of which each future gets a copy, such as .venv. "
        "A future sees any other ignored folder as it is now, and copies only what it changes there.",
        title="Folders copied for futures",
        group=PERMISSIONS,
    )


SEARCH_PROVIDERS = ("searxng", "brave", "tavily", "exa", "kimi")
"""The services that `SearchWeb` can ask."""


@table
class SearchConfig(NamedTuple):
    """A search service with its own values: `api_key` and the values of `headers` are never shown and never logged.

    An empty `base_url` stands for the usual one of the service.
    """

    provider: str = setting(NEEDED, one_of(SEARCH_PROVIDERS))
    base_url: str = setting("", URL)
    api_key: str = setting("", STRIPPED)
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that are never shown and never logged."""
        return tuple(filter(None, (self.api_key, *self.headers.values())))

    def __repr__(self) -> str:
        return f"SearchConfig({self.provider!r}, {self.base_url!r})"


@table
class WebConfig(NamedTuple):
    """The pages of the web that need no approval."""

    allow: tuple[str, ...] = setting(
        (),
        TEXTS,
        "Hosts whose pages the agent may fetch without asking: example.org, *.example.org for every host below it, or * for all.",
        title="Hosts allowed without asking",
        group=PERMISSIONS,
    )


@table
class SecretsConfig(NamedTuple):
    """The handling of a tool result with something like a key."""

    send: str = setting(
        "mark",
        one_of(("mark", "ask")),
        "What to do with a tool result that seems to contain an API key: mark it in the chat, "
        "or also ask you before the result is sent to the model.",
        title="Results with API keys",
        group=PERMISSIONS,
    )


@table
class NotifyConfig(NamedTuple):
    """When and how the terminal notifies the user whose window is in the background."""

    asking: bool = setting(
        True,
        FLAG,
        "Notify you when the agent asks something while the terminal is in the background.",
        "start",
        title="When the agent asks",
        group=ALERTS,
    )
    finished: bool = setting(
        False,
        FLAG,
        "Notify you when a turn ends while the terminal is in the background.",
        "start",
        title="When a turn ends",
        group=ALERTS,
    )
    how: str = setting(
        AUTO,
        one_of((AUTO, "bell", "osc9", "osc777", "osc99", "off")),
        "How the terminal notifies you: a bell, or one of its notification sequences; auto uses what it supports.",
        "start",
        title="Notification method",
        group=ALERTS,
    )


class EditCheck(NamedTuple):
    """A program to run after edits of the agent: its words, in which `{file}` stands for the file, and patterns of the names
    of files that it is for (empty for all).
    """

    words: tuple[str, ...]
    files: tuple[str, ...] = ()


@table
class ExternalAgentConfig(NamedTuple):
    """Another agent that speaks the Agent Client Protocol on its standard streams.

    Attributes:
        name: its name on the command line.
        command: the program and its arguments; no shell reads them. Empty for the usual command of an agent that this program
            knows.
        env: the names of the environment variables that it gets in addition to the usual ones.
        mcp: whether it is told of the user's MCP servers.
    """

    name: str
    command: tuple[str, ...] = setting((), COMMAND)
    env: tuple[str, ...] = setting((), VARIABLES)
    mcp: bool = setting(True, FLAG)


@table
class PromptConfig(NamedTuple):
    """The editing of the prompt."""

    vim: bool = setting(
        False,
        FLAG,
        "Use the keys of vim in the prompt; Esc goes to normal mode.",
        "now",
        title="Vim keys",
        group=LOOKS,
    )


STATUS_ITEMS = (
    *("model", "mode", "title", "folder", "branch", "checkpoint", "worldlines", "context"),
    *("tokens", "cost", "tasks", "session", "time", "version"),
)
"""The facts that a status line can show."""


@table
class StatuslineConfig(NamedTuple):
    """The status line, a row below the prompt, which exists if one of these is set."""

    items: tuple[str, ...] = setting(
        (),
        some_of(STATUS_ITEMS),
        "Items of the status line below the prompt, in this order. If the list is empty, there is no status line.",
        "now",
        title="Status line",
        group=LOOKS,
    )
    command: str = setting(
        "",
        SHELL_COMMAND,
        "A command whose first line of output is shown in the status line. It gets facts about the session as JSON on standard input, "
        "so a status line script for Claude Code works here.",
        "now",
        title="Status line command",
        group=LOOKS,
    )
    refresh_interval: int = setting(
        0,
        whole(0, 3_600),
        "Seconds between runs of the status line command while nothing happens; 0 runs it only after events. "
        "(In Claude Code: refreshInterval.)",
        "now",
        title="Status line refresh (s)",
        group=LOOKS,
    )


@table
class MouseConfig(NamedTuple):
    """The use of the mouse."""

    capture: bool = setting(
        True,
        FLAG,
        "Let kimi-tui use the mouse. If off, you select text with the mouse as in any terminal program.",
        "start",
        title="Mouse",
        group=LOOKS,
    )


@table
class Config(NamedTuple):
    """The contents of the file; the tables have their names there.

    `checks` run after edits. `search` is the search service, of `[web.search]` or of kimi-cli. `notices` name the keys that
    were not understood; `source` is the file, if there was one.
    """

    default_model: str = setting(
        "",
        TEXT,
        "The model to start with, by its name under [models].",
        "start",
        title="Default model",
        group=MODEL,
    )
    default_thinking: str = setting(
        "",
        THINKING,
        "How much the model reasons before it answers: on, off, or an effort that it supports, such as low or high.",
        "start",
        title="Reasoning effort",
        group=MODEL,
    )
    # The mode that allows everything must be chosen at each start.
    mode: str = setting(
        "",
        one_of(("plan", "ask", "edits", "sandboxed")),
        "The mode in which a session begins. If it is not set: sandboxed if this machine has a sandbox, else ask.",
        "start",
        title="Mode",
        group=PERMISSIONS,
    )
    theme: str = setting(
        AUTO,
        one_of(THEMES),
        "The colours; auto is dark or light like the terminal.",
        "now",
        title="Theme",
        group=LOOKS,
    )
    glyphs: str = setting(
        "unicode",
        one_of(("unicode", "ascii")),
        "The characters for lines and signs: unicode, or ascii if a font lacks them.",
        "start",
        title="Characters",
        group=LOOKS,
    )
    reduced_motion: bool = setting(
        False, FLAG, "Turn off animations.", "now", title="Reduced motion", group=LOOKS
    )
    titles: bool = setting(
        True,
        FLAG,
        "Have the model name each session after its first turn, in one small request.",
        title="Session titles",
        group=MODEL,
    )
    hints: bool = setting(
        True,
        FLAG,
        "Show a short hint when something happens for the first time; each hint is shown once.",
        "now",
        title="First-time hints",
        group=LOOKS,
    )
    stream_timeout_s: float = setting(
        120.0,
        number(1, 3600),
        "If an answer has no new text for this number of seconds, you are asked whether to keep waiting.",
        "start",
        title="Stall timeout (s)",
        group=LIMITS,
    )
    first_answer_timeout_s: float = setting(
        0.0,
        number(0, 86_400),
        "If an answer does not begin within this number of seconds, you are asked whether to keep waiting; "
        "0 means 1800 s for servers on the internet and no limit for local ones.",
        "start",
        title="First-token timeout (s)",
        group=LIMITS,
    )
    loop_control: LoopControl = LoopControl()
    dmail: DMailConfig = DMailConfig()
    agents: AgentsConfig = AgentsConfig()
    sandbox: SandboxConfig = SandboxConfig()
    futures: FuturesConfig = FuturesConfig()
    web: WebConfig = WebConfig()
    secrets: SecretsConfig = SecretsConfig()
    notify: NotifyConfig = NotifyConfig()
    prompt: PromptConfig = PromptConfig()
    statusline: StatuslineConfig = StatuslineConfig()
    mouse: MouseConfig = MouseConfig()
    search: SearchConfig | None = None
    models: Mapping[str, ModelConfig] = MappingProxyType({})
    providers: Mapping[str, ProviderConfig] = MappingProxyType({})
    keys: Mapping[str, str] = MappingProxyType({})
    external_agents: Mapping[str, ExternalAgentConfig] = MappingProxyType({})
    checks: tuple[EditCheck, ...] = ()
    source: Path | None = None
    notices: tuple[str, ...] = ()

    @property
    def prices(self) -> dict[str, ModelPrices]:
        """The prices by the server's name of a model; if two entries name one model, the default's count."""
        default = self.models.get(self.default_model)
        entries = [*self.models.values(), *([default] if default is not None else [])]
        return {one.model: one.prices for one in entries if one.prices is not None}


TABLES: Mapping[str, Any] = {
    name: type(default)
    for name, default in Config._field_defaults.items()
    if type(default) in _DECLARED
}
"""The tables of the file whose keys are settings, by name; the top of the file is `Config` itself."""
SETTINGS: Mapping[str, Setting] = {
    f"{place}.{name}".lstrip("."): one
    for place, kind in (("", Config), *TABLES.items())
    for name, one in declared(kind).items()
}
"""All settings by key, except the keys of actions, in the order of the file."""
for _key, _setting in SETTINGS.items():
    _setting.key = _key
