"""Turns the bytes of a page into text for a model: HTML into Markdown, PDF into plain text, text as it is.

It runs as a program of its own, which `page_reader` starts for each page: parsers
written in C read what anybody may have written, and take as long as that makes them. The limits of memory and time that it
sets for itself end it where they do not suffice. On Linux it confines itself before it reads anything (`sandbox/confine.py`): what
takes over a parser can read the interpreter's files, and nothing else. It imports its parsers, and nothing else of ours.

On standard input is one line of JSON (`kind`, `charset`, `base`), then the page; on standard output one line of JSON
(`title`, `note`), then the text.
"""
# The parsers have no types, so their elements are `Any` here.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser as StandardParser
from importlib import import_module
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

Element = Any
"""An element of lxml's tree."""

MAX_CHARS = 1_000_000
"""The largest number of characters of a page's text."""
MEMORY_BYTES = 1 << 30
CPU_S = 20
PDF_S = 15.0
"""Seconds after which no further page of a PDF is read."""
MAX_PAGES = 500
NO_PARSER = 3
"""The exit code if a parser cannot be imported."""
_PARSERS = {"html": ("lxml.html", "markdownify"), "pdf": ("pypdf",)}
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_TITLE_CHARS = 300
_LEAST_CHARS = 200
_DEEP = 100
_PARSED_DEPTH = 2_000
"""The parser drops what is nested some elements deeper than this."""
_HTML_CHARS = 4_000_000
"""The largest number of characters that are made into Markdown; longer ones become plain text."""
_MOST_ELEMENTS = 100_000
"""The largest number of elements that are made into Markdown, which takes a tenth of a millisecond for each."""
_KNOWN_CODEC = re.compile(
    "ascii|utf-8|utf-8-sig|utf-16|utf-16-[bl]e|utf-32|utf-32-[bl]e|iso8859-[0-9]+|cp[0-9]+|koi8-[rtu]|mac-[a-z0-9]+|gbk|gb2312|gb18030"
    "|big5|big5hkscs|shift_jis|shift_jisx0213|euc_jp|euc_kr|iso2022_jp|johab|tis-620|ptcp154|hz"
)
_META = re.compile(
    rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE
)
_META_BYTES = 4_096
# These elements are not read, or are about the site and not about this page.
_JUNK = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "svg",
        "canvas",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "map",
        "input",
        "select",
        "button",
        "textarea",
        "dialog",
        "nav",
        "footer",
        "menu",
    ]
)
_JUNK_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "search", "menu", "menubar", "dialog", "alertdialog"}
)
_HIDDEN = re.compile(
    r"display\s{0,9}:\s{0,9}none|visibility\s{0,9}:\s{0,9}hidden|opacity\s{0,9}:\s{0,9}0(\.0{1,9})?\s{0,9}(;|$|!)|font-size\s{0,9}:\s{0,9}0(?![.\d]*[1-9])",
    re.IGNORECASE,
)
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "tr",
        "ul",
    ]
)
_BLANKS = re.compile(r"[ \t\r\n\f]{2,}|[\t\r\f]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_BLANK_LINES = re.compile(r"\n{3,}")
_LANGUAGE = re.compile(
    r"(?:language|lang|highlight-source|highlight|brush)[-:] ?([A-Za-z0-9+#_-]{1,20})"
)
_NO_LANGUAGE = frozenset({"default", "none", "text", "plaintext", "plain", "source"})


def decoded(data: bytes, charset: str, *, is_html: bool) -> str:
    """Return the text of a page: by its byte order mark, the encoding that the server named, the one that the page names, or
    UTF-8; what is invalid in it becomes U+FFFD.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    named = [charset]
    if is_html and (found := _META.search(data[:_META_BYTES])):
        named.append(found[1].decode("ascii"))
    for name in named:
        if codec := _codec(name):
            return data.decode(codec, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut may be in the middle of a character.
        broken = error.start < len(data) - 4
        return data.decode("cp1252" if broken and is_html else "utf-8", "replace")


def _codec(name: str) -> str:
    """Return Python's name of an encoding of texts; empty for none, or for one that does something else."""
    try:
        codec = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    if codec == "iso8859-1":
        return "cp1252"  # as browsers read it
    return codec if _KNOWN_CODEC.fullmatch(codec) else ""


def html_text(text: str, base: str) -> tuple[str, str, str]:
    """Return title and Markdown of a page, and a note about it.

    Args:
        text: the HTML.
        base: the URL of the page, for its links.
    """
    from lxml import etree
    from lxml.html import HTMLParser, document_fromstring

    if not text.strip():
        return "", "", "The page is empty."
    parser = HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    # NUL would end the text for the parser.
    data = text.replace("\0", "\ufffd").encode("utf-8", "replace")
    try:
        root = document_fromstring(data, parser=parser)
    except (etree.LxmlError, ValueError, AssertionError):
        return "", "", "The page has no readable content."
    title = " ".join((root.findtext(".//title") or "").split())[:_TITLE_CHARS]
    without_scripts = [" ".join(one.text_content().split()) for one in root.iter("noscript")]
    depth, n_elements = _flattened(root)
    if depth > _PARSED_DEPTH:
        return (
            title,
            _without_tags(text),
            "The page is nested very deeply, so it is given as plain text.",
        )
    _drop_hidden(root)
    _squeeze(root)
    part = _main_part(root)
    _absolute_links(part, base)
    plain = _plain(part)
    note = ""
    if len(plain) > _HTML_CHARS or n_elements > _MOST_ELEMENTS:
        markdown, note = plain, "The page is very long, so it is given as plain text."
    else:
        try:
            markdown = _markdown(part)
        except RecursionError:
            markdown, note = plain, "The page is nested very deeply, so it is given as plain text."
        if not markdown.strip():
            markdown = plain
    if not markdown.strip():
        told = " ".join(filter(None, without_scripts))[:1_000]
        return title, told, "The page has no text without JavaScript."
    return title, markdown, note


def _flattened(root: Element) -> tuple[int, int]:
    """Take out elements that are nested deeper than any reader of the tree bears; their content stays.

    Returns:
        how deep it was, and the number of elements.
    """
    stack: list[tuple[Any, int]] = [(root, 0)]
    deep: list[Any] = []
    deepest = n_elements = 0
    while stack:
        element, depth = stack.pop()
        n_elements += 1
        deepest = max(deepest, depth)
        if depth > _DEEP and isinstance(element.tag, str):
            deep.append(element)
        stack += [(child, depth + 1) for child in element]
    if deepest <= _PARSED_DEPTH:
        # The innermost come first, so that each moves a bounded number of children.
        for element in reversed(deep):
            element.drop_tag()
    return deepest, n_elements


def _drop_hidden(root: Element) -> None:
    """Remove what is never shown, and what is about the site."""
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            element.drop_tree()
            continue
        style = element.get("style") or ""
        gone = (
            element.tag in _JUNK
            or element.get("hidden") is not None
            or (element.get("role") or "").lower() in _JUNK_ROLES
            or (style and _HIDDEN.search(style[:2_000]))
        )
        if gone and element.getparent() is not None and element.tag not in ("html", "body"):
            element.drop_tree()


def _squeeze(root: Element) -> None:
    """Remove control characters, and make runs of blanks outside code one blank or line end: the patterns of the converter take a square of their length."""
    from lxml.etree import iterwalk

    n_code = 0
    for event, element in iterwalk(root, events=("start", "end")):
        is_pre = element.tag == "pre"
        if event == "start":
            n_code += is_pre
            if element.text:
                element.text = _squeezed_text(element.text, is_code=n_code > 0)
        else:
            n_code -= is_pre
            if element.tail:
                element.tail = _squeezed_text(element.tail, is_code=n_code > 0)


def _squeezed_text(text: str, *, is_code: bool) -> str:
    # The tree does not take back what no XML may contain.
    text = _CONTROLS.sub("", text)
    return text if is_code else _BLANKS.sub(_one_blank, text)


def _one_blank(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] else " "


def _main_part(root: Element) -> Element:
    """Return the element with what the page is about."""
    bodies = root.xpath("//body")
    body = bodies[0] if bodies else root
    whole = len(_squeezed(body.text_content()))
    for path in ("//main", "//*[@role='main']", "//article"):
        found = cast("list[Any]", root.xpath(path))
        if path == "//article" and len(found) != 1:
            continue
        best = max(found, key=lambda one: len(one.text_content()), default=None)
        if best is None:
            continue
        size = len(_squeezed(best.text_content()))
        if size >= _LEAST_CHARS or size * 4 >= whole:
            return best
    for element in list(body.iter("header", "aside")):
        # A page that is only a header would be empty without it.
        if len(_squeezed(element.text_content())) * 2 < whole and element.getparent() is not None:
            element.drop_tree()
    return body


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _absolute_links(part: Element, base: str) -> None:
    for element in part.iter("a", "img"):
        name = "href" if element.tag == "a" else "src"
        value = element.get(name)
        if value is None:
            continue
        try:
            full = urljoin(base, value.strip())
            scheme = urlsplit(full).scheme
        except ValueError:
            full = scheme = ""
        if scheme in ("http", "https", "mailto") and len(full) <= 2_000 and full.isprintable():
            element.set(name, full)
        else:
            # Scripts, and images that are written into their address.
            del element.attrib[name]


def _markdown(part: Element) -> str:
    from lxml.etree import tostring
    from markdownify import ATX, MarkdownConverter

    class Converter(MarkdownConverter):
        """Leaves out addresses of images, which say nothing."""

        def convert_img(self, el: Any, text: str, parent_tags: Any) -> str:
            alt = (el.attrs.get("alt") or "").strip()
            return f"[image: {alt}]" if alt else ""

        def convert_a(self, el: Any, text: str, parent_tags: Any) -> str:
            href = el.get("href") or ""
            # Signs beside headings that link to these.
            if not text.strip() or text.strip() in ("#", "¶", "§", "🔗"):
                return ""
            return cast(str, cast(Any, super()).convert_a(el, text, parent_tags)) if href else text

        def convert_td(self, el: Any, text: str, parent_tags: Any) -> str:
            return cast(
                str,
                cast(Any, super()).convert_td(
                    el, text.replace("\\|", "|").replace("|", "\\|"), parent_tags
                ),
            )

        def convert_pre(self, el: Any, text: str, parent_tags: Any) -> str:
            return cast(str, cast(Any, super()).convert_pre(el, text.strip("\r\n"), parent_tags))

        def convert_dt(self, el: Any, text: str, parent_tags: Any) -> str:
            return f"\n\n**{text.strip()}**\n" if text.strip() else ""

    converter = Converter(
        heading_style=ATX,
        bullets="-",
        strip_pre=None,
        code_language_callback=_code_language,
        escape_underscores=False,
        escape_asterisks=False,
        escape_misc=False,
    )
    return str(converter.convert(tostring(part, encoding="unicode", method="html")))


def _code_language(pre: Any) -> str:
    """Return the language of a code block, as a class of it or of what is around it or in it names it."""
    around = pre.parent
    places = [pre, pre.find("code"), around, around and around.parent]
    for place in (one for one in places if one is not None):
        classes = " ".join(place.get("class") or ())[:300]
        if (found := _LANGUAGE.search(classes)) and found[1].lower() not in _NO_LANGUAGE:
            return found[1].lower()
    return ""


def _plain(part: Element) -> str:
    """Return the text of an element, with a line end at blocks; it needs no deep stack."""
    from lxml.etree import iterwalk

    pieces: list[str] = []
    for event, element in iterwalk(part, events=("start", "end")):
        if not isinstance(element.tag, str):
            continue
        if element.tag in _BLOCKS:
            pieces.append("\n")
        if event == "start" and element.text:
            pieces.append(element.text)
        elif event == "end" and element is not part and element.tail:
            pieces.append(element.tail)
    lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def pdf_text(data: bytes) -> tuple[str, str, str]:
    """Return title and text of a PDF, and a note about it: what was not read, if that is so."""
    from io import BytesIO

    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    ends_at = time.monotonic() + PDF_S
    pieces: list[str] = []
    title, n_pages, n_read, size, why = "", 0, 0, 0, ""
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return "", "", "The PDF is encrypted and needs a password."
        n_pages = len(reader.pages)
        with contextlib.suppress(Exception):
            title = " ".join(str((reader.metadata or {}).get("/Title") or "").split())
        for page in reader.pages:
            if n_read >= MAX_PAGES or size > MAX_CHARS or time.monotonic() > ends_at:
                break
            text = page.extract_text() or ""
            n_read += 1
            size += len(text)
            pieces.append(f"[page {n_read}]\n{text.strip()}")
    except (MemoryError, RecursionError):
        why = " The rest needs too much memory."
    except (
        PyPdfError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        OverflowError,
        AssertionError,
        OSError,
    ) as error:
        why = f" The rest is broken ({type(error).__name__})."
    text = "\n\n".join(pieces)
    pages = "1 page" if n_pages == 1 else f"{n_pages} pages"
    if n_read < n_pages or why:
        return (
            title[:_TITLE_CHARS],
            text,
            f"A PDF of {pages}, of which {n_read} were read.{why}",
        )
    if not _squeezed("".join(piece.partition("\n")[2] for piece in pieces)):
        return (
            title[:_TITLE_CHARS],
            "",
            f"A PDF of {pages} without text: they may be images.",
        )
    return title[:_TITLE_CHARS], text, f"A PDF of {pages}."


class _TextOnly(StandardParser):
    """Collects the text of a page without building a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._skipped = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._skipped and tag in ("script", "style", "noscript", "template", "title"):
            self._skipped = tag
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipped:
            self._skipped = ""

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.pieces.append(data)


def _without_tags(text: str) -> str:
    parser = _TextOnly()
    with contextlib.suppress(AssertionError):
        parser.feed(text[:_HTML_CHARS])
        parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.pieces).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def _tidy(text: str) -> Iterator[str]:
    """Yield the lines of a text without blanks at their ends, and without runs of empty lines outside code."""
    is_code, n_empty = False, 0
    for line in map(str.rstrip, text.split("\n")):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        n_empty = 0 if line or is_code else n_empty + 1
        if n_empty < 2:
            yield line


def read(kind: str, charset: str, base: str, data: bytes) -> tuple[str, str, str]:
    """Return title, text and note of a page.

    Args:
        kind: `html`, `pdf` or `text`.
        charset: the encoding that the server named; empty if it named none.
        base: the URL of the page.
        data: its bytes.
    """
    if kind == "pdf":
        title, text, note = pdf_text(data)
    elif kind == "html":
        title, text, note = html_text(decoded(data, charset, is_html=True), base)
        text = "\n".join(_tidy(text)).strip()
    else:
        title, text, note = "", decoded(data, charset, is_html=False), ""
    if len(text) > MAX_CHARS:
        text, note = (
            text[:MAX_CHARS],
            f"{note} Only the first {MAX_CHARS:,} characters were read.".strip(),
        )
    return title, text, note


def limit_this_process() -> None:
    """Limit memory and time of this process, before it reads anything; a system may lack one of the limits."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def confine_this_process(parsers: Sequence[str] = ()) -> None:
    """Take from this process what reading a page does not need: files, sockets, other programs.

    Args:
        parsers: the imported packages whose files it goes on reading, besides those of the interpreter.
    """
    if sys.platform == "linux":
        from kimi_tui.tools.sandbox.confine import confine_reader

        files = {str(sys.modules[name].__file__) for name in parsers}
        folders = {os.path.dirname(os.path.dirname(one)) for one in files}
        confine_reader((sys.prefix, sys.base_prefix, *folders, *_LIBRARIES))


def main() -> int:
    """Read one page from standard input and write its text to standard output."""
    limit_this_process()
    head = json.loads(sys.stdin.buffer.readline())
    # An installer may have linked the parsers to a cache, which is closed from then on.
    parsers = _PARSERS.get(head["kind"], ())
    try:
        for name in parsers:
            import_module(name)
    except ImportError:
        return NO_PARSER
    confine_this_process([name.partition(".")[0] for name in parsers])
    data = sys.stdin.buffer.read()
    title, text, note = read(head["kind"], head["charset"], head["base"], data)
    out = sys.stdout.buffer
    out.write(json.dumps({"title": title, "note": note}).encode() + b"\n")
    out.write(text.encode("utf-8", "replace"))
    out.flush()
    return 0
