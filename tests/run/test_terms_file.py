"""Terms in a file: the same names, and what is wrong with one that cannot be read."""

import re
from pathlib import Path

import pytest

from guerdon import AtOnce, Terms, Vesting
from guerdon.run.terms_file import read_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", Terms()),
        ('hold = { kind = "at once" }\nbudget = 10_000\ndeadline = 1.5', Terms(AtOnce(), budget=10_000, deadline=1.5)),
        ('losses = "deposit"\ndeposit = 50\nhold = { kind = "vesting", rounds = 3 }', Terms(Vesting(3), "deposit", 50)),
        ("quorum = 3\nsignatures = true\none_step = true", Terms(quorum=3, signatures=True, one_step=True)),
        ("[cost_factors]\nnorth = 1.5", Terms(cost_factors={"north": 1.5})),
    ],
)
def test_a_file_says_what_terms_say(text: str, terms: Terms, tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text(text)
    assert read_terms(tmp_path / "terms.toml") == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budget =", "terms must be a TOML file, got"),
        (
            "bugdet = 5",
            "must be named hold, losses, deposit, budget, cost_factors, quorum, deadline, ",
        ),
        ("budget = -5", "`budget` must be a finite number of at least 0, got -5"),
        (
            'hold = "vesting"',
            "must be a table with a `kind`, one of 'at once', 'vesting', 'looks', got 'vesting'",
        ),
        ('hold = { kind = "vesting", round = 5 }', "round"),
        ('hold = { kind = "never" }', "`hold` must be a table with a `kind`"),
        ("cost_factors = { north = 0 }", "`cost_factors['north']` must be a finite number above 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_terms(tmp_path / "terms.toml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"terms must be a TOML file, got .*none\.toml"):
        read_terms(tmp_path / "none.toml")
