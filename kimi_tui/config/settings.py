"""The configuration as plain values, with the defaults of every setting.

They are named tuples because they are made before the first paint: a frozen dataclass takes seven times as long to define.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

LEAST_WINDOW = 1_024
"""Tokens. Not even the short system prompt and an answer would fit into a smaller window."""


class ConfigError(Exception):
    """The configuration cannot be used at all; the message is one line for the user, with file and line."""


def why_not_saved(error: ConfigError | OSError) -> str:
    """Why the configuration could not be written, in words: the system's without its number and the file beside it."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class ProviderConfig(NamedTuple):
    """A server and what belongs to it alone: `api_key` and the values of `headers` are never shown and never logged."""

    name: str
    base_url: str
    api_key: str = ""
    type: str = "openai_legacy"
    dialect: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"ProviderConfig({self.name!r}, {self.base_url!r})"


class ModelPrices(NamedTuple):
    """What a million tokens cost. `cached_input` is for input that the server still had from an earlier call."""

    input: float
    cached_input: float
    output: float
    currency: str = "$"


class ModelConfig(NamedTuple):
    """A model under a name of the user's own. `max_context_size`, `prices` and `lean` are None where nobody said them.

    `lean` is whether the model is sent a short system prompt and few tools.
    """

    name: str
    provider: str
    model: str
    max_context_size: int | None = None
    capabilities: tuple[str, ...] = ()
    prices: ModelPrices | None = None
    lean: bool | None = None


class LoopControl(NamedTuple):
    """The limits of the agent's loop, under kimi-cli's names; `patience` is for how many seconds an overload is waited out.
    After so many same calls or D-Mails in a row the user is asked; 0 for never."""

    max_steps_per_turn: int = 1000
    max_retries_per_step: int = 3
    reserved_context_size: int = 50_000
    compaction_trigger_ratio: float = 0.85
    compaction: str = "simple"
    patience: float = 600.0
    same_call_limit: int = 3
    same_dmail_limit: int = 3


class DMailConfig(NamedTuple):
    """Whether the agent may send D-Mails, and the size of a tool result from which on it is reminded of them."""

    enabled: bool = True
    nudge_tokens: int = 10_000
    review: bool = False


class SandboxConfig(NamedTuple):
    """The sandbox of commands: whether there is one, what they really change besides the work folder, what more of the
    home folder they may read, and whether the network may be used."""

    enabled: bool = True
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    network: bool = False


class SecretsConfig(NamedTuple):
    """What happens when a tool result holds something like a key: `mark` shows it on the card, `ask` also asks first."""

    send: str = "mark"


class NotifyConfig(NamedTuple):
    """When and how the terminal notifies the user who looks elsewhere."""

    asking: bool = True
    finished: bool = False
    how: str = "auto"


class MouseConfig(NamedTuple):
    """Whether the program captures the mouse; if not, the terminal selects text by itself."""

    capture: bool = True


class PromptConfig(NamedTuple):
    """How the prompt is written in."""

    vim: bool = False


class Config(NamedTuple):
    """Everything the file says. `notices` name what in it was not understood; `source` is the file, if there was one."""

    default_model: str = ""
    models: Mapping[str, ModelConfig] = MappingProxyType({})
    providers: Mapping[str, ProviderConfig] = MappingProxyType({})
    loop: LoopControl = LoopControl()
    dmail: DMailConfig = DMailConfig()
    sandbox: SandboxConfig = SandboxConfig()
    secrets: SecretsConfig = SecretsConfig()
    notify: NotifyConfig = NotifyConfig()
    mouse: MouseConfig = MouseConfig()
    prompt: PromptConfig = PromptConfig()
    mode: str = ""
    """What is asked at the start; empty where the file does not say."""
    keys: Mapping[str, str] = MappingProxyType({})
    theme: str = "auto"
    glyphs: str = "unicode"
    reduced_motion: bool = False
    titles: bool = True
    """Whether the model names a session after its first turn."""
    hints: bool = True
    """Whether a hint comes when something happens for the first time."""
    thinking: str = ""
    """`on`, `off` or an effort; empty where the file does not say."""
    stream_timeout_s: float = 120.0
    first_answer_timeout_s: float = 0.0
    """Seconds; 0 for 1,800, and for no limit in the same network."""
    source: Path | None = None
    notices: tuple[str, ...] = ()

    @property
    def prices(self) -> dict[str, ModelPrices]:
        """The prices by the name that a server knows the model by; where two entries name one, the default's count."""
        default = self.models.get(self.default_model)
        entries = [*self.models.values(), *([default] if default is not None else [])]
        return {one.model: one.prices for one in entries if one.prices is not None}
