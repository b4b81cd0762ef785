"""The arrays in a reply: read without copying, and never believed."""

import struct

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st

from guerdon.flower.payload import mean, read_arrays, view
from guerdon.run.reports import Template
from tests.flower.grids import record

ASKED = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "n": np.asarray(3, np.int64), "h": np.zeros(2, np.float16)}


def test_arrays_are_seen_without_copying() -> None:
    sent = record(**ASKED)
    seen = view(Template.of(read_arrays(sent)), sent)
    for name, array in ASKED.items():
        assert np.array_equal(seen[name], array)
        assert seen[name].dtype == array.dtype
        assert not seen[name].flags.owndata
        assert not seen[name].flags.writeable


def test_the_models_order_counts_and_floating_point_numbers_are_compared() -> None:
    template = Template.of(read_arrays(record(**ASKED)))
    swapped = record(**dict(reversed(ASKED.items())))
    assert list(view(template, swapped)) == ["w", "n", "h"]
    assert template.compared == ["w", "h"]


def test_fortran_order_is_understood() -> None:
    turned = np.asfortranarray(ASKED["w"])
    sent = record(w=turned)
    assert np.array_equal(view(Template.of(read_arrays(record(w=ASKED["w"]))), sent)["w"], ASKED["w"])


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + data


def lying(data: bytes, stype: str = "numpy.ndarray") -> ArrayRecord:
    """Return an array that claims to be what was asked for, and is something else."""
    return ArrayRecord({"w": Array(dtype="float32", shape=(3, 4), stype=stype, data=data)})


PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (lying(npy(PLAIN, bytes(47))), "holds 47 bytes, not those of float32"),
        (lying(npy(PLAIN, bytes(49))), "holds 49 bytes, not those of float32"),
        (lying(npy(PLAIN.replace("(3, 4)", "(10**9, 10**9)"))), "cannot be read"),
        (lying(npy(PLAIN.replace("(3, 4)", "(1000000000, 1000000000)"))), r"float32\[1000000000, 1000000000\]"),
        (lying(npy(PLAIN.replace("(3, 4)", "(-3, -4)"), bytes(48))), r"float32\[-3, -4\]"),
        (lying(npy(PLAIN.replace("<f4", "|O"), bytes(96))), "is object"),
        (lying(npy(PLAIN.replace("'<f4'", "[('a', '<f4')]"), bytes(48))), "where float32"),
        (lying(npy(PLAIN, bytes(48), version=b"\x09\x00")), "cannot be read"),
        (lying(b""), "cannot be read"),
        (lying(b"\x93NUMPY"), "cannot be read"),
        (lying(npy("x" * 20_000)), "cannot be read"),
        (lying(npy("[" * 5_000)), "cannot be read"),
        (lying(npy(PLAIN, bytes(48)), stype="torch.pickle"), "serialised as 'torch.pickle'"),
    ],
)
def test_lies_are_found_before_a_number_is_read(sent: ArrayRecord, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        view(Template.of(read_arrays(record(w=ASKED["w"]))), sent)


@given(st.binary(max_size=200), st.integers(0, 130), st.booleans())
def test_no_bytes_make_it_stumble(noise: bytes, where: int, keep: bool) -> None:
    """Whatever is sent is either exactly what was asked for, or a ValueError."""
    good = record(w=ASKED["w"])["w"].data
    data = good[:where] + noise + good[where + len(noise) * keep :]
    try:
        seen = view(Template.of(read_arrays(record(w=ASKED["w"]))), lying(data))["w"]
    except ValueError:
        return
    assert seen.shape == (3, 4)
    assert seen.dtype == np.float32


def test_version_two_headers_are_read() -> None:
    assert read_arrays(lying(npy(PLAIN, bytes(48), version=b"\x02\x00")))["w"].shape == (3, 4)


def test_means_are_added_up_in_double_precision() -> None:
    rows = [
        {"w": np.asarray([2.0**24], np.float32)},
        {"w": np.asarray([1.0], np.float32)},
        {"w": np.asarray([1.0], np.float32)},
    ]
    assert mean(rows, "w")[0] == (2**24 + 2) / 3
