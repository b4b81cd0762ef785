"""Signatures: of the head by the operator, of each submission by its agent; and what agents' gradients hash to."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from sqlalchemy import text

from guerdon.ledger import Ledger, Receipt, RefusedError, gradient_hash, sign_submission, submission
from guerdon.ledger.proof.signing import create_key, load_key
from guerdon.ledger.proof.submissions import is_signed_by, read_public_key
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, Played, play
from tests.support.libraries import needs_torch

KEYS: dict[str, Any] = {
    "ed25519": Ed25519PrivateKey.generate(),
    "p384": ec.generate_private_key(ec.SECP384R1()),
}


def der(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def signed(one: Played, run: str, keys: dict[str, Any], ledger: str) -> list[bytes | None]:
    return [
        None if gradient is None or name not in keys
        else sign_submission(keys[name], submission(ledger, run, one.number, one.request, gradient))
        for name, gradient in zip(NAMES, one.gradients, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_signed_submissions_are_checked_and_kept(ledger: Ledger, kind: str) -> None:
    keys = {"north": KEYS[kind]}
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    first, *later = play(3)
    ledger.record_round("run", *first.arguments(), gradients=first.gradients)
    ledger.enrol({"north": der(KEYS[kind])})  # he begins to sign
    for one in later:
        ledger.record_round(
            "run", *one.arguments(), gradients=one.gradients, signatures=signed(one, "run", keys, ledger.name)
        )
    assert ledger.verify().holds
    with ledger._database.reading() as connection:
        assert connection.execute(text("SELECT COUNT(signature) FROM payments")).scalar() == 2


def test_a_signature_for_another_round_gradient_or_run_is_refused(ledger: Ledger) -> None:
    key = KEYS["p384"]
    ledger.enrol({"north": der(key)})
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    first, second = play(2)
    for wrong in (
        signed(second, "run", {"north": key}, ledger.name),
        signed(first, "other", {"north": key}, ledger.name),
        signed(first, "run", {"north": key}, "another ledger"),
        signed(first._replace(request=9), "run", {"north": key}, ledger.name),
        signed(first, "run", {"north": ec.generate_private_key(ec.SECP384R1())}, ledger.name),
    ):
        with pytest.raises(RefusedError, match="the signature of agent 'north' is not its own"):
            ledger.record_round("run", *first.arguments(), gradients=first.gradients, signatures=wrong)
    assert ledger.rounds("run") == []


def test_a_key_is_never_replaced(ledger: Ledger) -> None:
    ledger.enrol({"north": der(KEYS["p384"])})
    assert ledger.enrol({"north": der(KEYS["p384"])}).new is False
    assert ledger.enrol({"north": None}).new is False
    ledger.start_run("run", ["late"], RULE, AT_ONCE)
    assert ledger.enrol({"late": der(KEYS["ed25519"])}).new  # he had none yet
    with pytest.raises(RefusedError, match="keys are never replaced"):
        ledger.enrol({"north": der(KEYS["ed25519"])})
    with pytest.raises(RefusedError, match="Ed25519 or on an elliptic curve"):
        ledger.enrol({"south": der(rsa.generate_private_key(65537, 2048))})
    with pytest.raises(RefusedError, match="must be given as DER"):
        ledger.enrol({"south": b"nonsense"})


def test_a_receipt_survives_its_file() -> None:
    receipt = Receipt("a" * 32, 7, bytes(32), b"k" * 32, b"s" * 64)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert not receipt.is_genuine()
    for bad in ("", "{}", "[]", receipt.to_json().replace('"record": 7', '"record": "x"'), '{"hash": 3}'):
        with pytest.raises(RefusedError, match="a receipt must be a file"):
            Receipt.from_json(bad)


def test_heads_are_signed_in_the_chain_and_outside_it(ledger: Ledger, tmp_path: Path) -> None:
    public = create_key(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        create_key(tmp_path / "key.pem")
    receipt = ledger.sign(load_key(tmp_path / "key.pem"))
    assert receipt.public_key == public
    assert receipt.is_genuine()
    ledger.enrol({"north": None})
    assert ledger.verify(receipt).holds
    assert not ledger.verify(receipt._replace(hash=bytes(32))).holds
    with pytest.raises(TypeError, match="`key` must be an Ed25519 private key"):
        ledger.sign(KEYS["p384"])


def test_bad_key_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    with pytest.raises(RefusedError, match=r"bad.pem must hold an unencrypted Ed25519 private key"):
        load_key(tmp_path / "bad.pem")
    other = KEYS["p384"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "other.pem").write_bytes(other)
    with pytest.raises(RefusedError, match=r"other.pem must hold an Ed25519 private key, got ECPrivateKey"):
        load_key(tmp_path / "other.pem")
    with pytest.raises(RefusedError, match=r"bad.pem: must hold a public key"):
        read_public_key(tmp_path / "bad.pem")
    (tmp_path / "good.pem").write_bytes(
        KEYS["p384"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    assert read_public_key(tmp_path / "good.pem") == der(KEYS["p384"])


def test_a_gradient_has_one_hash_whatever_holds_it() -> None:
    layers = [np.arange(6.0).reshape(2, 3), np.ones(4, dtype=np.float32)]
    expected = gradient_hash(layers)
    assert gradient_hash([np.asfortranarray(layers[0]), layers[1].astype(">f4")]) == expected
    others = [[layers[0].reshape(3, 2), layers[1]], layers[::-1], layers[:1], [layers[0] + 1e-15 * 4, layers[1]],
              [layers[0], layers[1].astype(np.float64)]]  # fmt: skip
    assert len({expected, *(gradient_hash(other) for other in others)}) == 1 + len(others)


@needs_torch
def test_also_a_tensor() -> None:
    layers = [np.arange(6.0).reshape(2, 3), np.ones(4, dtype=np.float32)]
    assert gradient_hash([importlib.import_module("torch").tensor(layer) for layer in layers]) == gradient_hash(layers)


def test_only_the_owner_of_a_key_signs() -> None:
    for key in KEYS.values():
        message = submission("a ledger", "run", 1, 8, bytes(32))
        assert is_signed_by(der(key), message, sign_submission(key, message))
        assert not is_signed_by(der(key), message + b"x", sign_submission(key, message))
        assert not is_signed_by(der(key), message, b"nonsense")
