"""A key that stands in the keyring of the system: `api_key = "keyring:NAME"` in the configuration.

It is put there with `keyring set kimi-tui NAME`. The package `keyring` is an option of this program, and
asked by a process of its own when such a key is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

from kimi_tui.config.settings import ConfigError

BEFORE_NAME = "keyring:"
WAIT_S = 60.0
"""For so long the user may be asked by the system to open it."""
_SERVICE = "kimi-tui"
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
"""In a process of its own, without this terminal: backends ask there, print, hang and end the program."""


def real_key(api_key: str) -> str:
    """The key that the configuration means. Blocks, also on a keyring that asks for a password: for a thread.

    Raises:
        ConfigError: it is in the keyring, and that does not give it.
    """
    if not api_key.startswith(BEFORE_NAME):
        return api_key
    name = api_key.removeprefix(BEFORE_NAME)
    where = f'api_key = "{BEFORE_NAME}{name[:40]}"'
    told: dict[str, Any] = {}
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _ASK, _SERVICE, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            timeout=WAIT_S,
            check=False,
        )
        told = json.loads(asked.stdout)
    if "missing" in told:
        raise ConfigError(
            f"{where}: the package keyring is not installed; pip install 'kimi-tui[keyring]' does it"
        )
    if "key" not in told:
        why = f": {told['error'][:40]}" if "error" in told else ""
        raise ConfigError(f"{where}: the keyring does not answer{why}")
    key = told["key"]
    if not isinstance(key, str) or not key.strip():
        raise ConfigError(
            f"{where}: nothing is there; keyring set {_SERVICE} {name[:40]} puts it there"
        )
    return key.strip()
