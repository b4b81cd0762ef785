"""Receipts: which records one covers, one for every payout, one for every agent; and a ledger that is set back."""

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon.ledger import Ledger, Receipt, RefusedError
from tests.ledger.test_cli import run
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, play, record

KEY = Ed25519PrivateKey.generate()


def pay_two_rounds(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(2))


def test_a_receipt_says_what_it_does_not_cover(ledger: Ledger) -> None:
    pay_two_rounds(ledger)
    receipt = ledger.sign(KEY)
    covered = ledger.verify(receipt).coverage
    assert covered is not None
    assert (covered.last, covered.later, covered.warning) == (receipt.record + 1, {}, None)
    ledger.settle_payout(ledger.payout(), "paid")
    record(ledger, "run", play(4)[2:])
    later = ledger.verify(receipt).coverage
    assert later is not None
    assert later == (covered.last, {"payout": 1, "round": 2, "settle": 1})
    assert str(later.warning).startswith(
        "4 records after it (1 payout, 2 round, 1 settle) could be rewritten or cut off"
    )
    assert ledger.verify().coverage is None


def test_the_signature_itself_cannot_be_cut_off(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        pay_two_rounds(ledger)
    shutil.copy(tmp_path / "guerdon.db", tmp_path / "before.db")
    with Ledger(tmp_path / "guerdon.db") as ledger:
        receipt = ledger.sign(KEY)
    with Ledger(tmp_path / "before.db") as ledger:
        assert ledger.verify().head == receipt.hash
        assert ledger.verify(receipt).problem == (
            f"records: record {receipt.record + 1} must be the signature of the receipt: the ledger was cut off"
        )


def test_every_agent_has_a_receipt_of_its_own(ledger: Ledger) -> None:
    pay_two_rounds(ledger)
    number = ledger.payout()
    own, *others = ledger.sign_payout(number, KEY)
    due = {receipt.share.agent: receipt.share.amount for receipt in others if receipt.share}
    assert own.share is None
    assert due == {line.agent: line.amount for line in ledger.find_payout(number).items}
    ledger.settle_payout(number, "paid", "SEPA 7")
    paid = ledger.sign_payout(number, KEY)
    ledger.settle_payout(number, "bounced", "AC04", agents=[NAMES[0]])
    mixed = ledger.sign_payout(number, KEY)
    assert {one.share.outcome for one in paid if one.share} == {"paid"}
    assert {one.share.agent for one in mixed if one.share and one.share.outcome == "bounced"} == {NAMES[0]}
    for receipt in (own, *others, *paid, *mixed):
        assert Receipt.from_json(receipt.to_json()) == receipt
        assert ledger.verify(receipt).problem is None
    mine = others[0]
    assert mine.share is not None
    for other in ({"amount": mine.share.amount + 1}, {"agent": "x"}, {"number": 99}, {"outcome": "paid"}):
        assert not mine._replace(share=mine.share._replace(**other)).is_genuine()
    with pytest.raises(RefusedError, match="there is no payout 9"):
        ledger.sign_payout(9, KEY)


def test_a_false_share_is_found(ledger: Ledger) -> None:
    """A receipt that the operator signed, of something that the ledger does not say."""
    from guerdon.ledger.proof.signing import signed

    pay_two_rounds(ledger)
    own, one, *_ = ledger.sign_payout(ledger.payout(), KEY)
    assert one.share is not None
    for change, words in (
        ({"amount": 1}, "payout 1 has .* for 'north', open; the receipt says 0.000001 for 'north', open"),
        ({"outcome": "paid"}, "the receipt says .*, paid"),
        ({"number": 9}, "payout 1 has nothing for agent 9"),
    ):
        false = signed(KEY, own.ledger, own.record, own.hash, one.share._replace(**change))
        assert false.is_genuine()
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(ledger.verify(false).problem)


def test_a_payout_cannot_be_made_twice_by_setting_the_ledger_back(tmp_path: Path) -> None:
    path = tmp_path / "guerdon.db"
    with Ledger(path) as ledger:
        pay_two_rounds(ledger)
    key = "operator.pem"
    run("key", key, cwd=tmp_path)
    run("sign", "--key", key, "--out", "head.json", cwd=tmp_path)
    shutil.copy(path, tmp_path / "before.db")
    run("payout", "create", cwd=tmp_path, GUERDON_KEY=key)
    run("payout", "paid", "1", cwd=tmp_path, GUERDON_KEY=key)
    written = sorted(file.name for file in (tmp_path / "receipts").iterdir())
    ends = ("-agent-1", "-agent-2", "-agent-3", "-agent-4", "")
    assert written == [f"payout-1-record-{record}{end}.json" for record in (7, 9) for end in ends]
    shown = run("verify", "--receipt", "receipts/payout-1-record-9-agent-2.json", cwd=tmp_path)
    assert "The receipt covers the records up to " in shown
    assert "could be rewritten" not in shown
    assert "could be rewritten or cut off unseen" in run("verify", "--receipt", "head.json", cwd=tmp_path)
    told = json.loads(run("verify", "--receipt", "head.json", "--json", cwd=tmp_path))
    assert told["coverage"]["later"] == {"payout": 1, "settle": 1, "sign": 2}
    shutil.copy(tmp_path / "before.db", path)
    for file in (f"receipts/{name}" for name in written):
        assert "the ledger was rewritten" in run("verify", "--receipt", file, cwd=tmp_path, code=1)
    for command in (["create"], ["paid", "1"], ["cancel", "1"], ["receipts", "1", "--sign-with", key]):
        refused = " ".join(run("payout", *command, cwd=tmp_path, code=2).split())
        assert "nothing was done: the newest receipt in receipts does not fit the ledger" in refused
    with Ledger(path, read_only=True) as ledger:
        assert ledger.payouts() == []


def test_receipts_can_be_written_again(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        pay_two_rounds(ledger)
        ledger.payout()
    run("key", "operator.pem", cwd=tmp_path)
    run("payout", "receipts", "1", "--sign-with", "operator.pem", "--receipts", "here", cwd=tmp_path)
    assert len(list((tmp_path / "here").iterdir())) == 5
    run("payout", "cancel", "1", cwd=tmp_path)  # without a key nothing is signed
    assert not (tmp_path / "receipts").exists()
