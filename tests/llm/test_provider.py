"""Where a key and the user's own headers may be sent."""

from __future__ import annotations

import pytest
from support.cases import each

from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.provider import check_origin

OWN = {"X-Team": "a"}


@each(
    "url, key, headers, host",
    [
        ("https://API.example.com/v1", "k", {}, "api.example.com"),
        ("https://api.example.com:8443", "k", OWN, "api.example.com"),
        ("http://api.example.com", "", {}, "api.example.com"),
        ("http://localhost:1234/v1", "k", OWN, "localhost"),
        ("http://127.0.0.1:1234", "k", {}, "127.0.0.1"),
        ("http://[::1]:1234", "k", {}, "::1"),
    ],
)
def test_a_key_goes_to_a_server_by_https_or_on_this_machine(
    url: str, key: str, headers: dict[str, str], host: str
) -> None:
    assert check_origin(url, key, headers) == host


@each(
    "url, key, headers, told",
    [
        (
            "http://api.example.com",
            "k",
            {},
            "The key would be sent to api.example.com unencrypted.",
        ),
        ("http://10.0.0.5", "k", OWN, "The key would be sent to 10.0.0.5 unencrypted."),
        ("http://a.b", "", OWN, "The configured headers would be sent to a.b unencrypted."),
        ("http://localhost.example.com", "k", {}, "unencrypted"),
        ("http://me:word@a.b", "", {}, "The user name and password in the base URL would be sent"),
        ("HTTP://word@A.B:1", "", {}, "base URL would be sent to a.b unencrypted."),
        ("http://localhost@a.b", "", {}, "base URL would be sent to a.b unencrypted."),
        ("http://a.b/v1?key=k", "", {}, "The base URL of a.b has a part after its path"),
        ("https://a.b/v1#k", "k", {}, "The base URL of a.b has a part after its path"),
        ("ftp://api.example.com", "", {}, "is not a base URL"),
        ("file:///etc/passwd", "", {}, "is not a base URL"),
        ("api.example.com", "", {}, "is not a base URL"),
        ("https://", "", {}, "is not a base URL"),
        ("https://a:b:c", "", {}, "is not a base URL"),
        ("https://a:99999", "", {}, "is not a base URL"),
        ("https://[::1", "", {}, "is not a base URL"),
        ("https://a.b", "k\nHost: x", {}, "The key for a.b contains"),
        ("https://a.b", "kéy", {}, "The key for a.b contains"),
        ("https://a.b", "k", {"A": "b", "C": "d\r"}, "The header C for a.b contains"),
    ],
)
def test_a_key_goes_nowhere_else(url: str, key: str, headers: dict[str, str], told: str) -> None:
    with pytest.raises(LLMError) as raised:
        check_origin(url, key, headers)
    assert told in str(raised.value)
    assert "Host: x" not in str(raised.value)
