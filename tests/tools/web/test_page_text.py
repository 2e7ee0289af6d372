"""Pages to text: what comes through and what does not, of ordinary pages and of hostile ones."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each
from support.covered import has_landlock

from kimi_tui.tools.web import page_text
from kimi_tui.tools.web.page_text import MAX_CHARS, decoded, pdf_text, read

BASE = "https://docs.example/guide/page"
NAV = "<nav><ul>" + "<li><a href='/n'>NAVJUNK</a></li>" * 60 + "</ul></nav>"
FOOT = "<footer><p>FOOTJUNK privacy</p></footer>"
SCRIPT = "<script>var SCRIPTJUNK = '</div>';</script><style>.STYLEJUNK{color:red}</style>"
PROSE = (
    "Word by word the function reads its input and returns the number of bytes that it took. " * 3
)


def page(body: str, around: str = "<main>{}</main>") -> str:
    return (
        f"<!doctype html><html><head><title> The\n title </title>{SCRIPT}</head><body><header>HEADJUNK</header>{NAV}"
        f"{around.format(body)}<aside>ASIDEJUNK</aside>{FOOT}</body></html>"
    )


def text_of(html: str) -> str:
    return read("html", "", BASE, html.encode())[1]


API = (
    f"<h1>API: frob</h1><p>{PROSE}</p><h2 id='s'>Signature<a href='#s'>¶</a></h2><div class='highlight-python'><pre><span>def</span> frob(x: int,\n"
    '         *, deep: bool = False) -&gt; str:\n    return "CODEKEEP"\n</pre></div>'
    "<table><thead><tr><th>Name</th><th>Meaning</th></tr></thead><tbody><tr><td>x</td><td>TABLEKEEP a | b</td></tr></tbody></table>"
    "<dl><dt>DTKEEP</dt><dd>DDKEEP</dd></dl><ul><li>one<ul><li>NESTKEEP</li></ul></li></ul><ol><li>OLKEEP</li></ol>"
    "<aside class='note'>NOTEKEEP</aside><blockquote>QUOTEKEEP</blockquote><figure><img src='/a.png' alt='ALTKEEP'><figcaption>CAPKEEP</figcaption></figure>"
    "<p>See <a href='../other?a=1&amp;b=2#c'>LINKKEEP</a>, snake_case and 2*3*4.</p>"
)


@each(
    "around",
    [
        "<main>{}</main>",
        "<article>{}</article>",
        "<div role='main'>{}</div>",
        "<div>{}</div>",
        "<form>{}</form>",
    ],
)
def test_the_main_part_comes_through_and_the_rest_does_not(around: str) -> None:
    title, text, note = read("html", "", BASE, page(API, around).encode())
    assert (title, note) == ("The title", "")
    lost = [word for word in set(re.findall(r"[A-Z]+KEEP", API)) if word not in text]
    # Without a main part a note cannot be told from what is beside the page.
    assert set(lost) <= (
        {"NOTEKEEP"} if around[1:4] in ("div", "for") and "role" not in around else set()
    )
    assert not re.search("[A-Z]+JUNK", text)
    assert (
        '```python\ndef frob(x: int,\n         *, deep: bool = False) -> str:\n    return "CODEKEEP"\n```'
        in text
    )
    assert "| x | TABLEKEEP a \\| b |" in text
    assert "[LINKKEEP](https://docs.example/other?a=1&b=2#c), snake_case and 2*3*4." in text
    assert "## Signature\n" in text


def test_a_thread_of_several_articles_is_one_page() -> None:
    thread = "".join(
        f"<article><p>COMMENT{n}</p><pre>Traceback {n}</pre></article>" for n in range(6)
    )
    text = text_of(page(thread, "<div>{}</div>"))
    assert [text.count(f"COMMENT{n}") for n in range(6)] == [1] * 6
    assert text.count("Traceback") == 6


def test_a_short_page_an_empty_one_and_one_of_scripts() -> None:
    assert text_of(page("<h1>Gone</h1><p>Only one line.</p>")) == "# Gone\n\nOnly one line."
    assert read("html", "", BASE, b"")[2] == "The page is empty."
    shell = "<html><head><title>App</title><script>x</script></head><body><div id=root></div><noscript>Enable it.</noscript></body></html>"
    title, text, note = read("html", "", BASE, shell.encode())
    assert (title, text) == ("App", "Enable it.")
    assert "JavaScript" in note


def test_what_is_never_shown_does_not_come_through() -> None:
    hidden = (
        "<p hidden>HID</p><p style='display: none'>HID</p><p style='color:red;visibility:hidden'>HID</p><p style='FONT-SIZE:0px'>HID</p>"
        "<p style='opacity: 0'>HID</p><template><p>HID</p></template><!-- HID --><textarea>HID</textarea><script type='text/x'>HID</script>"
        "<svg><text>HID</text></svg><iframe srcdoc='HID'>HID</iframe><object>HID</object><noembed></noembed><?php HID ?>"
    )
    shown = "<p style='font-size:0.9em'>KEEP1</p><p style='opacity:0.5'>KEEP2</p><p style='display:block'>KEEP3</p>"
    text = text_of(page(f"<p>{PROSE}</p>{hidden}{shown}"))
    assert "HID" not in text
    assert [f"KEEP{n}" in text for n in (1, 2, 3)] == [True] * 3


def test_addresses_that_are_no_pages_are_left_out() -> None:
    links = "".join(
        f'<a href="{href}">KEEP</a>'
        for href in (
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "JaVaScRiPt:x",
            "http://[::1",
            "vbscript:x",
        )
    )
    text = text_of(
        page(f"<p>{PROSE}{links}<img src='data:image/png;base64,AAAA' alt='picture'></p>")
    )
    assert text.count("KEEP") == 6
    assert not re.search("script:|data:|file:|AAAA", text)
    assert "[image: picture]" in text


@each(
    "tag, depth",
    [
        *((tag, 300) for tag in ("div", "b", "ul><li", "table><tr><td", "blockquote")),
        ("div", 9_000),
    ],
)
def test_elements_inside_each_other_keep_their_text(tag: str, depth: int) -> None:
    assert "DEEP" in text_of("<html><body>" + f"<{tag}>" * depth + "DEEP" + "</div>" * depth)


def test_one_long_line_and_many_elements() -> None:
    line = read("html", "", BASE, b"<p>" + b"word " * 300_000)
    assert len(line[1]) <= MAX_CHARS
    assert "Only the first" in line[2]
    many = "<br>" * 2_000 + "<a href=x>END</a>"
    assert text_of(many).endswith("[END](https://docs.example/guide/x)")
    blanks = "<p>" + " " * 300_000 + "END<pre>" + " \n" * 30_000 + "END</pre>"
    assert text_of(blanks).count("END") == 2


def test_entities_are_no_bomb() -> None:
    bomb = "<!DOCTYPE x [<!ENTITY a 'HAHA'>" + "".join(
        f"<!ENTITY a{n} '&a{n - 1 or ''};&a{n - 1 or ''};'>" for n in range(1, 40)
    )
    for start in ("", '<?xml version="1.0" encoding="utf-8"?>'):
        text = text_of(
            f"{start}{bomb} <!ENTITY f SYSTEM 'file:///etc/passwd'>]><html><body><p>KEEP &a39; &f;</p></body></html>"
        )
        assert "KEEP" in text
        assert len(text) < 5_000
        assert "root:" not in text


def test_encodings_by_mark_server_page_and_guess() -> None:
    word = "größe"
    html = f"<p>{word}</p>"
    for data, charset in (
        (html.encode(), ""),
        (html.encode(), "UTF-8"),
        (html.encode("latin-1"), "ISO-8859-1"),
        (html.encode("latin-1"), ""),
        (html.encode("utf-16"), "utf-8"),
        (html.encode("utf-8-sig"), "latin-1"),
        (f"<meta charset='windows-1252'>{html}".encode("cp1252"), ""),
        (
            "<meta http-equiv=x content='text/html; charset=koi8-r'><p>größe</p>".replace(
                "größe", "привет"
            ).encode("koi8-r"),
            "",
        ),
    ):
        text = decoded(data, charset, is_html=True)
        assert word in text or "привет" in text, (data, charset)
    # Lies, and names of what is no encoding of texts.
    for charset in (
        "gzip",
        "zip",
        "hex",
        "rot13",
        "base64",
        "idna",
        "punycode",
        "unicode_escape",
        "undefined",
        "utf-7",
        "x" * 40,
        "\0",
        "../..",
    ):
        assert decoded(html.encode(), charset, is_html=False) == html
    assert decoded(b"\xff\xfe\xfa", "utf-8", is_html=False)
    assert "\ufffd" in decoded(b"a\xffb", "utf-8", is_html=True)


@given(st.text(alphabet="<>/=\"'&;! -abdipresultmainhref\n\0\x1b\x0c\ufffe", max_size=80))
def test_any_html_gives_text(html: str) -> None:
    title, text, _note = read("html", "", BASE, html.encode())
    assert isinstance(title + text, str)


def pdf(pages: Sequence[bytes], extra: bytes = b"") -> bytes:
    """Return a PDF with a content stream a page, each with its entries and its bytes."""
    kids = b" ".join(b"%d 0 R" % (3 + 2 * n) for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
    ]
    for n, stream in enumerate(pages):
        font = b"<< /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources %s /Contents %d 0 R >>"
            % (font, 4 + 2 * n)
        )
        objects.append(stream)
    out, places = b"%PDF-1.4\n", []
    for n, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (n, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return out + b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        extra,
        start,
    )


def shown(text: str, *, packed: bool = False) -> bytes:
    data = f"BT /F 9 Tf 1 1 Td ({text}) Tj ET".encode()
    filter_ = b"/Filter /FlateDecode " if packed else b""
    data = zlib.compress(data) if packed else data
    return b"<< %s/Length %d >>\nstream\n%s\nendstream" % (filter_, len(data), data)


def test_a_pdf_is_text() -> None:
    title, text, note = pdf_text(
        pdf([shown("Hello reader"), shown("The end", packed=True)], b"/Info << /Title (A paper) >>")
    )
    assert text == "[page 1]\nHello reader\n\n[page 2]\nThe end"
    assert note == "A PDF of 2 pages."
    assert title == "A paper"


def test_pdfs_that_cannot_be_read_say_so() -> None:
    assert "without text" in pdf_text(pdf([shown("")]))[2]
    assert (
        "password"
        in pdf_text(
            pdf(
                [shown("x")],
                b"/Encrypt << /Filter /Standard /V 1 /R 2 /O ("
                + b"a" * 32
                + b") /U ("
                + b"b" * 32
                + b") /P -4 >> /ID [(a) (b)]",
            )
        )[2]
    )
    whole = pdf([shown(f"Page {n}") for n in range(5)])
    for data in (
        b"%PDF-1.4\n",
        whole[: len(whole) // 2],
        b"%PDF-1.7" + b"\0" * 5_000,
        whole.replace(b"stream", b"strxxx"),
    ):
        assert pdf_text(data)[2]
    loop = whole.replace(b"/Kids [3 0 R", b"/Kids [2 0 R")
    assert pdf_text(loop)[2]
    bomb = zlib.compress(bytes(30_000_000), 9)
    packed = b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(bomb), bomb)
    assert "1 page" in pdf_text(pdf([packed]))[2]


def test_a_long_pdf_is_read_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_text, "PDF_S", -1.0)
    assert "of which 0 were read" in pdf_text(pdf([shown("x")] * 3))[2]
    monkeypatch.setattr(page_text, "PDF_S", 20.0)
    monkeypatch.setattr(page_text, "MAX_PAGES", 2)
    assert pdf_text(pdf([shown("x")] * 3))[2] == "A PDF of 3 pages, of which 2 were read."


TRIES = """
import os, socket, sys
from kimi_tui.tools.web import page_text
page_text.confine_this_process()
tries = [
    lambda: open("/etc/passwd").read(),
    lambda: os.listdir(sys.argv[1]),
    lambda: open("/proc/self/environ").read(),
    lambda: open(os.path.join(sys.argv[1], "new"), "w"),
    lambda: os.unlink(os.path.join(sys.argv[1], "old")),
    lambda: socket.socket(),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    lambda: socket.socket(socket.AF_UNIX),
    lambda: os.fork() or os._exit(0),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getppid(), 0),
]
for place, one in enumerate(tries):
    try:
        one()
    except OSError:
        continue
    print(place)
"""


@pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")
def test_what_takes_over_a_parser_reaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    said = subprocess.run(
        [sys.executable, "-c", TRIES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (said.stdout, said.stderr) == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
