"""Checks of the ledger's input: names and amounts."""

import re
from collections.abc import Sequence

from guerdon.ledger.money import LARGEST

LONGEST_NAME = 200
# Control characters, and those that change the direction of text: they could make a page or a terminal show false text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return text that every database can keep: no NUL characters, no halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def check_micro(what: str, amount: object) -> None:
    """Raise unless `amount` is a positive number of micro-units."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < amount <= LARGEST:
        raise ValueError(f"`{what}` must be a whole number of micro-units above 0, got {amount!r}")


def check_name(what: str, name: object) -> None:
    """Raise unless `name` is text that every database can keep and every page can show."""
    usable = isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and clean(name) == name
    if not usable or UNPRINTABLE.search(str(name)):
        shown = repr(name) if len(repr(name)) < 80 else f"one of {len(repr(name))} characters"
        raise ValueError(f"{what} must be text of 1 to {LONGEST_NAME} printable characters, got {shown}")


def check_roster(agents: Sequence[str]) -> None:
    """Raise unless `agents` are names, at least one, each once."""
    if isinstance(agents, str) or not agents or len(set(agents)) != len(agents):
        raise ValueError("`agents` must be a list of at least one name, none of them twice")
    for name in agents:
        check_name("an agent's name", name)
