"""The system's keyring: reads the API key that `api_key = "keyring:NAME"` in the configuration names.

`keyring set kimi-tui NAME` stores the key. The package `keyring` is an optional dependency; it is imported in a process of
its own when such a key is needed.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.config.settings import KEYRING_PREFIX, ConfigError
from kimi_tui.foreign_text import one_line
from kimi_tui.helper_programs import desktop_environment, run_helper

WAIT_S = 60.0
"""Seconds that the user has for unlocking the keyring."""
_SERVICE = "kimi-tui"
_MAX_TOLD_BYTES = 65_536
_SHOWN_CHARS = 40
_ASK = """
import json, os, sys
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
try:
    from keyring import get_password
except ImportError:
    told = {"missing": True}
else:
    try:
        told = {"key": get_password(sys.argv[1], sys.argv[2])}
    except BaseException as error:
        told = {"error": type(error).__name__}
os.write(out, json.dumps(told).encode()[:65536])
os._exit(0)
"""
"""The program of a process of its own, without this terminal: backends ask in a terminal, print, hang and end their process."""


def real_key(api_key: str) -> str:
    """Return the key that the configuration means. It blocks, also while the keyring asks for a password, so call it in a thread.

    Raises:
        ConfigError: the key is in the keyring, which does not return it.
    """
    if not api_key.startswith(KEYRING_PREFIX):
        return api_key
    name = api_key.removeprefix(KEYRING_PREFIX)
    shown = one_line(name[:_SHOWN_CHARS])
    where = f'api_key = "{KEYRING_PREFIX}{shown}"'
    told = _answer_of_process(name)
    if "missing" in told:
        raise ConfigError(
            f"{where}: the package keyring is not installed. Run pip install 'kimi-tui[keyring]'"
        )
    if "key" not in told:
        why = f": {one_line(str(told['error'])[:_SHOWN_CHARS])}" if "error" in told else ""
        raise ConfigError(f"{where}: the system keyring does not answer{why}")
    key = told["key"]
    if not isinstance(key, str) or not key.strip():
        raise ConfigError(
            f"{where}: the system keyring has no such key. Store it with: keyring set {_SERVICE} {shown}"
        )
    return key.strip()


def _environment() -> dict[str, str]:
    """Return the variables with which a backend finds itself and the keyring, without the keys of other programs."""
    from kimi_tui.tools.programs import trusted_path

    return {**desktop_environment(os.environ), "PATH": trusted_path(os.environ)} | {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("KEYRING_", "PYTHON_KEYRING_")) or name in ("PYTHONPATH", "PYTHONHOME")
    }


def _answer_of_process(name: str) -> dict[str, Any]:
    """Return the answer of the process about a key; nothing if it does not end in time, or prints anything else."""
    with suppress(OSError, ValueError, RecursionError, subprocess.TimeoutExpired):
        said = run_helper(
            [sys.executable, "-P", "-c", _ASK, _SERVICE, name],
            folder=Path("/"),
            env=_environment(),
            timeout_s=WAIT_S,
            most=_MAX_TOLD_BYTES,
        )
        return lenient_json.mapping(json.loads(said.data))
    return {}
