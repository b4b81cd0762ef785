"""Gradients from files: understood, or refused with a reason."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from guerdon.cli.files import read_array, read_gradients

GRADIENTS = np.arange(6.0).reshape(3, 2)
BY_NAME = {"ann": GRADIENTS[0], "bob": GRADIENTS[1], "cy": GRADIENTS[2]}


def write(path: Path, arrays: Any) -> Path:
    if path.suffix == ".npy":
        np.save(path, arrays)
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    return path


@pytest.mark.parametrize(
    ("name", "arrays", "agents"),
    [
        ("g.npy", GRADIENTS, ["0", "1", "2"]),
        ("g.npz", {"gradients": GRADIENTS}, ["0", "1", "2"]),
        ("g.safetensors", {"gradients": GRADIENTS}, ["0", "1", "2"]),
        ("g.npz", BY_NAME, ["ann", "bob", "cy"]),
        ("g.safetensors", BY_NAME, ["ann", "bob", "cy"]),
        ("G.NPZ", {name: array.reshape(1, 2) for name, array in BY_NAME.items()}, ["ann", "bob", "cy"]),
    ],
)
def test_all_layouts_give_the_same_gradients(tmp_path: Path, name: str, arrays: Any, agents: list[str]) -> None:
    path = write(tmp_path / name.lower(), arrays).rename(tmp_path / name)
    names, gradients = read_gradients(path)
    assert names == agents
    np.testing.assert_array_equal(gradients, GRADIENTS)


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("g.npy", np.ones(3), r"or one array per agent, got one of shape \(3,\)"),
        ("g.npz", {"a": np.ones(2), "b": np.ones(3)}, r"must hold arrays of one shape.*got a \(2,\), b \(3,\)"),
        ("g.npz", {}, "must hold arrays of one shape, one per agent, got none"),
        (
            "g.npy",
            np.ones((0, 5)),
            r"g.npy` must hold an array \(agents, dim\) of at least one agent and one number, or",
        ),
        (
            "g.npy",
            np.ones((3, 0)),
            r"one number, or one array per agent, got one of shape \(3, 0\)",
        ),
        ("g.npz", {"a": np.ones(0), "b": np.ones(0)}, r"at least one number per agent, got arrays of shape \(0,\)"),
        ("g.npy", np.array([{"a": 1}], dtype=object), "cannot be read as .npy: Object arrays cannot be loaded"),
    ],
)
def test_contents_that_make_no_sense(tmp_path: Path, name: str, arrays: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_gradients(write(tmp_path / name, arrays))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("content", [b"nonsense", b"PK\x03\x04broken", b"\x93NUMPY\x01"])
def test_broken_files(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"broken{suffix}` cannot be read as {suffix}.* It must hold arrays as .*save"):
        read_gradients(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_an_empty_file_is_called_empty(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"e{suffix}").touch()
    with pytest.raises(ValueError, match=f"e{suffix}` must hold arrays, one row .*, got an empty file: save it again"):
        read_gradients(tmp_path / f"e{suffix}")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_a_truncated_file(tmp_path: Path, suffix: str) -> None:
    whole = write(tmp_path / f"g{suffix}", GRADIENTS if suffix == ".npy" else BY_NAME)
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ValueError, match=f"cannot be read as {suffix}"):
        read_gradients(whole)


def test_an_archive_with_something_else_in_it(tmp_path: Path) -> None:
    path = write(tmp_path / "g.npz", BY_NAME)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(ValueError, match="must hold arrays only, got something else under 'readme'"):
        read_gradients(path)


def test_an_array_larger_than_any_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "g.npy", GRADIENTS)
    path.write_bytes(path.read_bytes().replace(b"(3, 2), }            ", b"(1000000, 1000000), }"))
    with pytest.raises(ValueError, match=r"cannot be read as \.npy"):
        read_gradients(path)


def test_a_prediction_is_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((2, 3)))
    assert read_array(tmp_path / "one.npy").shape == (6,)
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    with pytest.raises(ValueError, match=r"two.npz` must hold one array, got 2"):
        read_array(tmp_path / "two.npz")


def test_no_file_and_unknown_kinds(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.npy` is not a file"):
        read_gradients(tmp_path / "gone.npy")
    with pytest.raises(ValueError, match=r"must be a \.npy, \.npz or \.safetensors file"):
        read_gradients(tmp_path / "gradients.csv")
