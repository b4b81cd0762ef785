"""A service whose server computes another pay than the ledger records nothing, keeps the reports, and can be mended."""

from pathlib import Path
from typing import Any

import pytest

from guerdon import AffineCost, KnownVariance, OutputAgreement
from guerdon.ledger import Ledger, RefusedError
from guerdon.rule import times
from tests.serve.conftest import TOKENS, gradient, make_service, save_draft

RULE = OutputAgreement(AffineCost(1, 1), KnownVariance(12.0))


def test_a_server_that_computes_otherwise_is_refused_and_nobody_sends_again(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generous(payments: Any, factors: Any) -> Any:
        right = times(payments, factors)
        return right._replace(released=right.released + 5)

    told = list[dict[str, float]]()
    options: dict[str, Any] = {"rule": RULE, "terms": {"one_step": True}, "run": {"on_round": told.append}}
    service = make_service(tmp_path, ledger, **options)
    for seed, name in enumerate(TOKENS):
        service.accept(name, 1, save_draft(service, gradient(seed)), b"")
    with monkeypatch.context() as broken:
        broken.setattr("guerdon.server.times", generous)
        with pytest.raises(RefusedError, match=r"round 1 of run 'run': the driver computed a reward of .*'east'"):
            service.settle_if_due()
    assert (ledger.rounds("run"), ledger.payslips("run"), told) == ([], [], [])
    service.spool.close()

    again = make_service(tmp_path, ledger, **options)
    assert all(again.has_answered(name) for name in TOKENS)
    assert again.settle_if_due()
    paid = {slip.agent: slip.reward / 1e6 for slip in ledger.payslips("run", 1)}
    assert {name: told[0][f"guerdon/reward/{name}"] for name in paid} == paid
    assert len(paid) == len(TOKENS)
    assert ledger.verify().holds
    again.spool.close()
