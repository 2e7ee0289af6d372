"""The login at a server's address by OAuth."""

from __future__ import annotations

from typing import Any

from kimi_tui.mcp.config import ServerConfig


def stored_login(config: ServerConfig) -> Any:
    """Return the login; None for now."""
    del config
    return None
