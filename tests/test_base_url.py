"""Base URLs: the typed text, and its host and origin."""

from __future__ import annotations

from support.cases import each

from kimi_tui.base_url import host_of, is_loopback, origin_of, with_scheme


def test_an_origin_has_its_port() -> None:
    assert origin_of("https://A.b/v1") == origin_of("https://a.b:443/x")
    assert origin_of("http://a.b") != origin_of("https://a.b")


@each(
    "url, is_here",
    [
        ("http://[::1]:80/v1", True),
        ("http://localhost:1/v1", True),
        ("http://API.localhost/v1", True),
        ("http://127.8.9.1/v1", True),
        ("http://localhost.evil.com/v1", False),
        ("http://127.evil.com/v1", False),
        ("http://127.0.0.1.evil.com/v1", False),
        ("http://0x7f.1/v1", True),
        ("http://127.1/v1", True),
        ("http://127.0.0.2/v1", True),
        ("http://127.0.0.1./v1", True),
        ("http://2130706433/v1", True),
        ("http://LOCALHOST.:1/v1", True),
        ("http://api.localhost./v1", True),
        ("http://[::ffff:127.0.0.1]/v1", True),
        ("http://localhost../v1", False),
        ("http://127.1.evil/v1", False),
        ("http://126.1/v1", False),
        ("http://1.127/v1", False),
        ("http://0.0.0.0/v1", False),
        ("http://[::ffff:10.0.0.1]/v1", False),
        ("http://127.0.0.1%20evil.com/v1", False),
        ("http://[bad", False),
        ("", False),
    ],
)
def test_only_what_is_this_machine_by_its_whole_name_is_loopback(url: str, is_here: bool) -> None:
    assert is_loopback(host_of(url)) is is_here


@each(
    "typed, meant",
    [
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("api.example.com:8443", "https://api.example.com:8443"),
        ("localhost:11434", "http://localhost:11434"),
        ("127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
        # An API key is no server, although some have a dot.
        ("0123abcd.EfGhIj", ""),
        ("sk-0123abcd", ""),
        ("ftp://example.com/v1", ""),
        ("host/v1", ""),
        ("a b.c/v1", ""),
        ("[::1", ""),
        ("", ""),
    ],
)
def test_a_base_url_gets_its_scheme_where_it_can_be_nothing_else(typed: str, meant: str) -> None:
    assert with_scheme(typed) == (meant or typed)
