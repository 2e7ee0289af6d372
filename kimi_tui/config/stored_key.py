"""A key that stands in the keyring of the system: `api_key = "keyring:NAME"` in the configuration.

It is put there with `keyring set kimi-tui NAME`. The package `keyring` is an option of this program, and imported when such a
key is needed.
"""

from __future__ import annotations

from importlib import import_module

from kimi_tui.config.settings import ConfigError

BEFORE_NAME = "keyring:"
_SERVICE = "kimi-tui"


def real_key(api_key: str) -> str:
    """The key that the configuration means. Blocks, also on a keyring that asks for a password: for a thread.

    Raises:
        ConfigError: it is in the keyring, and that does not give it.
    """
    if not api_key.startswith(BEFORE_NAME):
        return api_key
    name = api_key.removeprefix(BEFORE_NAME)
    where = f'api_key = "{BEFORE_NAME}{name[:40]}"'
    try:
        keyring = import_module("keyring")
    except ImportError as error:
        raise ConfigError(
            f"{where}: the package keyring is not installed; pip install 'kimi-tui[keyring]' does it"
        ) from error
    try:
        key = keyring.get_password(_SERVICE, name)
    except Exception as error:
        # Each of its backends has errors of its own.
        raise ConfigError(
            f"{where}: the keyring does not answer: {type(error).__name__}"
        ) from error
    if not isinstance(key, str) or not key.strip():
        raise ConfigError(
            f"{where}: nothing is there; keyring set {_SERVICE} {name[:40]} puts it there"
        )
    return key.strip()
