"""Proxies and certificates that the environment names, against real proxies that alone know where the server is."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from support.cases import each
from support.chat_server import ChatServer, say

from kimi_tui.llm.completion import RetryPolicy, complete, stream_answer
from kimi_tui.llm.errors import (
    APIConnectionError,
    APITLSError,
    LLMError,
    NetworkSettingError,
    ProxyError,
)
from kimi_tui.llm.message import user_message
from kimi_tui.llm.models import chat_models, probe
from kimi_tui.llm.network_settings import proxy_to, trusted_certificates
from kimi_tui.llm.openai_compatible import OpenAICompatible

NAME = "api.example.test"
"""Resolved by the proxies of these tests and by nobody else."""
URL = f"http://{NAME}/v1"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Proxy:
    """A proxy that leads every name to one port of this machine.

    Args:
        port: where all connections go.
        login: as `name:password`; empty to ask for none.
        refuses: the status (CONNECT) or reply code (SOCKS) with which connections are refused.
        garbage: what is answered in place of SOCKS.
        page: what is answered in place of the server, without TLS; empty to close the connection.
    """

    def __init__(
        self,
        port: int,
        login: str = "",
        refuses: int = 0,
        garbage: bytes | None = None,
        page: bytes | None = None,
    ) -> None:
        self.port = port
        self.login = login
        self.refuses = refuses
        self.garbage = garbage
        self.page = page
        self.asked_for: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ConnectionError):
            first = await reader.readexactly(1)
            if first == b"\x05":
                await self._socks(reader, writer)
            else:
                await self._http(first, reader, writer)
        writer.close()

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        offered = await reader.readexactly((await reader.readexactly(1))[0])
        if self.garbage is not None:
            writer.write(self.garbage)
            return
        method = 2 if self.login else 0
        writer.write(bytes([5, method if method in offered else 255]))
        if method not in offered:
            return
        if self.login:
            await reader.readexactly(1)
            name = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_right = f"{name.decode()}:{password.decode()}" == self.login
            writer.write(bytes([1, 0 if is_right else 1]))
        await reader.readexactly(3)
        kind = await reader.readexactly(1)
        assert kind == b"\x03", "a name is to be resolved by the proxy"
        host = await reader.readexactly((await reader.readexactly(1))[0])
        await reader.readexactly(2)
        self.asked_for.append(host.decode())
        writer.write(bytes([5, self.refuses, 0, 1, 0, 0, 0, 0, 0, 0]))
        if not self.refuses:
            await self._join(reader, writer)

    async def _http(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        wanted = base64.b64encode(self.login.encode())
        if self.login and b"Basic " + wanted not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        self.asked_for.append(target)
        if self.page is not None:
            writer.write(self.page)
        elif self.refuses:
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.refuses)
        elif method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await self._join(reader, writer)
        else:
            await self._join(reader, writer, head.replace(f"http://{NAME}".encode(), b"", 1))

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes = b""
    ) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port)
        server_writer.write(head)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                sink.write(data)
            sink.close()

        await asyncio.gather(
            pump(reader, server_writer), pump(server_reader, writer), return_exceptions=True
        )


Running = Callable[..., Awaitable[tuple[Proxy, str]]]


@pytest.fixture
async def through(server: ChatServer) -> AsyncIterator[Running]:
    """Starts proxies before the server; each is given with its address, without a scheme."""
    running: list[asyncio.Server] = []

    async def start(**options: object) -> tuple[Proxy, str]:
        port = int(server.origin.rpartition(":")[2])
        proxy = Proxy(**{"port": port, **options})  # pyright: ignore[reportArgumentType]
        running.append(await asyncio.start_server(proxy.serve, "127.0.0.1", 0))
        return proxy, f"127.0.0.1:{running[-1].sockets[0].getsockname()[1]}"

    yield start
    for one in running:
        one.close()


async def said_by_model(url: str = URL) -> str:
    provider = OpenAICompatible(provider="p", base_url=url, api_key="", model="stand-in")
    try:
        done = await complete(
            stream_answer(
                provider, "", [], [user_message("hello")], policy=RetryPolicy(max_attempts=1)
            )
        )
    finally:
        await provider.aclose()
    return done.message.text


async def error_of(url: str = URL) -> LLMError:
    """Return the error that all who ask a server get; it is the same for a chat and for the list of models."""
    with pytest.raises(LLMError) as listed:
        await chat_models(url, "")
    with pytest.raises(LLMError) as chatted:
        await said_by_model(url)
    assert str(listed.value) == str(chatted.value)
    assert type(listed.value) is type(chatted.value)
    assert await probe(url, "", "m")
    return listed.value


@pytest.mark.parametrize(
    "value",
    [
        "socks://{}",
        "socks5://{}",
        "socks5h://{}/",
        "SOCKS5://{}",
        "  socks5://{}  ",
        '"socks5://{}"',
        "http://{}",
        "http://{}/",
        "{}",
    ],
)
async def test_a_server_is_reached_through_the_proxy(
    server: ChatServer, through: Running, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    proxy, address = await through()
    monkeypatch.setenv("ALL_PROXY", value.format(address))
    server.script(say("through it"))
    assert await said_by_model() == "through it"
    assert (await chat_models(URL, "")).models
    assert len(proxy.asked_for) >= 2
    assert all(NAME in one for one in proxy.asked_for)


@pytest.mark.parametrize("kind", ["http", "socks5"])
@pytest.mark.parametrize("login", ["me:p@ss:w/rd", "me:pass"])
async def test_a_proxy_gets_its_login_and_no_error_shows_it(
    server: ChatServer,
    through: Running,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    login: str,
) -> None:
    _, address = await through(login=login)
    name, _, password = login.partition(":")
    written = password.replace("/", "%2F").replace(":", "%3A")
    monkeypatch.setenv("HTTP_PROXY", f"{kind}://{name}:{written}@{address}")
    server.script(say("let in"))
    assert await said_by_model() == "let in"

    for wrong in (f"{name}:wrong-one@", ""):
        monkeypatch.setenv("HTTP_PROXY", f"{kind}://{wrong}{address}")
        error = await error_of()
        assert isinstance(error, ProxyError)
        assert "set by HTTP_PROXY" in error.message
        assert "a password" in error.message or "and password" in error.message
        assert "HTTP_PROXY" in error.advice
        assert "wrong-one" not in f"{error.message} {error.advice}"
        assert address in error.message


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_proxy_that_is_down_or_refuses_is_named(
    through: Running, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{kind}://127.0.0.1:1")
    error = await error_of()
    assert isinstance(error, APIConnectionError)
    assert error.message.startswith(
        f"The proxy {kind}://127.0.0.1:1, set by ALL_PROXY, cannot be reached:"
    )
    assert NAME in error.advice


@pytest.mark.parametrize("garbage", [b"", b"\x05", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x04\0"])
async def test_what_is_no_socks_proxy_is_named(
    through: Running, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    _, address = await through(garbage=garbage)
    monkeypatch.setenv("ALL_PROXY", f"socks5://{address}")
    error = await error_of()
    assert "set by ALL_PROXY" in error.message


@pytest.mark.parametrize("status", [200, 403, 502])
async def test_a_page_that_may_come_from_the_proxy_names_it(
    through: Running, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    text = b"<html>Denied</html>"
    head = b"HTTP/1.1 %d Page\r\nContent-Type: text/html\r\n" % status
    page = head + b"Content-Length: %d\r\n\r\n" % len(text) + text
    _, address = await through(page=page)
    monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
    error = await error_of()
    assert error.advice == (
        f"The page may come from the proxy http://{address}, set by HTTP_PROXY. "
        f"Allow {NAME} in the proxy, or add {NAME} to NO_PROXY."
    )


async def test_whoever_closed_a_connection_through_a_proxy_it_is_named(
    through: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = await through(page=b"")
    monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
    with pytest.raises(
        APIConnectionError, match=r"or the proxy .* closed the connection"
    ) as chatted:
        await said_by_model()
    assert "NO_PROXY" in chatted.value.advice


async def test_a_proxy_that_cannot_connect_says_why(
    through: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = await through(refuses=5)
    monkeypatch.setenv("ALL_PROXY", f"socks5://{address}")
    error = await error_of()
    assert isinstance(error, APIConnectionError)
    assert f"could not connect to {NAME}" in error.message
    assert "refused" in error.message


def certificate(folder: Path) -> ssl.SSLContext:
    """Return the context of a server whose certificate for `NAME` is in the file `cert` of a folder, and hashed in `folder`."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    made += ["-keyout", "key", "-out", "cert", "-addext", f"subjectAltName=DNS:{NAME}"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "folder").mkdir()
    shutil.copy(folder / "cert", folder / "folder" / "cert.pem")
    subprocess.run(["openssl", "rehash", folder / "folder"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
async def test_an_encrypted_server_through_proxies_with_its_own_certificate(
    tmp_path: Path, through: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certificate(tmp_path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = b'{"data": [{"id": "m"}]}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    url = f"https://{NAME}/v1"
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        proxy, address = await through(port=port)
        for kind in ("http", "socks"):
            monkeypatch.setenv("HTTPS_PROXY", f"{kind}://{address}")
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
            with pytest.raises(APITLSError, match="not trusted"):
                await chat_models(url, "sk-k")
            monkeypatch.setenv("SSL_CERT_FILE", f" {tmp_path / 'cert'} ")
            assert [model.id for model in (await chat_models(url, "sk-k")).models] == ["m"]
            assert proxy.asked_for
        # With the name that OpenSSL gives it, the certificate is found in a folder, too.
        folder = tmp_path / "folder"
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere:{folder}")
        assert (await chat_models(url, "sk-k")).models

        refusing, address = await through(port=port, refuses=403)
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        with pytest.raises(ProxyError, match=f"refuses to connect to {NAME}: 403 No") as refused:
            await chat_models(url, "sk-k")
        assert "NO_PROXY" in refused.value.advice
        assert refusing.asked_for == [f"{NAME}:443"]
        refusing.refuses = 502
        with pytest.raises(APIConnectionError, match=f"could not connect to {NAME}: 502 No"):
            await chat_models(url, "sk-k")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("ftp://h:1", '"ftp"'),
        ("socks4://h:1", '"socks4"'),
        ("socks4a://me:secret@h:1", '"socks4a"'),
        ("wss://h", '"wss"'),
        ("://h", ""),
        ("http://", ""),
        ("socks5://:1080", ""),
        ("http://h:99999", ""),
        ("http://h:port", ""),
        ("http://[::1", ""),
        ("http://me:secret@", ""),
        ("\x1b[2J", ""),
        ("http://h\x00:1", ""),
        ("http://" + "a" * 9_000, ""),
        ("no idea what this is", ""),
    ],
)
async def test_what_is_no_usable_proxy_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, named: str
) -> None:
    with pytest.raises(NetworkSettingError) as caught:
        proxy_to("https://api.example.test/v1", {"ALL_PROXY": value})
    message, advice = caught.value.message, caught.value.advice
    assert message.startswith('ALL_PROXY is "')
    assert named in message
    assert "secret" not in message
    assert message.isprintable()
    assert len(message) < 300
    assert NAME in advice
    if "\x00" not in value:
        monkeypatch.setenv("all_proxy", value)
        error = await error_of()
        assert isinstance(error, NetworkSettingError)
        assert error.message == message.replace("ALL_PROXY", "all_proxy")


@each("server_url", [URL, f"https://{NAME}/v1"])
@each(
    "environ, variable",
    [
        ({}, None),
        ({"ALL_PROXY": "", "all_proxy": "   "}, None),
        ({"ALL_PROXY": "socks://h:1", "all_proxy": "http://l:1"}, "all_proxy"),
        ({"ALL_PROXY": "socks://h:1", "all_proxy": " "}, "ALL_PROXY"),
        # A proxy that is not used may have any value.
        ({"ALL_PROXY": "nonsense://h:1", "{scheme}_proxy": "http://l:1"}, "{scheme}_proxy"),
        ({"ALL_PROXY": "nonsense://h:1", "{SCHEME}_PROXY": "http://l:1"}, "{SCHEME}_PROXY"),
        ({"FTP_PROXY": "nonsense://h:1", "TRAVIS_APT_PROXY": "x"}, None),
        ({"ALL_PROXY": "nonsense://h:1", "NO_PROXY": f"localhost, {NAME}"}, None),
        ({"ALL_PROXY": "nonsense://h:1", "NO_PROXY": "*"}, None),
    ],
)
def test_one_variable_applies(
    server_url: str, environ: dict[str, str], variable: str | None
) -> None:
    scheme = server_url.partition(":")[0]
    given = {
        name.format(scheme=scheme, SCHEME=scheme.upper()): value for name, value in environ.items()
    }
    found = proxy_to(server_url, given)
    wanted = variable and variable.format(scheme=scheme, SCHEME=scheme.upper())
    assert (found.variable if found else None) == wanted


@each(
    "no_proxy, url, excepted",
    [
        ("api.example.test", URL, True),
        ("API.Example.Test", URL, True),
        (".example.test", URL, True),
        ("example.test", URL, True),
        ("*.example.test", URL, True),
        ("ample.test", URL, False),
        ("api.example.test:80", URL, True),
        ("api.example.test:443", URL, False),
        ("api.example.test:443", "https://api.example.test/v1", True),
        ("api.example.test:8443", "https://api.example.test:8443/v1", True),
        ("api.example.test:443", "https://api.example.test:8443/v1", False),
        ("http://api.example.test", URL, True),
        ("a b\tapi.example.test", URL, True),
        (",, ,;", URL, False),
        ("10.0.0.0/8", "http://10.1.2.3:80/v1", True),
        ("10.0.0.0/8", "http://11.1.2.3:80/v1", False),
        ("10.1.2.3", "http://10.1.2.3/v1", True),
        ("fd00::/8", "http://[fd00::1]/v1", True),
        ("[fd00::1]", "http://[fd00::1]:8080/v1", True),
        ("[fd00::1]:81", "http://[fd00::1]:8080/v1", False),
        ("10.0.0.0/99,/8,[,]:,:1", URL, False),
    ],
)
def test_no_proxy_is_looked_at_first(no_proxy: str, url: str, excepted: bool) -> None:
    environ = {"ALL_PROXY": "nonsense://x", "no_proxy": no_proxy}
    if excepted:
        assert proxy_to(url, environ) is None
    else:
        with pytest.raises(NetworkSettingError):
            proxy_to(url, environ)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "a.localhost"])
def test_this_machine_is_never_asked_for_through_a_proxy(host: str) -> None:
    assert proxy_to(f"http://{host}:8080/v1", {"ALL_PROXY": "nonsense://x"}) is None


async def test_wrong_certificates_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "cert.pem").touch()
    url = f"https://{NAME}/v1"
    cases = [
        ("SSL_CERT_FILE", "missing", "does not exist"),
        ("SSL_CERT_FILE", "empty", "no certificates"),
        ("SSL_CERT_FILE", "text", "no certificates"),
        ("SSL_CERT_FILE", "folder", "SSL_CERT_DIR"),
        ("SSL_CERT_FILE", "text/below", "cannot be read: Not a directory"),
        ("SSL_CERT_DIR", "missing", "no certificates"),
        ("SSL_CERT_DIR", "folder", "no certificates"),
        ("SSL_CERT_DIR", "empty", "no certificates"),
    ]
    for variable, name, words in cases:
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(tmp_path / name))
            error = await error_of(url)
            assert isinstance(error, NetworkSettingError)
            assert error.message.startswith(f'{variable} is "')
            assert words in f"{error.message} {error.advice}"
            # No certificate is needed without encryption.
            assert not isinstance(await error_of(), NetworkSettingError)
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        assert trusted_certificates({variable: " "}).get_ca_certs() is not None


@each(
    "login, secrets",
    [
        ("me:pass", {"pass"}),
        ("me:p%40ss", {"p%40ss", "p@ss"}),
        ("me:p:ss", {"p:ss"}),
        # Without a password, the name may be a token.
        ("tok%3Aen", {"tok%3Aen", "tok:en"}),
        ("me:", {"me"}),
    ],
)
def test_what_is_secret_in_a_proxys_address_is_known_as_written_and_as_sent(
    login: str, secrets: set[str]
) -> None:
    found = proxy_to(URL, {"all_proxy": f"http://{login}@proxy.example.test:1/a@b"})
    assert found is not None
    assert {*found.secrets} == secrets
    assert not any(secret in found.shown for secret in secrets)
