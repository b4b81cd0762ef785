"""Rows that two members share are found at enrolment, and nobody learns a row: a keyed digest of every row.

The auditor has a key k. Equal rows have equal digests, at any member; without k nobody can compute one. Digests are
made together, blindly (an oblivious pseudo-random function, on the curve P-256):

    member     P = point of the row;  r fresh and random for each row;  sends r·P: to the auditor a random point
    auditor    answers k·(r·P)
    member     divides by r: k·P;  digest = first 16 bytes of SHA-256(row | k·P)

Points travel as their x-coordinate, which P and −P share. With r fresh for each row the auditor learns nothing but how
many rows there are. One r for all rows would save 30 % of the time, and show the auditor which rows of a member are
equal.

Who does what: the auditor publishes `DigestKey.control`. The member sends its digests, in the order of its rows, to the
server, which compares them (`shared_rows`, `distinct_rows`) and records their Merkle root. Nothing here ties a digest
to a committed row: so in a look the auditor computes the digests of the opened rows again (`check_digests`). A member
that had sent false digests for a share of its rows is found there like any other cheat.

What digests give away: to the server which rows are equal, within a member and between members, and nothing else. Who
has digests *and* can ask the auditor can test guesses of rows, one a question: a row of few values can be found so.
Therefore members do not see each other's digests, the server asks no questions, and the auditor answers each member
only as many points as it has rows (`most`). The auditor has the key: if it also gets the digests, it can test as many
guesses as it likes. It needs only those of opened rows.

What they do not find: a row that was changed. Numbers are compared in float32, so that copies of one table in other
types are found; a member that alters the fourth digit of each row is not found. Rows of few values are shared by
chance: weigh what `shared_rows` counts against `distinct_rows` of each member.
"""

import hashlib
import math
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, count
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from guerdon.arrays import is_array, to_numpy
from guerdon.looks.encoding import encode_row

# Bytes of a digest. Among 10 million rows two different ones agree with chance 1.5e-25; 8 bytes would be 3e-6.
DIGEST = 16
POINT = 32
CONTROL = b"guerdon digest control 1"  # no row: `encode_row` begins with a tag of its own

_CURVE, _DH = ec.SECP256R1(), ec.ECDH()
_FLOAT = struct.Struct("<f")
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256: points there are


class DigestError(ValueError):
    """A digest is not that of its row, or an answer not that of the auditor's key. `row` is the index, or None."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class DigestKey:
    """The auditor's key: it answers blinded points, and computes the digests of rows that it was shown.

    >>> key = DigestKey.new()
    >>> Bern, Basel = Blinding([(63, 1.5), (41, 2.5)]), Blinding([(41.0, 2.5)])
    >>> found = [one.digests(key.answer(one.points, most=9), key.control) for one in (Bern, Basel)]
    >>> found[0][1] == found[1][0] == key.digest((41, np.float32(2.5)))
    True
    """

    def __init__(self, secret: bytes) -> None:
        if type(secret) is not bytes or len(secret) != POINT or not 0 < int.from_bytes(secret) < _ORDER:
            raise ValueError("`secret` must be the bytes of a key: use `DigestKey.new`")
        self.secret, self._key = secret, _scalar(int.from_bytes(secret))
        self.control = _finished(CONTROL, self._key.exchange(_DH, _point(CONTROL)))

    @classmethod
    def new(cls) -> "DigestKey":
        """Return a new key: one for a federation, or members' digests cannot be compared."""
        return cls(_random().to_bytes(POINT))

    def answer(self, points: bytes, most: int) -> bytes:
        """Return the answer to a member's blinded points, or raise where there are more than it may still ask.

        `most` is the number of rows that the member committed to, and one for each `Blinding`, less what was answered.
        """
        if len(points) > POINT * most:
            raise ValueError(
                f"`points` must be at most {most}, the rows that are left to answer, got {len(points) // POINT}"
            )
        return b"".join([self._key.exchange(_DH, point) for point in _lifted("points", points)])

    def digest(self, row: Any) -> bytes:
        """Return the digest of a row that the auditor was shown."""
        form = comparable(row)
        return _finished(form, self._key.exchange(_DH, _point(form)))


class Blinding:
    """A member's rows, blinded: send `points`, give the answer to `digests`. Take ten thousand rows at a time.

    One of the points is a control, at a place that the auditor does not know. An auditor that answers a member with
    another key, so that a copy of its rows stays unseen, is found by it.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        self._forms = [comparable(row) for row in rows]
        self._control = secrets.randbelow(len(self._forms) + 1)
        self._forms.insert(self._control, CONTROL)
        self._blinds = [_random() for _ in self._forms]
        pairs = zip(self._blinds, self._forms, strict=True)
        self.points = b"".join([_scalar(blind).exchange(_DH, _point(form)) for blind, form in pairs])

    def digests(self, answer: bytes, control: bytes) -> list[bytes]:
        """Return the digests of the rows, in their order, or raise where the answer is not by the auditor's key.

        `control` is what the auditor has published for all members.
        """
        if len(answer) != len(self.points):
            raise DigestError(f"`answer` must have {len(self.points)} bytes, as the points, got {len(answer)}")
        found: list[bytes] = []
        for point, blind, form in zip(_lifted("answer", answer), self._blinds, self._forms, strict=True):
            found.append(_finished(form, _scalar(pow(blind, -1, _ORDER)).exchange(_DH, point)))
        if found.pop(self._control) != control:
            raise DigestError("`answer` must be by the auditor's key, got one by another: it would hide shared rows")
        return found


class Shared(NamedTuple):
    """How many different rows two members share."""

    member: str
    other: str
    rows: int


def shared_rows(digests: Mapping[str, Sequence[bytes]]) -> list[Shared]:
    """Return the pairs of members that share rows, those that share most first.

    >>> shared_rows({"Bern": [b"a" * 16, b"b" * 16], "Basel": [b"b" * 16] * 2, "Chur": [b"c" * 16]})
    [Shared(member='Bern', other='Basel', rows=1)]
    """
    known = {member: _unique(values) for member, values in digests.items()}
    pairs = [
        Shared(a, b, len(np.intersect1d(known[a], known[b], assume_unique=True))) for a, b in combinations(known, 2)
    ]
    return sorted((pair for pair in pairs if pair.rows), key=lambda pair: -pair.rows)


def distinct_rows(digests: Sequence[bytes]) -> int:
    """Return how many different rows a member has: at least the `distinct` of its commitment, if that is honest.

    Fewer, where rows differ only beyond float32: see `comparable`.
    """
    return len(_unique(digests))


def check_digests(key: DigestKey, rows: Mapping[int, Any], digests: Mapping[int, bytes]) -> None:
    """Raise `DigestError` unless each opened row has the digest that its member had sent for it. Both are by index."""
    for index, row in rows.items():
        if digests.get(index) != key.digest(row):
            raise DigestError(f"row {index} has another digest than its member sent: shared rows were hidden", index)


def comparable(row: Any) -> bytes:
    """Return the form of a row in which rows of two members are compared: by value, whatever the types of numbers.

    Whole numbers, True and False are compared as float64, all others as float32: a table in float64, its copy in
    float32 and the same read from a text are equal. 1, 1.0 and True are equal, so are 0.0 and -0.0, and all NaN.
    Arrays have their shape, text and keys are compared as they are. Members must use the same form for a row.

    >>> comparable({"age": 63, "dose": 0.1}) == comparable({"dose": np.float32(0.1), "age": 63.0})
    True
    """
    return encode_row(_by_value(row))


def _by_value(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):  # NumPy's float64 too
        return _number(float(value))
    if isinstance(value, (tuple, list)):
        return tuple([_by_value(item) for item in value])  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Mapping):
        return {key: _by_value(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if not is_array(value) or isinstance(value, (np.str_, np.bytes_)):
        return value
    array = to_numpy(value)
    if array.dtype.kind not in "biuf":
        return value  # `encode_row` refuses it
    return _number(float(array)) if array.ndim == 0 else _numbers(array)


def _number(value: float) -> float:
    if math.isnan(value):
        return math.nan
    if not value.is_integer() and not math.isinf(value):
        value = _FLOAT.unpack(_FLOAT.pack(value))[0]  # below 2**53, as it is not whole: float32 can hold it
    return value + 0.0  # makes 0.0 of -0.0


def _numbers(array: Any) -> Any:
    """Return `_number` of each number of an array."""
    compared: Any = array.astype(np.float64)
    is_whole = compared == np.rint(compared)
    with np.errstate(over="ignore", under="ignore"):
        rounded = compared.astype(np.float32).astype(np.float64)
    compared[~is_whole] = rounded[~is_whole]
    compared[np.isnan(compared)] = math.nan
    return compared + 0.0


def _point(form: bytes) -> ec.EllipticCurvePublicKey:
    """Return the point of a row: the first hash that is the x of one; half of them are. Nobody knows its logarithm."""
    start = hashlib.sha256(form).digest()
    for attempt in count():
        x = hashlib.sha256(b"guerdon row point 1" + start + attempt.to_bytes(4)).digest()
        try:
            return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\2" + x)
        except ValueError:
            continue
    raise AssertionError  # `count` has no end


def _lifted(name: str, points: bytes) -> list[ec.EllipticCurvePublicKey]:
    """Return points of the given x, each with either sign, or raise. The curve has no small subgroups to fear."""
    if len(points) % POINT:
        raise DigestError(f"`{name}` must have {POINT} bytes for each point, got {len(points)}")
    found: list[ec.EllipticCurvePublicKey] = []
    for at in range(0, len(points), POINT):
        try:
            found.append(ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\2" + points[at : at + POINT]))
        except ValueError as error:
            raise DigestError(f"`{name}` must be points of the curve P-256: number {at // POINT} is none") from error
    return found


def _finished(form: bytes, point: bytes) -> bytes:
    return hashlib.sha256(b"guerdon row digest 1" + hashlib.sha256(form).digest() + point).digest()[:DIGEST]


def _scalar(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, _CURVE)


def _random() -> int:
    return secrets.randbelow(_ORDER - 1) + 1


def _unique(digests: Sequence[bytes]) -> Any:
    """Return the different digests of a member, in order, as numbers of two parts."""
    whole = b"".join(digests)
    if len(whole) != DIGEST * len(digests):
        raise ValueError(f"`digests` must have {DIGEST} bytes each")
    return np.unique(np.frombuffer(whole, dtype=f"V{DIGEST}"))
