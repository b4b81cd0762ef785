"""A verdict is what its auditor signed, and does not contradict itself."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon.looks.isolation import Ran
from guerdon.looks.outcomes import Outcome
from guerdon.looks.recompute import Comparison
from guerdon.looks.verdict import SignedVerdict, Verdict, judged, read, sign, signed_from, verdict_hash

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
AUDITOR = KEY.public_key().public_bytes_raw().hex()
PASSED = Verdict(
    "books", "heart", 7, 3, "Saint-Étienne", "ab" * 32, "cd" * 32, Outcome.PASSED,
    {"w": 1.25e-7, "n": 0.0}, {"w": 3e-6}, code="ef" * 32, network="network namespace",
)  # fmt: skip
FAILED = replace(PASSED, outcome=Outcome.FAILED, errors={"w": 0.3, "b": None}, reasons=("tensor 'w' differs",))
UNANSWERED = replace(PASSED, outcome=Outcome.UNANSWERED, errors={}, tolerance={}, code="", network="")
UNREPEATABLE = replace(UNANSWERED, outcome=Outcome.UNREPEATABLE, reasons=("the work could not be done: …",))
APPEALED = replace(PASSED, replaces="12" * 32)


@pytest.mark.parametrize("verdict", [PASSED, FAILED, UNANSWERED, UNREPEATABLE, APPEALED])
def test_what_is_signed_can_be_read(verdict: Verdict) -> None:
    assert read(sign(verdict, KEY).to_json(), AUDITOR) == verdict


def test_what_is_signed_is_pinned() -> None:
    """Verdicts are checked years later: these bytes may not change under the same first line."""
    assert UNANSWERED.message == (
        b'guerdon verdict 1\n{"answer":"","code":"","errors":{},"ledger":"books","look":3,'
        b'"member":"Saint-\xc3\x89tienne","network":"","outcome":"unanswered","reasons":[],"replaces":"","report":"'
        + b"cd"
        * 32
        + b'",'
        b'"root":"' + b"ab" * 32 + b'","round":7,"run":"heart","task":"","tolerance":{}}'
    )


def test_an_appeal_names_the_bytes_that_were_signed() -> None:
    text = sign(FAILED, KEY).to_json()
    assert verdict_hash(text) == hashlib.sha256(FAILED.message).hexdigest()
    assert signed_from(text) == sign(FAILED, KEY)


def changed(name: str, value: Any) -> str:
    kept = json.loads(sign(FAILED, KEY).to_json())
    kept["verdict"][name] = value
    return json.dumps(kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", "other"),
        ("task", "12" * 32),
        ("answer", "34" * 32),
        ("run", "lung"),
        ("round", 8),
        ("look", 4),
        ("member", "Basel"),
        ("root", "ac" * 32),
        ("report", "ce" * 32),
        ("outcome", "could not be repeated"),
        ("errors", {"w": 0.2, "b": None}),
        ("tolerance", {"w": 4e-6}),
        ("reasons", ["tensor 'w' differs", "and more"]),
        ("code", "00" * 32),
        ("network", "blocked sockets"),
        ("replaces", "12" * 32),
    ],
)
def test_a_verdict_that_was_changed_is_refused(name: str, value: Any) -> None:
    assert set(json.loads(sign(FAILED, KEY).to_json())["verdict"]) == set(FAILED.to_dict())
    with pytest.raises(ValueError, match="a verdict must be as its auditor signed it: this one was changed afterwards"):
        read(changed(name, value), AUDITOR)


def test_every_field_is_signed() -> None:
    names = {mark.args[1][place][0] for mark in _marks() for place in range(len(mark.args[1]))}
    assert names == set(FAILED.to_dict())


def _marks() -> list[Any]:
    marks: list[Any] = getattr(test_a_verdict_that_was_changed_is_refused, "pytestmark")  # noqa: B009 - it has no type
    return marks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        changed("round", "7"),
        changed("round", True),
        changed("look", 0),
        changed("errors", [1]),
        changed("errors", {"w": "0.3"}),
        changed("tolerance", {"w": None}),
        changed("root", "AB" * 32),
        changed("report", ""),
        changed("code", "ef"),
        changed("outcome", "auditor silent"),
        changed("outcome", "fine"),
        changed("reasons", [1]),
        changed("member", None),
        changed("extra", 1),
        sign(FAILED, KEY).to_json().replace('"signature": "', '"signature": "x'),
        sign(FAILED, KEY).to_json().replace("0.3", "NaN"),
    ],
)
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a verdict must be a file that `guerdon look` wrote"):
        read(text, AUDITOR)


def test_only_the_auditor_of_the_terms_counts() -> None:
    other = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
    with pytest.raises(ValueError, match="a verdict must be signed by the auditor of the terms"):
        read(sign(PASSED, other).to_json(), AUDITOR)
    forged = SignedVerdict(PASSED, bytes.fromhex(AUDITOR), other.sign(PASSED.message))
    with pytest.raises(ValueError, match="changed afterwards"):
        read(forged.to_json(), AUDITOR)
    for key in ("", "00" * 31):
        text = SignedVerdict(PASSED, bytes.fromhex(key), b"").to_json()
        with pytest.raises(ValueError, match="changed afterwards"):
            read(text, key)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"errors": {"w": 4e-6}}, "`outcome` must not be 'passed' in a verdict with tensor 'w' beyond the tolerance"),
        ({"errors": {"w": None}}, "with tensor 'w' beyond the tolerance"),
        ({"errors": {"w": 1e-9, "n": 1.0}}, "with tensor 'n' beyond the tolerance"),
        ({"errors": {}}, "`outcome` must not be 'passed' in a verdict with no errors"),
        ({"reasons": ("but",)}, "`outcome` must not be 'passed' in a verdict with reasons"),
        ({"outcome": Outcome.FAILED}, "`reasons` must say why a look failed, got none"),
        ({"outcome": Outcome.UNREPEATABLE}, "`reasons` must say why a look could not be repeated, got none"),
        ({"outcome": Outcome.SILENT}, "`outcome` must be one that is signed, got"),
        ({"errors": {"w": float("inf")}}, "`errors` must have a number of at least 0 for each tensor, got inf for 'w'"),
        ({"tolerance": {"w": -1.0}}, "`tolerance` must have a number of at least 0"),
        ({"round": -1}, "`round` must be the number of a round, got -1"),
    ],
)
def test_a_verdict_must_not_contradict_itself(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(PASSED, **change)


# From a run to an outcome.

DONE = Ran("done", ({"w": np.ones(1)},), "", "network namespace", "ef" * 32, ("work.py",))
BROKEN = Ran("crashed", (), "ValueError in work.py, line 3", "network namespace", "ef" * 32, ("work.py",))
SAME = Comparison({"w": 0.0}, {"w": 0.1}, ())
OTHER = Comparison({"w": 0.5}, {"w": 0.1}, ("tensor 'w' differs",))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((DONE, SAME), (Outcome.PASSED, ())),
        ((DONE, SAME, BROKEN, OTHER), (Outcome.PASSED, ())),
        ((DONE, OTHER), (Outcome.FAILED, ("tensor 'w' differs",))),
        ((DONE, OTHER, DONE, SAME), (Outcome.FAILED, ("tensor 'w' differs",))),
        ((DONE, OTHER, DONE, OTHER), (Outcome.UNREPEATABLE, ("control rows: tensor 'w' differs",))),
        ((BROKEN, None), (Outcome.UNREPEATABLE, ("the work could not be done: ValueError in work.py, line 3",))),
        (
            (BROKEN, None, BROKEN),
            (Outcome.UNREPEATABLE, ("the work could not be done: ValueError in work.py, line 3",)),
        ),
    ],
)
def test_the_outcome_follows_from_the_run_and_the_control(given: Any, expected: Any) -> None:
    assert judged(*given) == expected


def test_work_that_fails_on_the_members_rows_only_has_failed() -> None:
    """Else rows that take for ever would never be looked at."""
    outcome, (reason,) = judged(BROKEN, None, DONE)
    assert outcome is Outcome.FAILED
    assert reason.startswith("on the member's rows the work could not be done, on control rows it could: ValueError in")
