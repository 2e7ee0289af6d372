"""Which URLs and IP addresses a page may have."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.base_url import literal_address
from kimi_tui.tools.web.addresses import (
    BadAddress,
    is_allowed,
    is_public,
    page_url,
    refuse_near,
)


@each(
    "text",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),
        *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192"),
        *(
            "198.18.0.1",
            "168.63.129.16",
            "192.88.99.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1"),
        *("::", "::1", "::2", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::127.0.0.1", "64:ff9b:1::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
        *("fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1"),
        *("ff02::1", "2001:db8::1", "2001:0:7f00:1::", "100::1"),
    ],
)
def test_addresses_that_are_not_of_the_public_internet(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@each("text", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_public_addresses(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_counts_as_itself(address: ipaddress.IPv4Address) -> None:
    for inside in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert is_public(ipaddress.ip_address(inside)) == is_public(address)


@each(
    "host",
    [
        *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1"),
        *("017700000001", "0177.0.0.1", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
        *("[0:0:0:0:0:ffff:7f00:1]", "[::ffff:7f00:1]", "[fe80::1%25eth0]", "[64:ff9b::7f00:1]"),
        *(
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "printer",
            "nas.local",
            "x.internal",
        ),
        *("metadata.google.internal", "router.lan", "x.home.arpa", "169.254.169.254", "0xA9FEA9FE"),
        *("127。0。0。1", "１２７.0.0.1", "①②⑦.0.0.1"),
    ],
)
def test_hosts_that_are_near_are_refused_before_anything_is_resolved(host: str) -> None:
    with pytest.raises(BadAddress):
        refuse_near(page_url(f"http://{host}/"))


@each(
    "url",
    [
        *("file:///etc/passwd", "ftp://example.org/", "data:text/html,<b>x", "javascript:alert(1)"),
        *(
            "gopher://example.org/",
            "about:blank",
            "view-source:http://example.org",
            "//example.org/",
        ),
        *(
            "http:///etc/passwd",
            "http://",
            "",
            "   ",
            "example",
            "http:example.org",
            "ws://example.org",
        ),
        *("http://user@example.org/", "http://a:b@example.org/", "http://example.org@127.0.0.1/"),
        *(
            "http://example.org\\@127.0.0.1/",
            "http://127.0.0.1#@example.org/@",
            "http://1.1.1.1&@x/",
        ),
        *(
            "http://%31%32%37.0.0.1/",
            "http://exa mple.org/",
            "http://example.org:22/",
            "http://a..b/",
        ),
        *("http://example.org:0/", "http://example.org:99999/", "http://example.org:-1/"),
        *(
            "http://example.org:25/",
            "http://[::1/",
            "http://[v1.x]/",
            "http://a\nb/",
            "http://a\0b/",
        ),
        *("http://ⓔxample..org/", "http://-/../", "http://" + "a" * 3_000),
    ],
)
def test_urls_that_are_no_pages(url: str) -> None:
    with pytest.raises(BadAddress) as refused:
        refuse_near(page_url(url))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@each(
    "text, url",
    [
        ("HTTP://EXAMPLE.org:80/a b?q=ü#part", "http://example.org/a%20b?q=%C3%BC"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://example.org.:443", "https://example.org/"),
        ("https://example.org:8443/x", "https://example.org:8443/x"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
    ],
)
def test_a_url_is_written_in_one_way(text: str, url: str) -> None:
    assert str(page_url(text)) == url


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_is_refused(text: str) -> None:
    for one in (text, f"http://{text}", f"https://example.org/{text}"):
        try:
            url = page_url(one)
        except BadAddress:
            continue
        assert str(url).isascii()
        assert str(page_url(str(url))) == str(url)


@given(st.text(alphabet="0123456789abcdefx.", min_size=1, max_size=20))
def test_what_the_c_library_takes_for_an_address_is_one(host: str) -> None:
    try:
        meant = socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return
    assert str(literal_address(host)) == meant


@each(
    "entry, url, yes",
    [
        ("example.org", "https://example.org/x", True),
        ("Example.org", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org/", False),
        ("example.org", "https://a.example.org/", False),
        ("example.org", "https://example.org.evil.example/", False),
        ("example.org", "https://notexample.org/", False),
        ("*.example.org", "https://a.b.example.org/", True),
        ("*.example.org", "https://example.org/", False),
        ("*.example.org", "https://aexample.org/", False),
        ("*", "https://anything.example/", True),
        ("", "https://example.org/", False),
    ],
)
def test_what_the_configuration_allows(entry: str, url: str, yes: bool) -> None:
    assert is_allowed(page_url(url), [entry]) == yes
