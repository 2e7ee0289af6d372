"""Where a connection may go, and how much of an answer is read: against a real server that misbehaves on demand."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.cases import each
from support.page_server import PRIVATE, PUBLIC, PageServer, answer, fetcher, redirect

from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.web import fetching
from kimi_tui.tools.web.addresses import PageURL, page_url
from kimi_tui.tools.web.fetching import MAX_BYTES, Fetched, PageFetcher


async def never(_there: PageURL) -> None:
    raise AssertionError("no redirect to another site was expected")


async def get(
    web: PageServer, path: str = "/", fetch: PageFetcher | None = None, host: str = "docs.example"
) -> Fetched:
    return await (fetch or fetcher()).fetch(page_url(web.url(path, host)), {}, never)


async def refusal(
    web: PageServer, path: str = "/", fetch: PageFetcher | None = None, host: str = "docs.example"
) -> str:
    with pytest.raises(ToolProblem) as refused:
        await get(web, path, fetch, host)
    text = str(refused.value)
    assert refused.value.brief
    assert "\n" not in text
    return text


async def test_a_page_is_asked_for_without_anything_of_the_user() -> None:
    async with PageServer() as web:
        web.pages["/a"] = answer(
            "<p>x</p>", "text/html; charset=UTF-8", headers={"Set-Cookie": "a=b"}
        )
        await get(web, "/a?q=1")
        found = await get(web, "/a?q=1")
        assert (found.body, found.content_type, found.charset) == (
            b"<p>x</p>",
            "text/html",
            "UTF-8",
        )
        head = web.requests[1]
    assert head.startswith(
        f"GET /a?q=1 HTTP/1.1\r\nHost: docs.example:{web.port}\r\nUser-Agent: kimi-tui/"
    )
    names = {line.partition(":")[0] for line in head.strip().split("\r\n")[1:]}
    assert names == {"Host", "User-Agent", "Accept", "Accept-Encoding"}


@each(
    "addresses",
    [
        PRIVATE,
        f"{PUBLIC} {PRIVATE}",
        f"{PUBLIC} ::1",
        "169.254.169.254",
        "::ffff:127.0.0.2",
        "nonsense",
    ],
)
async def test_a_name_for_a_private_address_is_not_connected_to(addresses: str) -> None:
    async with PageServer() as web:
        said = await refusal(
            web, fetch=fetcher({"evil.example": (addresses,)}), host="evil.example"
        )
        assert "private network" in said
        assert not web.requests


async def test_the_real_rule_refuses_names_of_this_machine() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    async with PageServer() as web:
        assert "127.0.0.1" in await refusal(web, fetch=PageFetcher(resolve))
        for host in ("localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
            with pytest.raises(ToolProblem, match="private network"):
                PageFetcher().check(web.url("/", host))
        assert not web.requests


async def test_a_name_that_is_rebound_is_resolved_once() -> None:
    # The check and the connection use one answer of the resolver; the next answer is the attacker's.
    rebound = fetcher({"evil.example": (PUBLIC, PRIVATE)})
    async with PageServer() as web:
        web.pages["/"] = answer("x")
        await get(web, "/", rebound, "evil.example")
        assert web.reached == [PUBLIC]
        assert "private network" in await refusal(web, "/", rebound, "evil.example")
        assert web.reached == [PUBLIC]


@each(
    "place",
    [
        *("file:///etc/passwd", "data:text/html,x", "javascript:alert(1)", "ftp://docs.example/"),
        *("//user:password@docs.example/", "http://[::1", "/" + "a" * 5_000),
        "http://docs.example:22/",
    ],
)
async def test_redirects_to_what_is_no_page_are_not_followed(place: str) -> None:
    async with PageServer() as web:
        web.pages["/"] = redirect(place)
        await refusal(web)
        assert len(web.requests) == 1


async def test_redirects_to_private_addresses_are_not_followed() -> None:
    async with PageServer() as web:
        for status, place in (
            (301, f"http://{PRIVATE}:{web.port}/"),
            (302, "http://169.254.169.254/latest/meta-data"),
        ):
            web.pages["/"] = redirect(place, status)
            with pytest.raises(ToolProblem, match="private address"):
                await fetcher().fetch(page_url(web.url()), {}, _follow)
        # With the real rule no name is even resolved.
        real = PageFetcher()
        with pytest.raises(fetching.BadAddress):
            real._redirect(page_url("http://docs.example/"), "http://localhost:9/")
        assert all(one == PUBLIC for one in web.reached)


async def _follow(_there: PageURL) -> None:
    """Allow every site."""


async def test_redirects_on_the_same_site_are_followed_and_counted() -> None:
    async with PageServer() as web:
        web.pages |= {
            "/": redirect("b/./c?d=1"),
            "/b/c": redirect("../end", 308),
            "/end": answer("here"),
        }
        found = await get(web)
        assert (found.body, found.url.target) == (b"here", "/end")
        web.pages["/loop"] = redirect("/loop")
        assert "more than 5 times" in await refusal(web, "/loop")


async def test_another_site_is_asked_for_before_it_is_followed() -> None:
    asked: list[str] = []

    async def no(there: PageURL) -> None:
        asked.append(there.site)
        raise ToolProblem("no", brief="no")

    async with PageServer() as web:
        web.pages["/"] = redirect(web.url("/x", "other.example"))
        with pytest.raises(ToolProblem, match="no"):
            await fetcher().fetch(page_url(web.url()), {}, no)
        assert asked == [f"other.example:{web.port}"]
        assert len(web.requests) == 1


def bomb(kind: str) -> bytes:
    """Return a few kilobytes that unpack to 300 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if kind == "gzip" else -15)
    return b"".join([*(packer.compress(bytes(1_000_000)) for _ in range(30)), packer.flush()])


@each("kind", ["gzip", "deflate"])
async def test_a_packed_body_is_unpacked_up_to_the_limit(kind: str) -> None:
    async with PageServer() as web:
        web.pages["/"] = answer(bomb(kind), headers={"Content-Encoding": kind})
        found = await get(web)
    assert (len(found.body), found.is_cut) == (MAX_BYTES, True)


async def test_packed_bodies_of_all_forms() -> None:
    text = b"words " * 1_000
    half = len(text) // 2
    forms = {
        "gzip": gzip.compress(text),
        "x-gzip": gzip.compress(text[:half]) + gzip.compress(text[half:]),
        "deflate": zlib.compress(text),
        "Deflate": zlib.compress(text)[2:-4],
        "identity": text,
        "": text,
    }
    async with PageServer() as web:
        for encoding, body in forms.items():
            web.pages["/"] = answer(
                body, headers={"Content-Encoding": encoding} if encoding else {}
            )
            assert (await get(web)).body == text, encoding
        for encoding in ("br", "zstd", "gzip, gzip", "gzip, br", "x" * 9_000):
            web.pages["/"] = answer(text, headers={"Content-Encoding": encoding})
            assert "compressed" in await refusal(web)
        web.pages["/"] = answer(b"not packed", headers={"Content-Encoding": "gzip"})
        assert "cannot be decompressed" in await refusal(web)
        web.pages["/"] = answer(gzip.compress(text)[:-400], headers={"Content-Encoding": "gzip"})
        assert text.startswith((await get(web)).body)


async def test_an_endless_body_is_cut() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    async with PageServer() as web:
        web.pages["/"] = endless
        found = await get(web)
    assert (len(found.body), found.is_cut) == (MAX_BYTES, True)


async def test_a_server_that_sends_byte_by_byte_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TOTAL_S", 0.3)

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with PageServer() as web:
        for talk in (slow, silent):
            web.pages["/"] = talk
            assert "within" in await refusal(web)


@each(
    "sent",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFFFFFFFF\r\n",
        b"\x16\x03\x01 TLS",
        b"HTTP/1.1 99999 OK\r\n\r\n",
    ],
)
async def test_answers_that_are_no_http(sent: bytes) -> None:
    async with PageServer() as web:
        web.pages["/"] = sent
        await refusal(web)


async def test_nobody_listens() -> None:
    async with PageServer() as web:
        url = page_url(web.url())
    with pytest.raises(ToolProblem, match="cannot be reached"):
        await fetcher().fetch(url, {}, never)

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(ToolProblem, match="Name or service not known"):
        await PageFetcher(unknown).fetch(page_url("https://nowhere.example/"), {}, never)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
async def test_certificates_are_for_the_name_of_the_host(tmp_path: Path) -> None:
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=x",
        "-days",
        "9",
    ]
    made += ["-addext", "subjectAltName=DNS:docs.example", "-keyout", "key", "-out", "cert"]
    subprocess.run(made, check=True, capture_output=True, cwd=tmp_path)  # noqa: ASYNC221 - nothing else waits
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")

    def trusted(_environ: Mapping[str, str]) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(tmp_path / "cert"))

    def nobody(_environ: Mapping[str, str]) -> ssl.SSLContext:
        return ssl.create_default_context()

    async with PageServer(context) as web:
        web.pages["/"] = answer("secret")
        found = await get(web, fetch=fetcher(trusted=trusted))
        assert found.body == b"secret"
        assert "not trusted" in await refusal(
            web, fetch=fetcher(trusted=trusted), host="other.example"
        )
        assert "not trusted" in await refusal(web, fetch=fetcher(trusted=nobody))
        web.pages["/"] = redirect(f"http://docs.example:{web.port}/plain")
        assert "without encryption" in await refusal(web, fetch=fetcher(trusted=trusted))
        assert len(web.requests) == 2


async def _proxy(seen: list[str]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer("through the proxy"))
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def test_a_proxy_of_the_environment_is_used_and_names_that_are_near_are_refused() -> None:
    seen: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        if host == "inner.example":
            return ["10.0.0.1"]
        raise OSError("only the proxy knows it")

    async with PageServer():
        proxy = await _proxy(seen)
        port = proxy.sockets[0].getsockname()[1]
        environ = {"http_proxy": f"http://me:hush@127.0.0.1:{port}"}
        fetch = PageFetcher(resolve)
        found = await fetch.fetch(page_url("http://docs.example/a"), environ, never)
        assert found.body == b"through the proxy"
        assert seen[0].startswith("GET http://docs.example/a HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic" in seen[0]
        with pytest.raises(ToolProblem, match="private network"):
            await fetch.fetch(page_url("http://inner.example/"), environ, never)
        # Without the proxy the rule is that of the connection.
        with pytest.raises(ToolProblem, match="private network"):
            await fetch.fetch(
                page_url("http://inner.example/"), {**environ, "no_proxy": "*"}, never
            )
        assert len(seen) == 1
        proxy.close()
        await proxy.wait_closed()
        with pytest.raises(ToolProblem, match="The proxy http") as refused:
            await fetch.fetch(page_url("http://docs.example/a"), environ, never)
        assert "hush" not in str(refused.value)
