"""Every way to cheat under looks: which rounds a member works, what it claims, and when it leaves.

What a report is does not matter to a look: it is the named work, or it is not. So a cheat is no more than the rounds in
which it does not work, and when it leaves. It sees more than a real one could: its candidates, and whether a round that
it did not work is among them. A crew is several names of one owner, who acts on what all of them see.
"""

# NumPy's functions of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.lab.experiments.paper import COST
from guerdon.lab.held import Held, forfeited, kept, nothing_held
from guerdon.terms import Looks

REQUEST = 16
REQUESTS = (4, 16, 40)  # where requests vary from round to round, each as likely: one sample costs 2, these 5, 17, 41
FEW = 5  # rounds: a tenth of a period


class View(NamedTuple):
    """What a member knows before it reports. Arrays are (runs, names of the crew) unless they say otherwise."""

    number: int  # of the round, from 1
    place: int  # of the round in its period, from 1
    left: int  # rounds of the period after this one
    request: Any  # (runs, 1)
    held: Any  # F, in units of the cost
    doomed: Any  # whether a round that it did not work is a candidate
    name: Any  # 0, 1, … of a crew, (1, names)
    chance: np.random.Generator

    def often(self, share: float) -> Any:
        """Return true with this chance, for each run and name on its own."""
        return self.chance.random(self.doomed.shape) < share


Share: TypeAlias = Callable[[View], Any] | float


class Strategy(NamedTuple):
    """What a member does: on how many samples it works, and how many it claims to have used.

    `works` and `claims` are shares of the request: a number, or one for each run and name. The report is the named work
    where both are the same, unless the member `changes` it. `leaves` says who leaves before a round; who `returns` does
    so under a new name, of which nothing is known.
    """

    words: str
    works: Share
    claims: Share = 1.0
    leaves: Callable[[View], Any] | None = None
    returns: bool = False
    changes: bool = False
    crew: int = 1
    requests: tuple[int, ...] = (REQUEST,)


def _safe(view: View) -> Any:
    return ~view.doomed & (view.place > FEW)


def _by_chance(view: View) -> Any:
    return view.often(0.5)


def _for_one_by_chance(view: View) -> Any:
    return view.name == view.chance.integers(view.name.shape[1], size=view.request.shape)


STRATEGIES: Mapping[str, Strategy] = {
    "never works": Strategy("sends zeros, an extrapolation, a surrogate, a copy or anything else", 0.0),
    "nine rounds of ten": Strategy("works in a tenth of the rounds, by chance", lambda view: view.often(0.1)),
    "every other round": Strategy("does not work in half of the rounds, by chance", _by_chance),
    "one round of ten": Strategy("does not work in a tenth of the rounds, by chance", lambda view: view.often(0.9)),
    "half, claims all": Strategy("uses half the samples, and claims all", 0.5),
    "half, says so": Strategy("uses half the samples, and says so", 0.5, 0.5),
    "stays away": Strategy("declines every second round", lambda view: view.number % 2, lambda view: view.number % 2),
    "early": Strategy("does not work in the first five rounds of a period", lambda view: view.place > FEW),
    "late": Strategy("does not work in the last five rounds of a period", lambda view: view.left >= FEW),
    "once a period": Strategy("does not work in one round of a period", lambda view: view.left != FEW),
    "until doomed": Strategy("works nine times of ten, until a round that it did not work is a candidate; then no more",
                             lambda view: ~view.doomed & view.often(0.9)),
    "while safe": Strategy("works where such a round is a candidate, else every other time",
                           lambda view: view.doomed | view.often(0.5)),
    "leaves when safe": Strategy("works by chance, and leaves as soon as no such round is a candidate", _by_chance,
                                 leaves=_safe),
    "new names": Strategy("the same, and comes back under a new name", _by_chance, leaves=_safe, returns=True),
    "dear rounds": Strategy("does not work where most is asked for", lambda view: view.request < max(REQUESTS),
                            requests=REQUESTS),
    "cheap rounds": Strategy("does not work where least is asked for", lambda view: view.request > min(REQUESTS),
                             requests=REQUESTS),
    "weighs its rounds": Strategy("uses one sample and says so where such a round is a candidate; else uses none and "
                                  "claims all", lambda view: view.doomed / REQUEST,
                                  lambda view: np.where(view.doomed, 1 / REQUEST, 1.0)),
    "crew, in turn": Strategy("of three names one works, in turn; all send its report",
                              lambda view: view.name == view.number % 3, crew=3),
    "crew, covering": Strategy("of three names one works, by chance; names that are safe leave and return",
                               _for_one_by_chance, leaves=_safe, returns=True, crew=3),
    "secret noise": Strategy("five names work, and all add the same small noise", 1.0, changes=True,
                             crew=5),
}  # fmt: skip


class Played(NamedTuple):
    """What came of a strategy in each run, in all rounds and for all names together, in units of the cost.

    `profit`: pay less what it really cost. `honest`: the same of honest work by as many names. `expected`: what the
    theorem says of `profit` where a failed look costs its share: the margin of what was worked, and no pay for anything
    else, whatever that cost.
    """

    profit: Any
    honest: Any
    expected: Any


def play(strategy: Strategy, terms: Looks, rounds: int, runs: int, seed: int) -> Played:
    """Play a strategy under flat pay with looks, in so many runs at once.

    >>> played = play(STRATEGIES["never works"], Looks(), rounds=50, runs=1000, seed=0)
    >>> float(played.profit.max()), round(float(played.honest[0]), 1)
    (0.0, 42.5)
    """
    chance, shape = np.random.default_rng(seed), (runs, strategy.crew)
    here, profit, expected, honest = np.ones(shape, dtype=bool), np.zeros(shape), np.zeros(shape), np.zeros(runs)
    state = nothing_held(profit, terms.looks)
    for number in range(1, rounds + 1):
        view = _view(number, rounds, state, terms, chance.choice(strategy.requests, (runs, 1)), chance)
        if strategy.leaves is not None:
            leaving = here & (state.weight > 0) & strategy.leaves(view)
            profit, state = _settle(profit, state, terms, leaving)
            here = here if strategy.returns else here & ~leaving
            view = view._replace(held=state.weight, doomed=state.failing.any(axis=0))
        used, claimed = (np.rint(here * _share(of, view) * view.request) for of in (strategy.works, strategy.claims))
        spent, paid = _cost(used), (1 + terms.margin) * _cost(claimed)
        worked = (used == claimed) & (not strategy.changes)
        state = kept(state, paid, worked, number, chance.random((terms.looks, runs, 1)))
        profit, expected = profit - spent, expected + worked * paid - spent
        honest += terms.margin * strategy.crew * _cost(view.request)[:, 0]
        if terms.ends_period(number) or number == rounds:
            profit, state = _settle(profit, state, terms, np.ones(shape, dtype=bool))
    return Played(profit.sum(axis=1), honest, expected.sum(axis=1))


def _view(number: int, rounds: int, state: Held, terms: Looks, request: Any, chance: np.random.Generator) -> View:
    place = (number - 1) % terms.period + 1
    left = min(terms.period - place, rounds - number)
    names = np.arange(state.weight.shape[1])[None, :]
    return View(number, place, left, request, state.weight, state.failing.any(axis=0), names, chance)


def _share(share: Share, view: View) -> Any:
    return share(view) if callable(share) else share


def _settle(profit: Any, state: Held, terms: Looks, who: Any) -> tuple[Any, Held]:
    """Return profit with what is released to those who settle, and the state, in which these hold nothing more."""
    released = np.where(who, state.weight - forfeited(state, terms), 0.0)
    return profit + released, Held(*(np.where(who, 0.0, part) for part in state))


def _cost(samples: Any) -> Any:
    return np.where(samples > 0, COST(samples), 0.0)
