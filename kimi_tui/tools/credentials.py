"""Finds credentials in a text: API keys of known forms, private keys, addresses with a password, and long values with a name
such as key, token, secret or password. All of them are called "key" below.

`workspace.protected_names` and `tools.paths.holds_secrets` decide by names which files hold secrets.

Each form has fixed letters; its pattern is only tried where these occur, and reads a bounded number of characters from there.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

LEFT_OUT = "[key left out]"
_MOST_FOUND = 1000
_SLICE = 16_384
_MOST_SHOWN = 4
# Each form has its fixed letters and a pattern; if the pattern has a group, only the group is the key.
_FORMS = (
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
    ("_test_", r"\b[rs]k_test_[A-Za-z0-9]{16,120}"),
    ("whsec_", r"\bwhsec_[A-Za-z0-9+/]{24,80}={0,2}"),
    ("sk_", r"\bsk_[0-9a-f]{48}\b"),
    ("gsk_", r"\bgsk_[A-Za-z0-9]{40,64}\b"),
    ("xai-", r"\bxai-[A-Za-z0-9]{40,100}\b"),
    ("pplx-", r"\bpplx-[A-Za-z0-9]{40,64}\b"),
    ("nvapi-", r"\bnvapi-[\w-]{40,100}"),
    ("tvly-", r"\btvly-[\w-]{20,60}"),
    ("r8_", r"\br8_[A-Za-z0-9]{37}\b"),
    ("lsv2_", r"\blsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}\b"),
    # Keys of GLM: a name, and the secret part.
    (".", r"(?<![\w.])[0-9a-f]{32}\.(?=[A-Za-z]{0,15}\d)[A-Za-z0-9]{16}(?![\w.])"),
    ("gl", r"\bgl(?:agent|cbt|dt|ffct|ft|imt|oas|ptt|rt|soat)-[\w-]{20,100}"),
    ("xapp-", r"\bxapp-\d-[\w-]{20,200}"),
    ("hooks.slack.com/", r"\bhooks\.slack\.com/(?:services|workflows)/([\w/]{20,100})"),
    ("/api/webhooks/", r"/api/webhooks/(\d{17,20}/[\w-]{60,100})"),
    (".", r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w.-])"),
    (":AA", r"\b\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    ("sq0", r"\bsq0(?:atp|csp|idp)-[\w-]{22,60}"),
    ("SK", r"\bSK[0-9a-f]{32}\b"),
    ("key-", r"\bkey-[0-9a-f]{32}\b"),
    ("-us", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    ("rubygems_", r"\brubygems_[0-9a-f]{48}\b"),
    ("cio", r"\bcio(?=[A-Za-z]{0,31}\d)[A-Za-z0-9]{32}\b"),
    ("dckr_", r"\bdckr_(?:oat|pat)_[\w-]{24,40}"),
    ("HRKU-", r"\bHRKU-[\w-]{30,80}"),
    ("hvs.", r"\bhvs\.[\w-]{24,300}"),
    ("hvb.", r"\bhvb\.[\w-]{24,300}"),
    (".atlasv1.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,80}"),
    ("dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
    ("Q~", r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])"),
    ("sig=", r"[?&]sig=([\w%+/-]{40,120})"),
    ("GOCSPX-", r"\bGOCSPX-[\w-]{24,40}"),
    ("1//0", r"\b1//0[\w-]{30,200}"),
    ("ABSK", r"\bABSK[A-Za-z0-9+/]{80,200}={0,2}"),
    ("shp", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}\b"),
    ("lin_api_", r"\blin_api_[A-Za-z0-9]{36,48}\b"),
    ("ntn_", r"\bntn_[A-Za-z0-9]{40,60}\b"),
    ("secret_", r"\bsecret_(?=[A-Za-z]{0,50}\d)[A-Za-z0-9]{40,50}\b"),
    ("figd_", r"\bfigd_[\w-]{36,60}"),
    ("pat", r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}\b"),
    ("sntry", r"\bsntry[su]_[\w=+/.-]{40,400}"),
    ("glsa_", r"\bglsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}\b"),
    ("glc_eyJ", r"\bglc_eyJ[\w+/=]{30,400}"),
    ("NRAK-", r"\bNRAK-[A-Z0-9]{27}\b"),
    ("pul-", r"\bpul-[0-9a-f]{40}\b"),
    ("PMAK-", r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}\b"),
    ("pscale_", r"\bpscale_(?:oauth|pw|tkn)_[\w.=-]{30,64}"),
    ("sbp_", r"\bsbp_[0-9a-f]{40}\b"),
    ("tskey-", r"\btskey-[a-z]{3,12}-[\w-]{20,100}"),
    ("fm2_", r"\bfm2_[\w+/=-]{40,2000}"),
    ("dp.", r"\bdp\.(?:audit|ct|pt|sa|scim|st)\.[\w.-]{40,80}"),
    ("ops_eyJ", r"\bops_eyJ[\w+/=-]{40,2000}"),
    ("ATATT3", r"\bATATT3[\w=-]{40,300}"),
    ("ATBB", r"\bATBB[A-Za-z0-9]{24,40}\b"),
    ("v1.0-", r"\bv1\.0-[0-9a-f]{24}-[0-9a-f]{140,150}\b"),
    ("CCIPAT_", r"\bCCIPAT_[A-Za-z0-9]{22}_[0-9a-f]{40}\b"),
    ("bkua_", r"\bbkua_[0-9a-f]{40}\b"),
    ("phx_", r"\bphx_[A-Za-z0-9]{40,50}\b"),
    ("sk.eyJ", r"\bsk\.eyJ[\w-]{20,200}\.[\w-]{20,40}"),
    ("aio_", r"\baio_[A-Za-z0-9]{28}\b"),
    ("EAACEdEose0cBA", r"\bEAACEdEose0cBA[0-9A-Za-z]{10,300}"),
    ("earer ", r"\b[Bb]earer {1,4}(?=\S{0,200}\d)([\w.~+/-]{20,4000}={0,2})"),
    (
        "asic ",
        r"[Aa]uthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?[Bb]asic {1,4}([A-Za-z0-9+/]{12,400}={0,2})",
    ),
    ("client-key-data", r"client-key-data[\"']?:\s{0,4}[\"']?([A-Za-z0-9+/]{40,8000}={0,2})"),
    ('"auth"', r"\"auth\"\s{0,4}:\s{0,4}\"([A-Za-z0-9+/]{12,400}={0,2})\""),
    ("Private-Lines:", r"Private-Lines: \d{1,3}\s{1,2}([A-Za-z0-9+/=\r\n]{40,8000})"),
    ("password", r"\b(?:machine|login)\s{1,4}\S{1,100}\s{1,40}password\s{1,4}(\S{4,200})"),
    (
        "=",
        r"(?<![a-z])(?:PASSWORD|PASSWD|PWD|SECRET|TOKEN|KEY)=(?=[^\s/\d]{0,40}\d)(?=[^\s/A-Za-z]{0,40}[A-Za-z])([^\s'\"$<{(/]{8,200})",
    ),
    ("_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}"),
    ("SG.", r"\bSG\.[\w-]{22}\.[\w-]{43}"),
    ("AGE-SECRET-KEY-", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}"),
    ("eyJ", r"(?<![\w-])eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}"),
    (
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^-]{0,16000}(?:-----END [A-Z0-9 ]{0,30}-----)?",
    ),
    ("://", r"://[^\s:/@]{0,64}:([^\s:/@]{6,128})@"),
)
_NAMES = ("key", "token", "secret", "passw", "pwd")
"""One of these is in each text that has `_NAMED`, in capital or small letters."""
_NAMED = (
    r"(?:key|token|secret|passw(?:or)?d|pwd)\w{0,20}+(?:[\"']?\s{0,4}(?:[:=]>?|,)\s{0,4}|[\"'] value=|>|\()[\"']?(?=[A-Za-z+/_-]{0,200}\d)(?=[\d+/_-]{0,200}[A-Za-z])"
    r"([A-Za-z0-9+/_-]{20,200}={0,2})"
)


@cache
def _compiled(form: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    # Compiling all patterns takes a tenth of a second, and few texts have the letters of more than a handful.
    return re.compile(form, flags)


def find_keys(text: str) -> list[tuple[int, int]]:
    """Return the places of the keys in order, none inside another; at most a thousand.

    It searches in slices, so that its thread delays no other.
    """
    spans: list[tuple[int, int]] = []
    forms = [_compiled(form) for letters, form in _FORMS if letters in text]
    folded = text.casefold()
    if any(word in folded for word in _NAMES):
        forms.append(_compiled(_NAMED, re.IGNORECASE))
    for form in forms:
        at = 0
        while at < len(text) and len(spans) < _MOST_FOUND:
            found = form.search(text, at, at + 2 * _SLICE)
            if found is None or found.start() >= at + _SLICE:
                # A key that begins late may be cut off here; the next slice contains all of it.
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
_BEGUN = re.compile(r"(?:c?sk-|gsk_|xai-|nvapi-|pplx-|tgp_|fw_|r8_|hf_|AIza)([\w-]{1,300})")
_FEWEST_BEHIND = 8
"""Number of characters that follow the beginning of a key."""
_RANDOM = re.compile(r"[A-Za-z0-9]{20,300}")
_ADDRESS = re.compile(r"[./:@\\]")
_TWO_PARTS = re.compile(r"[0-9a-f]{32}\.[A-Za-z0-9]{16}")
_FEWEST_CHANGES = 4
"""In a random word the kind of character (digit, small letter, capital letter) changes at least once per this number of
characters; `Aa` does not count as a change.
"""
_LONG_JOINED = 40
"""A random word may contain signs, as names of models do, but those are shorter than this."""


def is_key(text: str) -> bool:
    """Return whether a text, as a user types or pastes it, is a key: one word in a known form, or a long random word.

    A word with a dot, slash, colon or at sign is an address or a name, unless it has a known form.
    """
    word = text.strip()
    if not word or len(word) > _WORD_CHARS or len(word.split(None, 1)) > 1:
        return False
    if find_keys(word) or _TWO_PARTS.fullmatch(word):
        return True
    begun = _BEGUN.match(word)
    if begun is not None and len(begun[1]) >= _FEWEST_BEHIND and any(map(str.isdecimal, begun[0])):
        return True
    if _ADDRESS.search(word):
        return False
    joined = re.sub("[-_+=]", "", word)
    return any(map(_is_random, _RANDOM.findall(word))) or (
        len(joined) >= _LONG_JOINED and _is_random(joined, _FEWEST_CHANGES - 1)
    )


def may_begin_key(text: str) -> bool:
    """Return whether a text is one word that begins as keys of known servers do."""
    return _BEGUN.fullmatch(text) is not None


def command_without_keys(text: str) -> str:
    """Return the text of a prompt as it is stored: a command without words that are a key, or may become one; a message unchanged."""
    if not text.startswith("/"):
        return text

    def kept(found: re.Match[str]) -> str:
        return "" if is_key(found[0]) or may_begin_key(found[0]) else found[0]

    return re.sub(r"\S+", kept, text)


def _is_random(word: str, letters_a_change: int = _FEWEST_CHANGES) -> bool:
    kinds = ["d" if char.isdecimal() else "u" if char.isupper() else "l" for char in word]
    changes = sum(one != two and (one, two) != ("u", "l") for one, two in pairwise(kinds))
    return "d" in kinds and changes * letters_a_change >= len(word)


def words_of_keys(text: str) -> list[tuple[int, int]]:
    """Return the places of the words at the beginning of a text that are keys, in order; see `is_key`."""
    words = re.finditer(r"\S+", text[:_LINE_CHARS])
    return [found.span() for found in words if is_key(found[0])]


def count_in_words(keys: list[tuple[int, int]]) -> str:
    """Return the number of credentials in words: `1 key`, `3 keys`."""
    return "1 possible key" if len(keys) == 1 else f"{len(keys)} possible keys"


def with_count(brief: str, keys: list[tuple[int, int]]) -> str:
    """Return a brief fact, followed by the number of keys in it."""
    return f"{brief} · {count_in_words(keys)}" if brief else count_in_words(keys)


def redact_keys(text: str, keys: list[tuple[int, int]]) -> str:
    """Return the text with a placeholder for each key."""
    pieces: list[str] = []
    at = 0
    for start, end in keys:
        pieces += [text[at:start], LEFT_OUT]
        at = end
    return "".join([*pieces, text[at:]])


def key_lines(text: str, keys: list[tuple[int, int]]) -> list[str]:
    """Return, for each line with a key, its number and the beginning of the key, as a question shows it."""
    return [
        f"line {text.count(chr(10), 0, start) + 1}: {text[start : start + _MOST_SHOWN]}… ({end - start} characters)"
        for start, end in keys
    ]
