"""A member's secret is made once, and nobody else can read it."""

from pathlib import Path

import pytest

from guerdon.looks import make_secret, read_secret


def test_a_secret_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "secret")
    assert len(secret) == 32
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert read_secret(tmp_path / "secret") == secret
    assert make_secret(tmp_path / "another") != secret


def test_a_secret_is_never_written_over(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "secret")
    with pytest.raises(FileExistsError):
        make_secret(tmp_path / "secret")
    assert read_secret(tmp_path / "secret") == secret


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    make_secret(tmp_path / "secret")
    (tmp_path / "secret").chmod(mode)
    with pytest.raises(ValueError, match=rf"owner only, got mode {mode:04o}: run `chmod 600 .*commit anew"):
        read_secret(tmp_path / "secret")


@pytest.mark.parametrize("content", ["", "ab" * 32, "guerdon secret 1\nab\n", "guerdon secret 1\n" + "é" * 64])
def test_another_file_is_no_secret(tmp_path: Path, content: str) -> None:
    (tmp_path / "secret").write_text(content)
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(ValueError, match="must be a member's secret, as `guerdon commit` wrote it: restore it"):
        read_secret(tmp_path / "secret")
