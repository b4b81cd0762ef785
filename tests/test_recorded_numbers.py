"""Every rule pays, trusts and takes the means that were recorded: a change of structure changes no number."""

import functools
from typing import Any

import numpy as np
import pytest

from guerdon.registry import choices
from guerdon.statistical.trust import trust_of
from tests.data.numbers import make
from tests.support.one_server_scene import ABSENT, COST, JOINS, NU

CLOSE = 1e-9  # relative, and for what is paid also of h(ν)
SURE = 4e-15  # of the longest report of a round: how well sums can be resolved that hold it
every_rule = pytest.mark.parametrize("name", make.CASES)


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    with np.load(make.HERE / f"{name}.npz") as kept:
        return dict(kept)


def slack(key: str, kept: dict[str, Any]) -> Any:
    """Return how far a number may be off, beside `CLOSE` of itself.

    Evidence is a difference of sums over reports, one of which may be a million times longer than the rest.
    """
    case, _, field = key.rpartition("/")
    if field in ("released", "held"):
        return CLOSE * COST(NU)
    if field in ("squared_deviation", "pair_distance", "squared_length", "alignment"):
        return SURE * np.nanmax(kept[f"{case}/squared_length"], axis=1, keepdims=True)
    return 1e-12


def difference(name: str, key: str, found: Any) -> str:
    """Return where a field of a case first differs from what was recorded; nothing where it does not."""
    expected = recorded(name)[key]
    off = slack(key, recorded(name)) + CLOSE * np.abs(expected)
    same = (np.abs(found - expected) <= off) | (np.isnan(expected) & np.isnan(found))
    if same.all():
        return ""
    turn, *agent = np.argwhere(~same)[0].tolist()
    place = (turn, *agent)
    return f"{key} of round {turn}, agent {agent}: {found[place]!r}, was {expected[place]!r}"


def test_there_is_a_file_for_every_rule_that_a_server_can_pay_by() -> None:
    assert set(make.CASES) == set(choices())
    assert {path.stem for path in make.HERE.glob("*.npz")} == set(make.CASES)


@every_rule
def test_the_numbers_are_those_recorded(name: str) -> None:
    found = make.flat(make.played(name))
    assert set(found) == set(recorded(name))
    assert list(filter(None, (difference(name, key, values) for key, values in found.items()))) == []


@every_rule
def test_the_record_has_something_of_everything(name: str) -> None:
    """Absences, joins and an unusable report in every case; pay that differs; the rest where the rule has it."""
    kept = recorded(name)
    for case in make.CASES[name]:
        status = kept[f"{case}/status"]
        assert np.isnan(status[: JOINS[8], 8]).all()
        assert {0.0, 1.0, 5.0} <= set(status[~np.isnan(status)])
        assert (kept[f"{case}/mean"] > 0).all()
        assert (status[:, ABSENT] == 1).any()
    rewards = np.concatenate([kept[f"{case}/released"].reshape(-1) for case in make.CASES[name]])
    assert len(set(rewards[~np.isnan(rewards)].round(6))) > (1 if name == "flat" else 80)
    if trust_of(make.CASES[name]["alike"].rule) is not None:
        trusted, counted = kept["alike/trusted"], kept["alike/counted"]
        assert ((counted == 1) & (trusted == 0)).sum() > 20
        assert np.nanmax(kept["alike/against"]) > np.log(10)
    if name == "steady":
        assert ((kept["calm/released"] > 0).sum(axis=0) > 5).sum() >= 5  # released from round to round
        assert (kept["calm/held"] > 1).sum() > 20


@every_rule
def test_a_number_that_changes_is_found(name: str) -> None:
    """In each field, by one part in a hundred million, in the last round that says anything."""
    missed = list[str]()
    for key, values in recorded(name).items():
        changed = values.copy()
        known = np.argwhere(np.isfinite(changed) & (changed != 0))
        if len(known):
            last = tuple(known[-1])
            changed[last] += 1e-8 * max(1.0, abs(changed[last]))
            missed += [] if difference(name, key, changed) else [key]
    assert missed == []
