"""Who is asked for half: a random few, other ones each round, and nobody can know who."""

import numpy as np
import pytest

from guerdon.pilot import PilotDesign


@pytest.mark.parametrize(("agents", "half"), [(4, 1), (5, 2), (6, 2), (10, 3), (20, 6), (100, 10)])
def test_each_round_has_its_share_of_half_work(agents: int, half: int) -> None:
    design = PilotDesign(16, seed=3)
    for number in range(20):
        asked = design.requests(number, agents)
        assert sorted(asked) == [8] * half + [16] * (agents - half)


@pytest.mark.parametrize("agents", [1, 2, 3])
def test_too_few_agents_are_all_asked_for_everything(agents: int) -> None:
    assert (PilotDesign(16, seed=3).requests(0, agents) == 16).all()


def test_every_agent_is_often_in_both_groups_and_rounds_say_nothing_of_the_next() -> None:
    half = np.stack([PilotDesign(16, seed=5).requests(number, 10) < 16 for number in range(2000)])
    spread = 4 * np.sqrt(0.3 * 0.7 / 2000)
    assert half.mean(axis=0) == pytest.approx(0.3, abs=spread)
    again = np.array([np.corrcoef(half[:-1, k], half[1:, k])[0, 1] for k in range(10)])
    assert np.abs(again).max() < 4 / np.sqrt(2000)


def test_the_seed_is_secret_unless_one_is_given() -> None:
    first, second = PilotDesign(16), PilotDesign(16)
    assert first.seed != second.seed
    assert min(first.seed, second.seed) > 2**64
    assert str(first.seed) not in repr(first)
    assert any((first.requests(t, 10) != second.requests(t, 10)).any() for t in range(9))
    assert (PilotDesign(16, seed=7).requests(4, 10) == PilotDesign(16, seed=7).requests(4, 10)).all()


def test_half_is_rounded_up() -> None:
    assert [PilotDesign(request).half for request in (2, 3, 16, 17)] == [1, 2, 8, 9]


@pytest.mark.parametrize(("request_", "share"), [(1, 0.3), (0, 0.3), (16, 0.0), (16, 1.0), (16, -1.0)])
def test_a_pilot_without_two_groups_is_refused(request_: int, share: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        PilotDesign(request_, share)
