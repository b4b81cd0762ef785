"""The terms of a run: what they take, and what they say of anything else."""

from typing import Any

import pytest

from guerdon import AffineCost, EstimatedVariance, FlatPay, OutputAgreement
from guerdon.terms import AtOnce, Looks, Terms, Vesting, terms_from

COST = AffineCost(1, 1)


def test_they_can_be_compared_and_kept() -> None:
    assert Terms() == Terms(None, "carry", 0.0, None, {}, None, None, signatures=False, one_step=False)
    assert Terms(hold=AtOnce()) != Terms(hold=Vesting())
    told = Terms(Vesting(5), "deposit", deposit=3, budget=0, cost_factors={"a": 2}, quorum=1, deadline=0.5)
    assert terms_from(told.to_dict()) == told
    assert told.hold == Vesting(5)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"hold": 20}, TypeError, r"`hold` must be AtOnce\(\), Vesting\(rounds\) or Looks\(...\), got 20"),
        ({"hold": Vesting}, TypeError, "`hold` must be"),
        ({"losses": "waive"}, ValueError, "`losses` must be .*carry.*got 'waive'"),
        ({"deposit": -1}, ValueError, "`deposit` must be a finite number of at least 0, got -1"),
        ({"deposit": 3}, ValueError, "`deposit` must be 0 with losses='carry' .*only losses='deposit' charges it"),
        ({"deposit": 3, "losses": "deposit", "hold": AtOnce()}, ValueError, "what it secures must not be paid at once"),
        ({"budget": float("nan")}, ValueError, "`budget` must be a finite number of at least 0, got nan"),
        ({"deadline": "soon"}, TypeError, "`deadline` must be a finite number of at least 0, got 'soon'"),
        ({"quorum": 0}, ValueError, "`quorum` must be a positive integer, got 0"),
        ({"cost_factors": [1.5, 1]}, TypeError, "`cost_factors` must be a factor for each agent, .* got .1.5, 1."),
        ({"cost_factors": {"a": 0}}, ValueError, r"`cost_factors\['a'\]` must be a finite number above 0, got 0"),
    ],
)
def test_what_they_refuse(wrong: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Terms(**wrong)


def test_vesting_takes_whole_rounds() -> None:
    with pytest.raises(ValueError, match="`rounds` must be a positive integer, got 0"):
        Vesting(0)
    with pytest.raises(ValueError, match="`rounds` must be at most 1,000, got 1,001"):
        Vesting(1001)


def test_terms_that_are_written_down_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"terms must be named hold, losses, .*; got 'liability'"):
        terms_from({"liability": "carry"})
    with pytest.raises(ValueError, match="one of 'at once', 'vesting', 'looks', got 20"):
        terms_from({"hold": 20})


def test_looks_hold_pay_of_rules_that_take_nothing_back_and_name_an_auditor() -> None:
    looks = Looks(auditor="ab" * 32, code="cd" * 32)
    assert terms_from(Terms(hold=looks).to_dict()).under(FlatPay(COST)).hold == looks
    assert Terms(hold=looks).price == looks.price == 1.05
    assert Terms(hold=Vesting()).price == 1
    with pytest.raises(ValueError, match=r"`hold` must not be Looks with .*pay flat, `FlatPay\(cost\)`"):
        Terms(hold=looks).under(OutputAgreement(COST))
    with pytest.raises(ValueError, match=r"`losses` must be 'carry'.*got 'floor'"):
        Terms(hold=looks, losses="floor").under(FlatPay(COST))
    with pytest.raises(ValueError, match="`auditor` must be the public key of the auditor"):
        Terms(hold=Looks()).under(FlatPay(COST))
    with pytest.raises(ValueError, match="`code` must be a SHA-256"):
        Looks(code="12")
    with pytest.raises(ValueError, match="`deposit` must be 0"):
        Terms(hold=looks, losses="deposit", deposit=3)


def test_pay_is_held_where_a_rule_can_take_it_back() -> None:
    assert Terms().under(OutputAgreement(COST)).hold == Vesting()
    assert Terms().under(FlatPay(COST)).hold == AtOnce()
    assert Terms(hold=AtOnce()).under(OutputAgreement(COST)).hold == AtOnce()


def test_no_loss_is_cut_where_others_gain_it() -> None:
    for wrong in (Terms(losses="floor"), Terms(losses="deposit", hold=AtOnce())):
        with pytest.raises(ValueError, match="`losses` must be 'carry' under output agreement"):
            wrong.under(OutputAgreement(COST))
    assert Terms(losses="deposit").under(OutputAgreement(COST)).hold == Vesting()
    assert Terms(losses="floor").under(OutputAgreement(COST, EstimatedVariance())).losses == "floor"
