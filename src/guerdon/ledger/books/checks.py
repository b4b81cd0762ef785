"""Checks of the ledger's input: amounts, and names.

A name is written in one way, holds nothing invisible, and no two agents have names that look the same. Two do if their
skeletons are equal: compatible characters and letters of other alphabets replaced by the Latin letter that they look
like (as in Unicode's Technical Standard 39, for the alphabets of most names).
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from guerdon.ledger.books.money import LARGEST, MICRO

LONGEST_NAME = 200
AGENT = "an agent's name"
# Control characters, and those that change the direction of text: they could make a page or a terminal show false text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Neither space nor letter, but nothing is seen: fillers, joiners, selectors of variants, the blank of Braille.
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # categories: control, format, unassigned, private, line breaks
_ALIKE = {  # by the Latin letter: Cyrillic, Greek, Armenian, Cherokee and other letters
    "A": "АΑᎪ", "B": "ВΒᏴ", "C": "СᏟϹ", "D": "Ꭰ", "E": "ЕΕᎬ", "G": "ԌᏀ", "H": "НΗᎻ", "J": "ЈᎫ", "K": "КΚᏦ", "L": "Ꮮ",
    "M": "МΜᎷ", "N": "Ν", "O": "0ОΟՕ", "P": "РΡᏢ", "R": "Ꭱ", "S": "ЅՏᏚ", "T": "ТΤᎢ", "U": "Ս", "V": "ѴᏙ", "W": "ԜᎳ",
    "X": "ХΧ", "Y": "УΥҮ", "Z": "ΖᏃ", "a": "аɑα", "c": "сϲ", "d": "ԁ", "e": "еҽ", "f": "ſ", "g": "ɡց", "h": "һհ",
    "i": "іıɩι", "j": "јϳ", "k": "кκ", "l": "1I|ІΙӀӏƖǀ", "n": "ո", "o": "оοօ", "p": "рρ", "q": "ԛզ", "rn": "m",
    "s": "ѕ", "u": "υս", "v": "ѵν", "vv": "wԝω", "x": "хχ", "y": "уγү",
    "-": "‐‑‒–—−⁃", "'": "’‘ʼʻʹ′`´", '"': "“”„″", "·": "•‧∙", "/": "⁄∕", ":": "ː։׃", ",": "‚",
}  # fmt: skip
_LATIN = str.maketrans({other: latin for latin, others in _ALIKE.items() for other in others})


def clean(text: str) -> str:
    """Return text that every database can keep: no NUL characters, no halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def tidy(name: str) -> str:
    """Return a name as it is written here: composed (NFC), one space between words, none at the ends.

    >>> tidy(" Saint-E\\u0301tienne  Nord "), len(tidy("e\\u0301"))
    ('Saint-Étienne Nord', 1)
    """
    return unicodedata.normalize("NFC", " ".join(name.split()))


def normal_name(what: str, name: object) -> str:
    """Return a name as it is written here, or raise unless every database can keep it and every reader can see it."""
    given = name if isinstance(name, str) else ""
    unseen = BLANK.search(given) or any(unicodedata.category(letter) in UNSEEN for letter in given)
    if unseen or not 1 <= len(tidy(given)) <= LONGEST_NAME:
        must = f"text of 1 to {LONGEST_NAME} printable characters, none invisible"
        shown = ascii(name) if len(ascii(name)) < 80 else f"one of {len(str(name))} characters"
        raise ValueError(f"{what} must be {must}, got {shown}")
    return tidy(given)


def check_name(what: str, name: object) -> None:
    """Raise unless `name` is text that every reader can see, written in the one way there is."""
    written = normal_name(what, name)
    if written != name:
        raise ValueError(f"{what} must be written {written!r} (one space between words, NFC), got {name!a}")


@lru_cache(maxsize=2**17)
def skeleton(name: str) -> str:
    """Return what a name looks like: equal for names that people cannot tell apart.

    >>> skeleton("Ваsеl") == skeleton("Basel"), skeleton("Basel") == skeleton("Basle")
    (True, False)
    """
    seen = "".join(letter for letter in BLANK.sub("", name) if unicodedata.category(letter) not in UNSEEN)
    return unicodedata.normalize("NFKD", tidy(seen)).translate(_LATIN)


def check_roster(agents: Sequence[str]) -> None:
    """Raise unless `agents` are names, at least one, each once."""
    if isinstance(agents, str) or not agents or len(set(agents)) != len(agents):
        raise ValueError("`agents` must be a list of at least one name, none of them twice")


def follows(number: int, last: int | None) -> bool:
    """Tell whether a round may come after the last of its run; None: it is the first."""
    return number in (0, 1) if last is None else number == last + 1


def check_micro(what: str, amount: object) -> None:
    """Raise unless `amount` is a number of micro-units that one amount can be."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < amount <= LARGEST:
        most = f"{LARGEST:,} ({LARGEST // MICRO:,} units)"
        raise ValueError(f"`{what}` must be a whole number of micro-units from 1 to {most}, got {amount!r}")
