"""What in a text looks like a key: known forms of access keys, private keys, addresses with a password, and long values that are
called a key, token, secret or password.

Each form has letters that it cannot be without; a pattern is only tried where these stand, and takes a bounded stretch from there.
"""

from __future__ import annotations

import re
from itertools import pairwise

LEFT_OUT = "[key left out]"
_MOST_FOUND = 1000
_SLICE = 16_384
_MOST_SHOWN = 4
# The letters, and what has to stand there; of a form with a group only the group is the key.
_FORMS = tuple(
    (letters, re.compile(form))
    for letters, form in (
        ("sk-", r"\bsk-[\w-]{16,300}"),
        ("AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
        ("ASIA", r"\bASIA[0-9A-Z]{16}\b"),
        ("gh", r"\bgh[oprsu]_[A-Za-z0-9]{36,255}"),
        ("github_pat_", r"\bgithub_pat_\w{22,255}"),
        ("glpat-", r"\bglpat-[\w-]{20,100}"),
        ("xox", r"\bxox[abeprs]-[\w-]{10,300}"),
        ("AIza", r"\bAIza[\w-]{35}"),
        ("ya29.", r"\bya29\.[\w-]{20,600}"),
        ("npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
        ("pypi-", r"\bpypi-[\w-]{50,300}"),
        ("hf_", r"\bhf_[A-Za-z0-9]{30,60}\b"),
        ("_live_", r"\b[rsp]k_live_[A-Za-z0-9]{16,120}"),
        ("dop_v1_", r"\bdop_v1_[a-f0-9]{64}"),
        ("SG.", r"\bSG\.[\w-]{22}\.[\w-]{43}"),
        ("AGE-SECRET-KEY-", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}"),
        ("eyJ", r"(?<![\w-])eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}"),
        (
            "PRIVATE KEY-----",
            r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----[^-]{0,16000}(?:-----END [A-Z0-9 ]{0,30}-----)?",
        ),
        ("://", r"://[^\s:/@]{0,64}:([^\s:/@]{6,128})@"),
    )
)
_NAMED = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|pwd)\w{0,20}[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?=[A-Za-z+/_-]{0,200}\d)(?=[\d+/_-]{0,200}[A-Za-z])"
    r"([A-Za-z0-9+/_-]{20,200}={0,2})",
    re.IGNORECASE,
)


def find_keys(text: str) -> list[tuple[int, int]]:
    """Where the keys are, in order, none within another; at most a thousand.

    It is done in slices, so that a thread that does it holds up no other.
    """
    spans: list[tuple[int, int]] = []
    forms = [form for letters, form in _FORMS if letters in text]
    for form in (*forms, _NAMED):
        at = 0
        while at < len(text) and len(spans) < _MOST_FOUND:
            found = form.search(text, at, at + 2 * _SLICE)
            if found is None or found.start() >= at + _SLICE:
                # What begins late may be cut off: the next slice has it whole.
                at += _SLICE
            else:
                spans.append(found.span(1 if form.groups else 0))
                at = found.end()
    kept: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


_LINE_CHARS = 4096
_WORD_CHARS = 1024
"""A longer word is no key."""
_BEGINNING = r"(?:c?sk-|gsk_|xai-|nvapi-|pplx-|tgp_|fw_|r8_|hf_|AIza)"
_BEGINNINGS = re.compile(_BEGINNING + r"[\w-]{8,300}")
_BEGUN = re.compile(_BEGINNING + r"[\w-]{1,300}")
_RANDOM = re.compile(r"[A-Za-z0-9]{20,300}")
_ADDRESS = re.compile(r"[./:@\\]")
_TWO_PARTS = re.compile(r"[0-9a-f]{32}\.[A-Za-z0-9]{16}")
_FEWEST_CHANGES = 4
"""In so many letters of a random word their kind changes once: between digit, small and capital letter, but not in `Aa`."""
_LONG_JOINED = 40
"""A random word may have signs in it, as names of models do; these are shorter."""


def is_key(text: str) -> bool:
    """Whether a text, as one types or pastes it, is a key: one word in a known form, or a long one that is random.

    A word with a dot, slash, colon or at sign is an address or a name, unless it has a known form.
    """
    word = text.strip()
    if not word or len(word) > _WORD_CHARS or len(word.split(None, 1)) > 1:
        return False
    if find_keys(word) or _TWO_PARTS.fullmatch(word):
        return True
    begun = _BEGINNINGS.match(word)
    if begun is not None and any(char.isdecimal() for char in begun[0]):
        return True
    if _ADDRESS.search(word):
        return False
    joined = re.sub("[-_+=]", "", word)
    return any(map(_is_random, _RANDOM.findall(word))) or (
        len(joined) >= _LONG_JOINED and _is_random(joined, _FEWEST_CHANGES - 1)
    )


def may_begin_key(text: str) -> bool:
    """Whether a text is one word that begins as keys of known servers do."""
    return _BEGUN.fullmatch(text) is not None


def _is_random(word: str, letters_a_change: int = _FEWEST_CHANGES) -> bool:
    kinds = ["d" if char.isdecimal() else "u" if char.isupper() else "l" for char in word]
    changes = sum(one != two and (one, two) != ("u", "l") for one, two in pairwise(kinds))
    return "d" in kinds and changes * letters_a_change >= len(word)


def words_of_keys(text: str) -> list[tuple[int, int]]:
    """Where the words are at the beginning of a text that are keys, in order; see `is_key`."""
    words = re.finditer(r"\S+", text[:_LINE_CHARS])
    return [found.span() for found in words if is_key(found[0])]


def count_words(keys: list[tuple[int, int]]) -> str:
    """How many there are."""
    return "1 possible key" if len(keys) == 1 else f"{len(keys)} possible keys"


def with_count(brief: str, keys: list[tuple[int, int]]) -> str:
    """A brief fact, with how many there are behind it."""
    return f"{brief} · {count_words(keys)}" if brief else count_words(keys)


def without_keys(text: str, keys: list[tuple[int, int]]) -> str:
    """The text with words in the place of each key."""
    pieces: list[str] = []
    at = 0
    for start, end in keys:
        pieces += [text[at:start], LEFT_OUT]
        at = end
    return "".join([*pieces, text[at:]])


def key_lines(text: str, keys: list[tuple[int, int]]) -> list[str]:
    """For each line that has one, its number and the beginning of the key, as a question shows it."""
    return [
        f"line {text.count(chr(10), 0, start) + 1}: {text[start : start + _MOST_SHOWN]}… ({end - start} characters)"
        for start, end in keys
    ]
