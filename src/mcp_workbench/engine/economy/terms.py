"""Turns text into index terms, so that the words of a tool and of a query match.

Owns splitting (camelCase, snake_case, kebab-case, digits), light English stemming, and the treatment of other scripts.
Knows nothing about weights, fields or tools.

English suffixes are removed only from ASCII words. Scripts written without spaces (Chinese, Japanese, Thai and related
ones, and Korean, where particles attach to words) become pairs of characters. Words of all other scripts are kept
whole, with case and accents folded, so that the English rules break no other language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# A candidate for an identifier or word. ASCII punctuation ends it; characters beyond ASCII are handled by `_foreign`.
_WORD_CANDIDATE = re.compile(r"[A-Za-z0-9\x80-\U0010ffff]+")
# The same for ASCII, several times as fast.
_GAPS = bytes(code if chr(code).isalnum() else 32 for code in range(128)) + bytes(128)
_CAMEL_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

# Written without spaces: Thai to Myanmar, Khmer, kana, CJK ideographs, Hangul, and the supplementary ideographs.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)

# Words that say nothing about a tool in any catalogue: articles, prepositions, pronouns, auxiliaries, and the halves of
# `what's`, `isn't` and the like.
STOP_WORDS = frozenset(
    "a an the of to in on for from by with and or nor is are was were be been being as at it its this that these those "
    "which who whom what when where how why will would can could should may might must shall do does did done has have "
    "had having you your yours i me my mine we us our ours he him his she her they them their if then else than so but "
    "not no any all each every some such into onto about over under between also just only very too e g ie eg etc "
    "use used uses using via per other please want need more most one two through there here given within without let "
    "something anything everything thing someone anyone s t re ve ll d m don doesn didn isn aren wasn weren hasn haven "
    "hadn won wouldn couldn shouldn ain".split()
)

# Words that look inflected but are not: `news` is not `new`, nor is `author` `auth`, `station` `stats`, or `production`
# `product`. They are kept whole; their plurals are stemmed as usual.
_NOT_INFLECTED = frozenset(
    "news lens means goods canvas author factor customer computer poster letter character issuer station mission "
    "production department statement terminal general signal portal digital capital building training marketing "
    "accounting united".split()
)

# By last letter, longest first; the first one that leaves four letters is removed. Plurals and -ing/-ed are removed
# before.
_STEM_SUFFIXES: dict[str, tuple[tuple[str, str], ...]] = {
    "n": (("ization", ""), ("isation", ""), ("ation", "at"), ("ion", "")),
    "l": (("ational", "at"), ("ful", ""), ("al", "")),
    "t": (("ement", ""), ("ment", "")),
    "s": (("ness", ""), ("ous", "")),
    "y": (("ally", ""), ("ity", ""), ("ly", "")),
    "v": (("iv", ""),),
    "r": (("or", ""), ("er", "")),
}
_VOWELS = frozenset("aeiouy")
_MAX_WORD_LENGTH = 64  # Longer runs are keys, hashes and base64, which no one searches for.
# Runs beyond ASCII are processed in pieces, because normalising many combining marks on one letter takes quadratic
# time.
_MAX_NORMALISED_PIECE = 256
# Letters and digits up to this length are one name, such as `k8s`, `s3`, `ec2`, `mp4`, `i18n`.
_MAX_CODE_LENGTH = 4


def terms(text: str) -> list[str]:
    """All index terms of `text`, in order, with repetitions."""
    split = Splitter()
    found: list[str] = []
    for run in runs(text):
        found.extend(split[run])
    return found


def runs(text: str) -> list[str]:
    """The raw runs of `text`, to be passed to a `Splitter`. Counting runs first makes building an index cheap."""
    return text.encode().translate(_GAPS).decode().split() if text.isascii() else _WORD_CANDIDATE.findall(text)


def spelt(run: str) -> list[tuple[str, str]]:
    """Each term of a run with its original word, for display."""
    if run.isascii():
        return [(stem(word), word) for word in _words(run)]
    return [(term, term) for term in _foreign(run)]


def is_pair(term: str) -> bool:
    """Whether a term is a pair of characters from a script without spaces, and so perhaps not a word."""
    return len(term) == 2 and _UNSPACED.fullmatch(term) is not None


class Splitter(dict[str, tuple[str, ...]]):
    """The terms of a run, cached: in a catalogue, each distinct run occurs about a hundred times."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        if not run.isascii():
            made = tuple(_foreign(run))
        elif run.islower() and run.isalpha() and len(run) <= _MAX_WORD_LENGTH:
            made = () if run in STOP_WORDS else (stem(run),)
        # Not `camelCase`, which is several words.
        elif run.isalpha() and (run.isupper() or run.istitle()):
            made = self[run.lower()]  # Equivalent, and most lower-case runs are cached already.
        else:
            made = tuple(_ascii(run))
        self[run] = made
        return made


def _ascii(run: str) -> Iterable[str]:
    return map(stem, _words(run))


def _words(run: str) -> list[str]:
    if len(run) > _MAX_WORD_LENGTH:
        return []
    if len(run) <= _MAX_CODE_LENGTH and not run.isalpha() and not run.isdecimal():
        return [run.lower()]
    return [word for part in _CAMEL_PARTS.findall(run) if (word := part.lower()) not in STOP_WORDS]


def _foreign(run: str) -> Iterable[str]:
    for start in range(0, len(run), _MAX_NORMALISED_PIECE):
        yield from _foreign_piece(run[start : start + _MAX_NORMALISED_PIECE])


def _foreign_piece(run: str) -> Iterable[str]:
    # Full-width letters and half-width katakana are the same words.
    plain = unicodedata.normalize("NFKC", run)
    position = 0
    for match in _UNSPACED.finditer(plain):
        yield from _spaced(plain[position : match.start()])
        yield from _pairs(match.group())
        position = match.end()
    yield from _spaced(plain[position:])


def _pairs(characters: str) -> Iterable[str]:
    if len(characters) == 1:
        return (characters,)
    return (characters[at : at + 2] for at in range(len(characters) - 1))


def _spaced(text: str) -> Iterable[str]:
    """Words of a script with spaces. Accents are removed; spacing marks (vowels in Indic scripts) are kept."""
    letters = []
    # `café` is found by `cafe`, and the other way round.
    for character in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(character)
        if kind[0] in "LN" or kind == "Mc":
            letters.append(character)
        elif kind != "Mn":
            letters.append(" ")
    for word in "".join(letters).split():
        if word.isascii():
            yield from _ascii(word)
        else:
            yield word.casefold()[:_MAX_WORD_LENGTH]


def stem(word: str) -> str:
    """Stem a lower-case ASCII word: `calculators`, `calculating` and `calculation` become one term."""
    if len(word) < 4 or not word.isalpha():
        return word
    if word in _NOT_INFLECTED:
        return word
    word = _singular(word)
    if word in _NOT_INFLECTED:
        return word
    word = _without_ending(word)
    for suffix, instead in _STEM_SUFFIXES.get(word[-1], ()):
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            word = word[: -len(suffix)] + instead
            break
    if len(word) > 5 and word.endswith("at"):
        word = word[:-2]
    # `cancelling` and `cancellation` are `cancel`; `sell` and `shell` stay.
    if len(word) > 4 and (word[-1] in "eiy" or (len(word) > 5 and word.endswith("ell"))):
        word = word[:-1]
    return word


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    # `class`, `status`, `analysis`.
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    rest = word[:-3] if word.endswith("ing") else word[:-2] if word.endswith("ed") else ""
    if len(rest) >= 3 and not _VOWELS.isdisjoint(rest):
        # `running` is `run`, but `calling` is `call`.
        word = rest[:-1] if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
    if len(word) > 4 and word.endswith("e"):
        word = word[:-1]
    return word
