"""Marks characters that look like ASCII but are not, in texts about which the user decides: `c\u0430t` is `c<U+0430>t`.

It marks letters of other scripts inside a Latin word, or as the only ones of their script in a text; wide and mathematical
letters, ligatures, small capitals, Roman numerals and signs that look like those of a command line; dashes instead of a
hyphen; and piles of combining marks. Text in another script, even beside Latin text, stays unchanged. The module is separate
from `foreign_text`, its only user, because it is imported only with the first such text that is not ASCII.
"""

from __future__ import annotations

import re
from unicodedata import category, name, normalize

_MOST_SHOWN = 40
_LONG_STRETCH = 1000
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f"
# At most three of the marks that belong to no script occur on one letter.
_MARK_RUN = re.compile(f"([{_MARKS}]{{3}})([{_MARKS}]+)")
# These are the characters that Unicode lists as confusable with a letter or digit of ASCII (UTS #39), by script. The first
# ones count even if a stretch of their script consists of them alone: Cyrillic, Greek, Armenian, Coptic, Tifinagh, Georgian,
# syllabics; all of Cherokee, Lisu, and of scripts that are not in use any more (Runic, Greek music, Gothic, Deseret, Carian,
# Warang Citi, ...).
_ALIKE = (
    "аеорсухіјѕһԁԛԝѵӏᴦАВЕЅІЈКМНОРСТУХҮԌӀԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρυικχϲϳͿօսհոցզԼՍՕ"
    "ҽꙇѡѴꙄӠϹϜϺϱϒιͺϨⲥⲤⲎⲔⲒⳐⲘⲚⲟⲞⲣⲢⲅⲦⲬⲨⳌⳒⳊⴹⵏⵔⵕⴸⵝჿყᒿᗅᑲᖯᗷᑯᗞᗪᖴᕼᒍᒪᗰᑭᖇᑌᐯ᙮ᕁᕽ᙭"
    "\u13a0-\u13fd\uab70-\uabbf\ua4d0-\ua4ff\u16a0-\u16f8\ua6a0-\ua6f7\U00010280-\U000102df\U00010300-\U0001034a"
    "\U00010400-\U0001044f\U000104b0-\U000104fb\U00010500-\U00010527\U00011700-\U00011746\U000118a0-\U000118ff"
    "\U00016f00-\U00016f9f\U0001d200-\U0001d245\U0001f700-\U0001f773"
)
# These characters count only inside a Latin word, as whole words and numbers are written with them.
_ALIKE_IN_WORD = (
    _ALIKE + "ЗбЬгүασγքռգՏաוןסטاهھہە߀ߊዐሀ٥١٧۵۱۷०০੦૦୦ଠ௦౦೦൦ഠ๐໐၀ဝ〇৪৭ଃ੪੧୨൭ംංంಂⳓ"
    "\ufba6-\ufbad\ufe8d\ufe8e\ufee9-\ufeec\U0001ee00-\U0001eeff"
)
_ALIKES = re.compile(f"[{_ALIKE}]+")
_IN_WORD = re.compile(f"[{_ALIKE_IN_WORD}][A-Za-z]|[A-Za-z][{_ALIKE_IN_WORD}]")
_ALIKES_IN_WORD = re.compile(
    f"(?<=[A-Za-z])[{_ALIKE_IN_WORD}]+|(?<![{_ALIKE_IN_WORD}])[{_ALIKE_IN_WORD}]++(?=[A-Za-z])"
)
_FOREIGN = re.compile(r"[^\x00-\x7f]+(?:[ ,.!?()]+[^\x00-\x7f]+)*")
_OTHER_LETTER = re.compile(f"[^\\W\\d_{_ALIKE}]")
# These are typographic dashes in the place of an option's hyphen, and characters that always look like a hyphen.
_DASHES = re.compile(r"(?<!\S)[\u2012-\u2015\u2212\u2043\u2796\ufe58](?=\w)|[\u2010\u2011\u02d7]")
_ANY_DASH = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\u2796\ufe58\u02d7")
# These are signs like those of a command line; a dotless i, small capitals and other Latin letters that belong to few
# alphabets or none.
_SIGNS = frozenset(
    "\u2044\u2215\u29f8\u29f9\u29f5\u2216\u27cb\u27cd\u2236\u02d0\u02f8\ua789\u2223\u01c0\u01c1\u01c3\ua78c\u02cb"
    "\u02dc\u223c\u2217\u204e\u02c2\u02c3\u02c4ⲺⳆⵑ᐀ᐸᐳ"
    "\u0131\u0251\u0261ƄƍƖƦƧƨƽƼƷȜȢȣɪɩɢɣɯʀʋʏʔɁʙʜʟɴꜰꜱꝚꝪꝮꞘꞙꞟꞲꞳꞴꬲꬵꬽꭇꭈꭎꭒꭚᶃᶌỿẝ"
) | frozenset(map(chr, range(0x1D00, 0x1D2C)))
# These are used in Chinese and Japanese text.
_WIDE_PUNCTUATION = frozenset("！（），：；？［］｛｝～％＋＆＂＇")
# These are the categories of compatibility forms, and words in the names of those that look smaller or raised.
_PASSING_CATEGORIES = frozenset({"Ll", "Lu", "Lt", "Nd", "Nl", "Pc", "Pd", "Po", "Sc", "Sk", "Sm"})
_HARMLESS_FORMS = ("SUPER", "SUBSCRIPT", "ORDINAL", "MODIFIER")


def mark_confusables(text: str) -> str:
    """Return the text with a mark in place of each character that looks like ASCII, and with piles of combining marks counted."""
    chars = set(text)
    forms = "".join(char for char in chars if char in _SIGNS or _is_compatibility_form(char))
    if forms:
        text = re.sub(f"[{re.escape(forms)}]+", _marked, text)
    if not chars.isdisjoint(_ANY_DASH):
        text = _DASHES.sub(_marked, text)
    if any(category(char) == "Mn" for char in chars):
        text = _MARK_RUN.sub(lambda found: f"{found[1]}<{len(found[2])} combining marks>", text)
    if _IN_WORD.search(text) is not None:
        text = _ALIKES_IN_WORD.sub(_marked, text)
    if _ALIKES.search(text) is None:
        return text
    return _FOREIGN.sub(_marked_stretch, text)


def _is_compatibility_form(char: str) -> bool:
    """Return whether NFKC maps a character to printable ASCII that looks like it: wide and mathematical letters, ligatures."""
    if "\U0001d400" <= char <= "\U0001d7ff":
        return True
    plain = normalize("NFKC", char) if char >= "\x80" else ""
    if not plain or not plain.isascii() or not plain.isprintable() or " " in plain:
        return False
    if char in _WIDE_PUNCTUATION or category(char) not in _PASSING_CATEGORIES:
        return False
    if len(plain) > 1 and category(char) not in ("Ll", "Lu", "Lt", "Nl"):
        return False
    described = name(char, "")
    return not any(word in described for word in _HARMLESS_FORMS)


def _marked_stretch(found: re.Match[str]) -> str:
    """Mark a stretch of another script; return it unchanged if it has letters that do not look like ASCII."""
    text = found.group()
    if _OTHER_LETTER.search(text):
        return text
    return _ALIKES.sub(_marked, text) if len(text) < _LONG_STRETCH else _counted(text)


def _marked(found: re.Match[str]) -> str:
    text = found.group()
    if len(text) > _MOST_SHOWN:
        return _counted(text)
    return "".join(f"<U+{ord(char):04X}>" for char in text)


def _counted(text: str) -> str:
    return f"<{len(text)} lookalike letters>"
