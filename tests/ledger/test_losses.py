"""What one member loses others gain under agreement: the ledger cuts no such loss."""

from pathlib import Path

import pytest

from guerdon import AffineCost, EstimatedVariance, OutputAgreement
from guerdon.ledger import Ledger

NAMES = ["north", "east", "south"]
RULE = OutputAgreement(AffineCost(1, 1))


@pytest.mark.parametrize(
    "terms", [{"liability": "floor"}, {"liability": "deposit"}, {"liability": "floor", "vesting": 5}]
)
def test_a_loss_that_others_gain_is_not_cut(tmp_path: Path, terms: dict[str, object]) -> None:
    with Ledger(str(tmp_path / "books.db")) as ledger:
        with pytest.raises(ValueError, match="`liability` must be 'carry' under output agreement, or 'deposit' with"):
            ledger.start_run("heart", NAMES, RULE, **terms)  # pyright: ignore[reportArgumentType]
        assert not ledger.runs()


def test_losses_may_be_carried_or_charged_to_what_has_not_vested(tmp_path: Path) -> None:
    with Ledger(str(tmp_path / "books.db")) as ledger:
        assert ledger.start_run("carried", NAMES, RULE).new
        assert ledger.start_run("charged", NAMES, RULE, liability="deposit", vesting=5).new
        estimated = OutputAgreement(AffineCost(1, 1), EstimatedVariance())
        assert ledger.start_run("cut", NAMES, estimated, liability="floor").new  # nobody gains what another loses
