"""Steady pay and all that the server does for it, against plain loops: equal on random rounds, every number noticed."""

import ast
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, PowerCost, SteadyPay
from guerdon.rule import notice_of
from guerdon.statistical.bets import evidence_against
from guerdon.statistical.information import InformationPay
from guerdon.statistical.servers import server_for
from guerdon.statistical.steady import FAINT, PREDICTABLE
from guerdon.words import about
from tests.support.steady_oracle import SteadyOracle
from tests.support.steady_reports_oracle import Compared, ReportsOracle

CLOSE = 1e-9  # relative
EVIDENCE = "squared_deviation", "pair_distance", "squared_length", "alignment"
WARNINGS = {"predictable": PREDICTABLE, "faint": FAINT, "": ""}
COSTS = AffineCost(1, 1), PowerCost(0.5, 2, 1)

Numbers = dict[str, Any]  # of a round: a number, or one for each agent (or pair)


class Round(NamedTuple):
    """What a server gets."""

    prediction: Any
    request: int
    reports: dict[int, Any]
    joined: int
    closes: bool


class Setting(NamedTuple):
    """A federation: the rule's settings, and who does otherwise (agent: what)."""

    seed: int
    rounds: int
    settings: dict[str, Any]
    others: dict[int, str]
    alike: bool = True
    agents: int = 7
    signal: float = 1.0  # length of the surprise; noise of a report has length 1 at request 8
    joins: tuple[int, ...] = ()  # rounds in which one more joins
    closes: tuple[int, ...] = ()  # rounds that settle what is held
    absent: float = 0.05
    requests: tuple[int, ...] = (8,)
    cost: int = 0


DIM = 8
SETTINGS: dict[str, Setting] = {
    "calm": Setting(0, 52, {"period": 24, "probation": 6}, {0: "half", 1: "in turn"}, requests=(8, 12), closes=(51,)),
    "defaults": Setting(1, 60, {}, {3: "loud"}, signal=0.5, alike=False, absent=0.0, cost=1),
    "wild": Setting(
        2, 40, {"period": 14, "probation": 3},
        {1: "copy", 2: "garbage", 3: "near", 4: "loud", 5: "prediction"}, joins=(6, 12), closes=(20, 39), absent=0.1,
    ),
    "crew": Setting(3, 44, {"period": 40, "probation": 4}, {0: "crew", 1: "crew", 2: "crew"}, alike=False, signal=0.7),
    "shared": Setting(4, 40, {"period": 20, "probation": 2, "doubt": 20.0}, {0: "sharing", 1: "sharing", 6: "half"}),
    "predictable": Setting(5, 26, {"period": 60, "probation": 2}, {}, signal=0.02),
    "faint": Setting(6, 56, {"period": 80, "limit": 1.5}, {1: "in turn"}, signal=0.15, agents=6),
    "few": Setting(7, 40, {"period": 12, "probation": 1}, {0: "loud"}, agents=4, absent=0.3, closes=tuple(range(40))),
    "newcomers": Setting(
        0, 40, {"period": 20, "probation": 4}, {2: "loud"}, agents=5, joins=(13, 15, 17), signal=0.6, absent=0.1
    ),
    "far": Setting(8, 24, {"period": 12, "probation": 0}, {2: "half"}, absent=0.0),
}  # fmt: skip


@functools.cache
def rounds(name: str) -> list[Round]:
    """Return what is sent: the surprise and noise, or what else an agent does."""
    one = SETTINGS[name]
    rng, found, total = np.random.default_rng(one.seed), list[Round](), one.agents + len(one.joins)
    for turn in range(one.rounds):
        nu, joined = one.requests[turn % len(one.requests)], one.agents + sum(turn >= join for join in one.joins)
        surprise, prediction = rng.normal(size=DIM), rng.normal(size=DIM)
        surprise *= one.signal / np.linalg.norm(surprise)
        # One prediction is so far off that reports differ by less than a millionth of their length around it.
        surprise *= 1e3 * (0.85, 1.2)[turn % 2] if name == "far" and 4 < turn < 10 else 1.0
        noise = rng.normal(size=(total, DIM)) / DIM**0.5 * (8 / nu) ** 0.5
        sent = {k: surprise + noise[k] for k in range(total)}
        for k, what in one.others.items():
            sent[k] = OTHERWISE[what](Draw(rng, turn, surprise, noise[k], noise[0]))
        present = rng.random(total) > one.absent
        reports = {k: prediction + sent[k] for k in range(joined) if present[k]}
        if name == "wild" and turn == 17:
            reports[0] = np.full(DIM, np.nan)
            reports[4] = np.full(DIM, 2e15)
        if name == "wild" and turn == 19:
            reports[4] = np.full(DIM, 6e14)
        found.append(Round(prediction, nu, reports, joined, turn in one.closes))
    return found


class Draw(NamedTuple):
    """What an agent has to choose its report from; reports are around the prediction."""

    rng: np.random.Generator
    turn: int
    surprise: Any
    noise: Any  # its own, as long as honest noise is
    first: Any  # that of the first agent

    @property
    def honest(self) -> Any:
        return self.surprise + self.noise

    @property
    def made_up(self) -> Any:
        return self.rng.normal(size=DIM)


OTHERWISE: dict[str, Callable[[Draw], Any]] = {
    "half": lambda one: one.surprise + 2**0.5 * one.noise,
    "in turn": lambda one: one.honest if one.turn % 3 else 0 * one.noise,
    "loud": lambda one: one.honest * (6.0 if one.turn % 2 else 1.0),
    "prediction": lambda one: 1e-3 * one.made_up if one.turn % 2 else one.honest,
    "garbage": lambda one: one.made_up * (1e6, 1.0, 10.0)[one.turn % 3],
    "copy": lambda one: one.honest if one.turn % 3 else one.surprise + one.first,
    # Nearly a copy: a little less and a little more than a thousandth of the length off.
    "near": lambda one: one.surprise + one.first + (2e-4, 4e-4, 7e-4)[one.turn % 3] * one.made_up,
    "crew": lambda one: one.surprise + 0.8 * one.first + 0.6 * one.noise,
    "sharing": lambda one: one.surprise + 0.97 * one.first + 0.24 * one.noise,
}


def spread(values: dict[int, float], agents: int) -> Any:
    """Return a number for each agent; 0 for those without."""
    return np.array([values.get(k, 0.0) for k in range(agents)])


def members(chosen: list[int], agents: int) -> Any:
    return np.isin(np.arange(agents), chosen)


@functools.cache
def expected(name: str) -> list[Numbers]:
    """Return what the loops come to."""
    one = SETTINGS[name]
    oracle = ReportsOracle(SteadyOracle(COSTS[one.cost], one.agents, **one.settings), one.alike)
    found = list[Numbers]()
    for given in rounds(name):
        while oracle.rule.num_agents < given.joined:
            oracle.rule.join()
        rewards, compared = oracle.pay(given.reports, given.prediction, given.request, closes=given.closes)
        found.append(_read_oracle(oracle, rewards, compared, given))
    return found


def _read_oracle(oracle: ReportsOracle, rewards: list[float], compared: Compared, given: Round) -> Numbers:
    agents, rule = given.joined, oracle.rule
    vectors = compared.measured._asdict() | {"pair_distance": compared.pair_distance}
    credit = np.zeros((2, agents, agents))
    for pair, told in oracle.credit.items():
        credit[:, *pair] = told
    return {
        "reward": np.array(rewards),
        **{field: spread(values, agents) for field, values in vectors.items()},
        "trusted": members(compared.trusted, agents), "copies": members(compared.copies, agents),
        "used": members(compared.used, agents),
        "factors": np.array([compared.factors.get(k, 1.0) for k in range(agents)]),
        "against": np.array([member.against() for member in rule.members]),
        "suspicious": np.array([oracle.worst(k) for k in range(agents)]),
        "credit": credit,
        "held": np.array([rule.held(k) for k in range(agents)]),
        "knowledge": np.array([rule.knowledge(k) for k in range(agents)]),
        "warning": WARNINGS[rule.warning()],
    }  # fmt: skip


def paid(name: str) -> Iterator[Numbers]:
    """Yield what the server comes to: the one function that knows how it is called."""
    one = SETTINGS[name]
    rule = SteadyPay(COSTS[one.cost], **one.settings)
    server = server_for(rule, FixedRequest(8, 0.1), alike=one.alike, records=None)
    state = server.init(np.zeros(DIM), one.agents)
    for given in rounds(name):
        state = server.enlarge(state, given.joined)
        reports, sent = np.zeros((given.joined, DIM)), members(list(given.reports), given.joined)
        for k, report in given.reports.items():
            reports[k] = report
        ask, state = server.ask(state, given.prediction)
        ask = ask._replace(request=np.asarray(given.request), prediction=given.prediction, is_last=given.closes)
        payments, found, state = server.pay(state, ask, reports, sent)
        yield {
            "reward": payments.released,
            **{field: getattr(found.evidence, field) for field in EVIDENCE},
            "trusted": found.trusted, "copies": found.copies, "used": found.used, "factors": found.factors,
            "against": rule.trust.suspicion(state.lens.trust),
            "suspicious": np.max(evidence_against(state.lens.pairs.wealth), axis=1, initial=0.0),
            "credit": state.lens.pairs.credit,
            "held": about(rule).held(rule, state.rule),
            "knowledge": notice_of(rule, state.rule, given.request).knowledge,
            "warning": about(rule).advice(rule, state.rule, given.request),
        }  # fmt: skip


def differences(name: str) -> Iterator[str]:
    """Yield where the server and the loops differ."""
    h = COSTS[SETTINGS[name].cost](8)
    for turn, (one, other) in enumerate(zip(paid(name), expected(name), strict=True)):
        for field, right in other.items():
            # Pay on the scale of a round's cost; a difference of lengths to what the longest leaves of its digits.
            scale = h if field in ("reward", "held") else 1e-3
            scale = max(scale, 1e-6 * other["squared_length"].max()) if field in EVIDENCE else scale
            if isinstance(right, str):
                same = one[field] == right
            else:
                same = np.allclose(one[field], right, rtol=CLOSE, atol=CLOSE * scale)
            if not same:
                yield f"{field} of round {turn}: {one[field]}, by loops {right}"


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_what_plain_loops_say(name: str) -> None:
    assert next(differences(name), "") == ""


# Every number of the modules that steady pay is made of, by module; and the defaults of its settings.
MODULES = (
    "guerdon.statistical.steady", "guerdon.statistical.information_share", "guerdon.statistical.information",
    "guerdon.statistical.signal", "guerdon.statistical.trust", "guerdon.rule", "guerdon.statistical.bets",
    "guerdon.statistical.pairs", "guerdon.statistical.credit", "guerdon.reports", "guerdon.statistical.lenses",
    "guerdon.server",
)  # fmt: skip
# Numbers that no round of steady pay reaches, and why.
UNREACHED = {
    "guerdon.statistical.signal.CAREFUL": "of a pooled estimate, which steady pay never makes",
    "guerdon.statistical.information.SOUND": "of information pay's own warning",
    "guerdon.statistical.information.WAIT": "of information pay's own warning",
    "guerdon.statistical.trust.PROBATION": "a default, bound when the class is made: see DEFAULTS",
    "guerdon.statistical.bets.LIARS": "of verdicts, after a run",
    "guerdon.statistical.bets.RARE": "of verdicts, after a run",
    "guerdon.statistical.bets.FEW": "of verdicts, after a run",
    "guerdon.reports.BLOCK": "how reports are read: it changes no number",
    "guerdon.reports.NARROWEST": "how reports are read: it changes no number",
    "guerdon.reports.WIDEST": "how reports are read: it changes no number",
}
# Numbers that something is compared with: a change shows where it lies between the two, so it must be large enough.
LARGER = {
    "guerdon.statistical.pairs.DOUBT": 4.0,
    "guerdon.statistical.bets.TIE": 100.0,
    "guerdon.reports.LARGEST": 4.0,  # the scene has 2e15 and 6e14
    "guerdon.rule.RESOLUTION": 2.0,
    "doubt": 1e6,
    "least": 100.0,
}
# Where a number shows that does not in the first setting: elsewhere it would be looked for in vain, at length.
SHOWS = {
    "guerdon.statistical.pairs.DOUBT": "crew",
    "guerdon.statistical.pairs.FEWEST": "wild",
    "guerdon.statistical.pairs.IDENTICAL": "wild",
    "guerdon.statistical.bets.LEAST": "wild",
    "guerdon.statistical.bets.PEERS": "shared",
    "guerdon.statistical.bets.TIE": "far",
    "guerdon.reports.LARGEST": "wild",
    "guerdon.rule.RESOLUTION": "far",
    "guerdon.statistical.steady.LATE": "faint",
    "guerdon.statistical.steady.VAGUE": "faint",
    "guerdon.statistical.information_share.LEAST_KNOWN": "predictable",
    "guerdon.statistical.information_share.LEAST_SIGNAL": "wild",
    "guerdon.statistical.trust.CLEAR": "wild",
    "guerdon.statistical.trust.GRACE": "wild",
    "guerdon.statistical.trust.RECENT": "newcomers",
}
DEFAULTS = [
    *((SteadyPay, name) for name in ("period", "doubt", "limit", "probation")),
    *((InformationPay, name) for name in ("decay", "least")),
]


def numbers_of(module: str) -> Iterator[str]:
    """Yield the places of the numbers that a module gives a name to: those of a tuple one by one."""
    found = import_module(module)
    assert found.__file__
    for statement in ast.parse(Path(found.__file__).read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            value = getattr(found, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{module}.{name}"
            elif isinstance(value, tuple) and all(isinstance(one, float) for one in value):
                yield from (f"{module}.{name}[{index}]" for index in range(len(value)))


CONSTANTS = [place for module in MODULES for place in numbers_of(module)]


def change(place: str, monkeypatch: pytest.MonkeyPatch, *, up: bool) -> None:
    """Change a number wherever it was imported to: by a quarter, a whole one by 1."""
    path, _, index = place.rstrip("]").partition("[")
    module, _, name = path.rpartition(".")
    value = getattr(import_module(module), name)
    factor = LARGER.get(place, 1.25) ** (1 if up else -1)
    if index:
        changed: Any = tuple(one * factor if i == int(index) else one for i, one in enumerate(value))
    else:
        changed = value + (1 if up else -1) if isinstance(value, int) else value * factor
    for other in MODULES:
        if getattr(import_module(other), name, None) is value:
            monkeypatch.setattr(f"{other}.{name}", changed)


def change_default(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change what a setting of a rule is where nobody sets it."""
    made: Any = kind.__init__
    names = [one.name for one in fields(kind) if one.name != "cost"]
    values = dict(zip(names, made.__defaults__, strict=True))
    factor = LARGER.get(name, 1.25)
    values[name] = values[name] + 1 if isinstance(values[name], int) else values[name] * factor
    monkeypatch.setattr(made, "__defaults__", tuple(values.values()))


def noticed_in(first: str = "") -> str:
    """Return the first setting in which the server and the loops differ."""
    names = sorted(SETTINGS, key=lambda name: name != first)
    return next((name for name in names if next(differences(name), "")), "")


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("place", [place for place in CONSTANTS if place not in UNREACHED])
def test_every_number_is_noticed(place: str, up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is added to these modules later: a number that no round needs is named above, with its reason."""
    change(place, monkeypatch, up=up)
    assert noticed_in(SHOWS.get(place, ""))


@pytest.mark.parametrize(("kind", "name"), DEFAULTS)
def test_every_default_is_noticed(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody sets it: SteadyPay's own, and those of the test that it keeps."""
    change_default(kind, name, monkeypatch)
    assert noticed_in("defaults")


def test_numbers_that_are_not_reached_exist() -> None:
    assert set(UNREACHED) <= set(CONSTANTS)
    assert set(LARGER) | set(SHOWS) <= {*CONSTANTS, *(name for _, name in DEFAULTS)}


def test_the_settings_have_something_of_everything() -> None:
    """Else the comparison could hold because nothing happens in it."""
    told = {name: expected(name) for name in SETTINGS}
    assert {one["warning"] for rounds_ in told.values() for one in rounds_} == {"", FAINT, PREDICTABLE}
    for name in ("calm", "defaults", "wild", "crew", "shared", "newcomers"):
        assert sum((one["reward"] > 0).sum() for one in told[name]) > 20
    assert sum(one["copies"].sum() for one in told["wild"]) > 20
    assert any((one["factors"] < 1e-3).any() for one in told["wild"])
    assert any(one["suspicious"].max() > math.log(1e3 * 21) for one in told["shared"])
    assert any((one["trusted"] < one["used"]).any() for one in told["defaults"])
    assert any((one["held"] > one["reward"] + 1).any() for one in told["calm"])
