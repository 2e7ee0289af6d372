"""`kimi-tui doctor --report`: the facts about a machine that a bug report needs, as Markdown, without secrets.

No file is copied. Values of the configuration appear only for known keys; every text from the configuration, the environment
or a server goes through `Redaction`. The report reveals neither keys nor names of private servers.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from kimi_tui.app_paths import config_file, home_dir, kimi_cli_config_file, log_file
from kimi_tui.base_url import host_of, is_loopback
from kimi_tui.config.checks import PROVIDER_TYPES
from kimi_tui.config.file import MAX_CONFIG_BYTES
from kimi_tui.config.reference import in_words, settings, value_of
from kimi_tui.config.settings import KEYRING_PREFIX, Config
from kimi_tui.filesystem import open_regular, read_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import Launch
from kimi_tui.logging_setup import redacted
from kimi_tui.program import VERSION
from kimi_tui.tools.credentials import find_keys, is_key, redact_keys

LEFT_OUT = "(removed)"
"""The placeholder for removed texts. It has no spaces and brackets, so that an address with it as login is still recognised
as an address.
"""
_PACKAGES = ("textual", "rich", "openai", "httpx2", "pydantic")
_LONGEST = 400
"""Characters of a line; a longer value or sentence is shortened."""
_FEWEST = 6
"""A shorter text of a configuration cannot be told from an ordinary word, so it does not count as a secret."""
_BEGINNING = 8
"""Characters by which a shortened secret is recognised."""
_SECRET_VARIABLE = re.compile(r"(?i)key|token|secret|pass|pwd|auth|cred|cookie|session|dsn")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'`<>]{1,2000}")
_SHORT_PATH = re.compile(
    r"(?:/(?:v\d{1,2}(?:beta|alpha)?\d?|api|openai|coding|paas|compatible-mode))*"
)
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][\w.+:-]{0,39}")
_TERMINAL_VARIABLES = (
    *("TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "VTE_VERSION"),
    *("LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR"),
)
_AROUND = {
    "tmux": ("TMUX",),
    "screen": ("STY",),
    "zellij": ("ZELLIJ",),
    "ssh": ("SSH_CONNECTION", "SSH_TTY"),
    "mosh": ("MOSH_CONNECTION",),
    "WSL": ("WSL_DISTRO_NAME",),
    "container": ("container",),
}
_LOG_BYTES = 256 << 10
_MOST_ERRORS = 10
_LOG_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d,\d{3} (WARNING|ERROR|CRITICAL) ([\w.]{1,100}): "
)
_FRAME = re.compile(r'  File "[^"]{0,400}/(kimi_tui/[\w/]{1,120}\.py)", line (\d{1,6})')
_ERROR_NAME = re.compile(
    r"([A-Za-z_.]{0,80}(?:Error|Exception|Timeout|Interrupt|Exit|Warning|Set|Supported|Group))(?::|$)"
)
_LOGGERS = frozenset(("kimi_tui", "asyncio", "openai", "httpx2", "textual", "py", "PIL"))


class Finding(Protocol):
    """A line of doctor's report; `kind` is set for an error whose text came from a server."""

    @property
    def about(self) -> str:
        """The checked thing."""
        ...

    @property
    def state(self) -> str:
        """`ok`, `warn` or `bad`."""
        ...

    @property
    def seen(self) -> str:
        """The finding."""
        ...

    @property
    def advice(self) -> str:
        """The advice."""
        ...

    @property
    def kind(self) -> str:
        """The kind of an error whose text came from a server; else empty."""
        ...


def report(
    findings: Iterable[Finding], launch: Launch | None, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        findings: doctor's findings.
        launch: the settings that result from the configuration; None if it cannot be read.
        environ: the environment variables.
    """
    redaction = Redaction(launch, environ)
    yield "## kimi-tui doctor --report"
    yield from _section("Versions", _versions(), redaction)
    yield from _section("Terminal", _terminal(environ), redaction)
    yield ""
    yield "### What doctor found"
    yield ""
    for one in findings:
        # A server's text may repeat the request, and with it anything that was typed or read.
        seen = f"{one.kind}; the text of the error is left out" if one.kind else one.seen
        advice = f" {redaction.code(one.advice)}" if one.advice and not one.kind else ""
        yield f"- **{one.state}** {one.about}: {redaction.code(seen)}{advice}"
    if launch is None:
        yield from _section("Configuration", [("state", "the file cannot be read")], redaction)
    else:
        yield from _section("Configuration", _configuration(launch, environ), redaction)
    yield from _section("Last errors in the log", _errors(log_file()), redaction)


def _section(title: str, lines: Iterable[tuple[str, str]], redaction: Redaction) -> Iterator[str]:
    yield from ("", f"### {title}", "")
    for name, value in lines:
        yield f"- {name}: {redaction.code(value)}"


# --- leaving out


class Redaction:
    """Removes from a text everything that must not leave a machine.

    Known secrets are every text of the configuration file except the values that the report shows, the key in use, logins and
    queries of addresses, and environment variables whose names suggest a secret. Removed as well are texts in the form of
    credentials, long random words, hosts that are no public model server, and the home folder.
    """

    def __init__(self, launch: Launch | None, environ: Mapping[str, str]) -> None:
        """Collect the secrets of a configuration (even of an unreadable one) and of an environment."""
        path = config_file() if config_file().exists() else kimi_cli_config_file()
        file_texts = set(_secret_texts(path))
        chosen = launch.choice if launch is not None else None
        used = getattr(chosen, "secrets", ())
        urls = [value for value in environ.values() if "://" in value[:2000]]
        urls += [one for one in file_texts if "://" in one]
        if launch is not None:
            urls += [one.base_url for one in launch.config.providers.values()]
            urls.append(launch.choice.base_url)
        self._cut = {
            one for one in (*file_texts, *used) if len(one) >= _FEWEST and not _is_url(one)
        }
        self._hosts: set[str] = set()
        # Errors quote these values unchanged or shortened.
        self._odd = {one for one in _odd_values(environ) if len(one) >= _FEWEST}
        whole = {value for name, value in environ.items() if _SECRET_VARIABLE.search(name)}
        for url in urls:
            for found in _URL.findall(url):
                self._cut |= {one for one in _parts_of(found) if len(one) >= _FEWEST}
                self._add_host(host_of(found))
        # Proxies are also written without a scheme.
        for name, value in environ.items():
            if name.lower().endswith("_proxy") and "://" not in value and "," not in value:
                self._cut |= {one for one in _parts_of(f"http://{value}") if len(one) >= _FEWEST}
                self._add_host(host_of(f"http://{value}"))
        self._add_host(platform.node().lower())
        self._whole = {one for one in whole if len(one) >= _FEWEST and not one.startswith("/")}
        home = home_dir()
        self._homes = (
            sorted({str(home), os.path.realpath(home)}, key=len, reverse=True) if home else []
        )

    def _add_host(self, host: str) -> None:
        if host and not _is_told(host):
            self._hosts.add(host)

    def code(self, text: str) -> str:
        """Return the redacted text in one line as a span of code, so that no mention, link or markup results from it."""
        cut = self.text(text)
        return f"`{cut}`" if cut else ""

    def text(self, text: str) -> str:
        """Return the redacted text without the marks around it."""
        text = one_line(text)
        for odd in sorted(self._odd, key=len, reverse=True):
            text = _without_beginnings(text.replace(odd, LEFT_OUT), odd)
        # Addresses come before secrets, because a part of an address may also occur alone in a sentence.
        text = _URL.sub(lambda found: _address(found[0]), text)
        for secret in sorted(self._whole | self._cut, key=len, reverse=True):
            text = text.replace(secret, LEFT_OUT)
        for secret in self._cut:
            text = _without_beginnings(text, secret)
        for host in sorted(self._hosts, key=len, reverse=True):
            text = re.sub(rf"(?i)(?<![\w.-]){re.escape(host)}(?![\w-])", "[host]", text)
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
        text = redacted(redact_keys(text, find_keys(text)))
        text = re.sub(r"\S+", lambda word: LEFT_OUT if _is_secret_word(word[0]) else word[0], text)
        text = text.replace("`", "'")
        return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


def _is_secret_word(word: str) -> bool:
    # Punctuation around a word belongs to the sentence, and a part of a path may be a key.
    return any(is_key(part) for part in re.split(r"[\"'()\[\]{},;:=/?&#]+", word) if part)


def _without_beginnings(text: str, secret: str) -> str:
    """Return the text without pieces that begin like a secret, as far as they agree: a message may have shortened it."""
    beginning = secret[:_BEGINNING]
    at = text.find(beginning) if len(beginning) == _BEGINNING else -1
    while at >= 0:
        end = at + sum(
            1
            for _ in takewhile(
                lambda pair: pair[0] == pair[1], zip(text[at:], secret, strict=False)
            )
        )
        text = f"{text[:at]}{LEFT_OUT}{text[end:]}"
        at = text.find(beginning, at + len(LEFT_OUT))
    return text


def _secret_texts(path: Path) -> Iterator[str]:
    """Yield every text of the file that the report does not show by design; for a file that is not TOML, every text in quotes."""
    try:
        text = read_regular(path, MAX_CONFIG_BYTES, links=True).decode("utf-8-sig", "replace")
    except OSError:
        return
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        yield from re.findall(r"[\"']([^\"'\n]{6,4000})[\"']", text)
        yield from re.findall(r"=[ \t]{0,20}([^\s\"'\[\]{},=]{6,4000})", text)
        return
    shown = {setting.key for setting in settings()}
    for place, value in _texts(table, ()):
        if place[0] == "models" and place[-1] in ("model", "provider", "capabilities"):
            continue
        if place[0] == "providers" and place[-1] in ("type", "dialect") and _is_plain(value):
            continue
        if ".".join(place) not in shown:
            yield value


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for name, one in cast("Mapping[str, Any]", value).items():
            yield from _texts(one, (*place, name))
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _texts(one, place)
    elif isinstance(value, str):
        yield place, value


def _is_plain(value: str) -> bool:
    from kimi_tui.llm.dialects import DIALECTS

    return value in DIALECTS or value in PROVIDER_TYPES


def _odd_values(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables that the program reads and cannot use: anything may have been pasted there."""
    for name, value in environ.items():
        if name.lower().endswith(("_proxy", "_url")):
            scheme, mark, rest = value.partition("://")
            if not _is_address(value if mark else f"http://{value}"):
                yield rest if mark else scheme
        elif name == "KIMI_DIALECT" and not _is_plain(value):
            yield value
        elif name == "KIMI_MODEL_MAX_CONTEXT_SIZE" and not value.strip().isdecimal():
            yield value.strip()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and _URL.fullmatch(url) is not None
    except ValueError:
        return False


def _is_url(text: str) -> bool:
    return _URL.match(text) is not None


def _parts_of(url: str) -> Iterator[str]:
    """Yield the parts of an address that may be secret: login, query, fragment, both as written and decoded."""
    with suppress(ValueError):
        parts = urlsplit(url)
        login = parts.netloc.rpartition("@")[0]
        user, _, password = login.partition(":")
        values = [value for _, value in parse_qsl(parts.query)]
        for one in (login, user, password, parts.query, parts.fragment, *values):
            yield one
            yield unquote(one)


def _is_told(host: str) -> bool:
    """Return whether a host may be named: this machine, or the server of a known public provider."""
    from kimi_tui.llm.dialects import DIALECTS

    # A pattern for endings would reveal the name of a customer's own server.
    known = {one for dialect in DIALECTS.values() for one in dialect.hosts}
    return is_loopback(host) or host in known


def _address(url: str) -> str:
    """Return an address with scheme, host and port as far as they may be named, and the path if it is a usual one."""
    bare = url.rstrip("/.,;:)")
    if "://" not in bare:
        return url  # this is a sentence about addresses
    try:
        parts = urlsplit(bare)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "[address]"
    path = parts.path.rstrip("/")
    shown = path if _SHORT_PATH.fullmatch(path) else "/[path]"
    name = host if _is_told(host) else "[host]"
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{shown}{url[len(bare) :]}"


# --- what is told


def _versions() -> Iterator[tuple[str, str]]:
    yield "kimi-tui", VERSION
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)
    yield "system", f"{_system()}, {platform.machine()}"
    yield "kernel", f"{platform.system()} {platform.release()}"


def _system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _terminal(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _TERMINAL_VARIABLES:
        if value := environ.get(name):
            yield name, value if _PLAIN_WORD.fullmatch(value) else LEFT_OUT
    around = [name for name, variables in _AROUND.items() if any(map(environ.get, variables))]
    yield "inside", ", ".join(around) or "not in tmux, screen, zellij or ssh"
    columns, rows = shutil.get_terminal_size()
    yield "size", f"{columns}x{rows}"


def _configuration(launch: Launch, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    from kimi_tui.llm.dialects import dialect_of_host

    config: Config = launch.config
    source = config.source
    yield "file", "none" if source is None else str(source)
    for setting in settings():
        value = value_of(config, setting)
        if value != setting.default:
            yield setting.key, in_words(value)
    for key, given in launch.given.items():
        yield f"{key}, from {given.source}", given.value
    numbers = {name: number for number, name in enumerate(config.providers, 1)}
    for provider in config.providers.values():
        key = provider.api_key
        kept = "in the keyring" if key.startswith(KEYRING_PREFIX) else "in the file"
        dialect = provider.dialect or dialect_of_host(host_of(provider.base_url)).name
        yield (
            f"provider {numbers[provider.name]}",
            f"{provider.base_url} · type {provider.type} · API variant (dialect) {dialect}"
            f" · key {kept if key else 'none'} · headers {len(provider.headers)}",
        )
    for number, model in enumerate(config.models.values(), 1):
        facts = [model.model, f"provider {numbers.get(model.provider, '?')}"]
        facts += (
            [f"context window {model.max_context_size} tokens"] if model.max_context_size else []
        )
        facts += [", ".join(model.capabilities)] if model.capabilities else []
        facts += (
            [f"short prompt and few tools (lean): {in_words(model.lean)}"]
            if model.lean is not None
            else []
        )
        yield f"model {number}", " · ".join(facts)
    yield (
        "model in use",
        f"{launch.choice.model or 'none'} at {launch.choice.base_url or 'no server'}",
    )
    # Only their names are shown, as a value may be a key.
    names = sorted(
        name
        for name in environ
        if re.fullmatch(r"(?:KIMI|OPENAI)_[A-Z_]{1,40}|(?i:(?:https?|all|no)_proxy)", name)
    )
    yield "environment variables", ", ".join(names) or "none"


def _errors(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the last kinds of error in the log, with their days and the lines of the program, but never an error's text."""
    counts: Counter[tuple[str, str]] = Counter()
    day = fact = place = ""
    for line in _last_lines(path):
        if begun := _LOG_LINE.match(line):
            if fact:
                counts[day, fact] += 1
            logger = begun[3].partition(".")[0]
            day, place = begun[1], ""
            fact = f"{begun[2]} of {logger if logger in _LOGGERS else 'the program'}"
        elif frame := _FRAME.match(line):
            place = f" at {frame[1]}:{frame[2]}"
        elif place and (named := _ERROR_NAME.match(line)):
            fact, place = f"{fact}: {named[1]}{place}", ""
    if fact:
        counts[day, fact] += 1
    for (when, what), times in list(counts.items())[-_MOST_ERRORS:]:
        yield when, f"{what}, {times} times" if times > 1 else what
    if not counts:
        yield "errors", "none"


def _last_lines(path: Path) -> list[str]:
    try:
        with open(open_regular(path, links=True), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            return file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
