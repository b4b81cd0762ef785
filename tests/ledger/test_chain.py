"""Hashes: pinned, so that a ledger written today verifies for ever; and sensitive to everything."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from guerdon.canonical import canonical
from guerdon.ledger.books.chain import PAYMENT, START, digest, link, payment_hashes

WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def payments() -> Any:
    numbers = np.zeros(2, dtype=PAYMENT)
    for index, name in enumerate((PAYMENT.names or ())[:-3]):
        numbers[name] = [index, index + 1]
    numbers["variance"][1] = np.nan
    return numbers


def test_hashes_are_pinned() -> None:
    hashes = payment_hashes(payments(), [b"g" * 32, None], [b"s", None], ["note é", ""])
    assert [value.hex()[:16] for value in hashes] == PINNED_PAYMENTS
    contents = digest({"rounds": [{"number": 1, "metrics": "{}"}]}, hashes, np.array([[1, 2, 3]]))
    assert contents.hex()[:16] == PINNED_DIGEST
    assert link(7, "round", WHEN, "memo", contents, START).hex()[:16] == PINNED_LINK


PINNED_PAYMENTS = ["57328f06277c7b51", "d38a0e2505d244e0"]
PINNED_DIGEST = "fdec711646682424"
PINNED_LINK = "a9c7298aededcd5a"


@pytest.mark.parametrize("name", (PAYMENT.names or ())[:-3])
def test_every_number_of_a_payment_is_hashed(name: str) -> None:
    before = payment_hashes(payments(), [None] * 2, [None] * 2, [""] * 2)
    changed = payments()
    changed[name][0] += 1
    after = payment_hashes(changed, [None] * 2, [None] * 2, [""] * 2)
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)


def test_what_lies_in_which_column_is_hashed() -> None:
    seen = {
        payment_hashes(payments(), [gradient, None], [signature, None], [note, ""])[0]
        for gradient, signature, note in [
            (None, None, ""), (b"", None, ""), (None, b"", ""), (b"a", b"", ""), (b"", b"a", ""), (b"", b"", "a"),
        ]
    }  # fmt: skip
    assert len(seen) == 6


def test_lengths_stand_between_the_parts_of_a_digest() -> None:
    hashes = [bytes([i]) * 32 for i in range(3)]
    entries = np.array([[1, 2, 3], [4, 5, 6]])
    digests = {
        digest({}, hashes, entries), digest({}, hashes[:2], entries), digest({"a": []}, hashes, entries),
        digest({}, hashes[::-1], entries), digest({}, hashes, entries[::-1]), digest({}, hashes, entries[:1]),
        digest({}, [], np.frombuffer(b"".join(hashes), dtype="<i8").reshape(-1, 3)),
    }  # fmt: skip
    assert len(digests) == 7


def test_every_part_of_a_record_is_hashed() -> None:
    record: dict[str, Any] = {"seq": 3, "kind": "round", "created_at": WHEN, "memo": "m", "contents": START, "previous": START}  # noqa: E501  # fmt: skip
    changes: list[dict[str, Any]] = [
        {}, {"seq": 4}, {"kind": "run"}, {"created_at": WHEN.replace(microsecond=7)}, {"memo": ""},
        {"contents": b"x" * 32}, {"previous": b"x" * 32},
    ]  # fmt: skip
    assert len({link(**(record | change)) for change in changes}) == len(changes)


def test_canonical_json_has_one_form() -> None:
    assert canonical({"b": [1.5, True], "a": {"é": None}}) == '{"a":{"é":null},"b":[1.5,true]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))
