"""The arena: every way to pay for federated learning, on the same game. It needs the extra `sim` (JAX).

Rules that need more than evidence (announcements, a validation set, whole reports) say so in their `needs`, and are
told by `Rule.informed`. They are known here and not to `guerdon pay`: no ledger could recompute them.
"""

from guerdon.lab.arena.entrants import Entrant, enter, entrants
from guerdon.lab.arena.game import Game
from guerdon.lab.arena.settings import ArenaSetting, setting_of
from guerdon.lab.arena.shares import ToldRule, announced_by, begin, plain_payments
from guerdon.lab.arena.strategies import STRATEGIES

__all__ = [
    "STRATEGIES",
    "ArenaSetting",
    "Entrant",
    "Game",
    "ToldRule",
    "announced_by",
    "begin",
    "enter",
    "entrants",
    "plain_payments",
    "setting_of",
]
