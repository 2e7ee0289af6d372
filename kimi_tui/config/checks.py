"""The checks of values in `config.toml`.

A `Check` gets the TOML value of a key and returns the value to use; a ValueError says what it must be.
"""

from collections.abc import Callable
from typing import Any, Literal, cast

from kimi_tui.base_url import clean_url, is_url

Kind = Literal["flag", "choice", "number", "text", "list", "key"]


class Check:
    """The check of a key's value.

    Args:
        kind: how the user enters the value.
        read: returns the value to use for a value of the file; a ValueError says what it must be.
        choices: the values of a `choice`, in the order in which they are offered.
    """

    __slots__ = ("choices", "kind", "read")

    def __init__(
        self, kind: Kind, read: Callable[[Any], Any], choices: tuple[str, ...] = ()
    ) -> None:
        self.kind: Kind = kind
        self.read = read
        self.choices = choices


PROVIDER_TYPES = ("kimi", "openai_legacy", "openai_responses")
"""kimi-cli's names of providers with OpenAI's API; here they make no difference."""
_LONGEST_EFFORT = 16


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string in quotes")
    return value


def _stripped(value: Any) -> str:
    return _text(value).strip()


def _texts(value: Any) -> tuple[str, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of strings")
    return tuple(items)


def _command(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ValueError('must be a list of words, such as ["codex-acp"]; it runs without a shell')
    words = _texts(value)
    if not words or not words[0].strip() or words[0].startswith("-"):
        raise ValueError('must begin with the name of a program, such as ["codex-acp"]')
    if any("\0" in word for word in words):
        raise ValueError("contains the character U+0000, which a command cannot contain")
    return words


def _variables(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    for name in names:
        if not (name.isascii() and name.replace("_", "a").isalnum()) or name[0].isdigit():
            raise ValueError('must be a list of names of variables, such as ["OPENAI_API_KEY"]')
    return names


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _thinking(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, str) or not value.strip().isalpha() or len(value) > _LONGEST_EFFORT:
        raise ValueError('must be true, false or an effort such as "high"')
    return value.strip().lower()


def _currency(value: Any) -> str:
    text = _stripped(value)
    if not 1 <= len(text) <= 4 or not text.isprintable():
        raise ValueError("must be a currency symbol, or a code of one to four letters")
    return text


def _url(value: Any) -> str:
    text = clean_url(_text(value))
    if not is_url(text) or not text.isprintable() or " " in text:
        raise ValueError("must start with https:// or http://")
    return text


def whole(least: int, most: int) -> Check:
    """Return a check for a whole number from `least` to `most`."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return Check("number", read)


def number(least: float, most: float) -> Check:
    """Return a check for a number from `least` to `most`."""

    def read(value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise ValueError(f"must be a number from {least} to {most}")
        return float(value)

    return Check("number", read)


def one_of(names: tuple[str, ...]) -> Check:
    """Return a check for one of these words."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(value)

    return Check("choice", read, names)


def some_of(names: tuple[str, ...]) -> Check:
    """Return a check for a list of these words."""

    def read(value: Any) -> tuple[str, ...]:
        unknown = next((one for one in _texts(value) if one not in names), None)
        if unknown is not None:
            raise ValueError(f'must contain only {", ".join(names)}, not "{unknown[:40]}"')
        return tuple(dict.fromkeys(_texts(value)))

    return Check("list", read, names)


def _shell_command(value: Any) -> str:
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError("must be a command line, or a list of words")
    if not isinstance(value, list):
        return value.strip()
    import shlex  # most files have no command

    return shlex.join(words)


def _provider_type(value: Any) -> str:
    if value not in PROVIDER_TYPES:
        written = f": {value[:40]!r}" if isinstance(value, str) else ""
        raise ValueError(f"must be kimi or openai_legacy{written}")
    return str(value)


FLAG = Check("flag", _flag)
TEXT = Check("text", _text)
STRIPPED = Check("text", _stripped)
"""The check for a text; spaces around it are removed."""
TEXTS = Check("list", _texts)
COMMAND = Check("list", _command)
"""The check for a program with its arguments."""
VARIABLES = Check("list", _variables)
"""The check for names of environment variables."""
THINKING = Check("text", _thinking)
"""The check for `true`, `false` or an effort; they are read as `on`, `off` or the word in lower case."""
CURRENCY = Check("text", _currency)
URL = Check("text", _url)
SHELL_COMMAND = Check("text", _shell_command)
"""The check for a command line for the shell; a list of words is read as one that has them unchanged."""
PROVIDER_TYPE = Check("text", _provider_type)
