"""The names of the package: all are there, and a member that commits needs neither cryptography nor polars."""

import subprocess
import sys

from guerdon import looks


def test_every_name_is_there() -> None:
    assert looks.__all__ == sorted(looks.__all__)
    assert sorted(name for names in looks._NAMES.values() for name in names) == looks.__all__
    assert all(getattr(looks, name).__name__ == name for name in looks.__all__)


def test_what_a_member_needs_to_commit_and_to_work() -> None:
    script = """
import sys
for name in "cryptography", "polars", "sqlalchemy", "flwr": sys.modules[name] = None
from guerdon.looks import Commitment, check, member_seeds, named_rows, new_number, read_rows
mine = Commitment.of([1, 2, 3], ledger="heart", run="run 1", member="Bern", secret=bytes(32))
seeds = member_seeds(new_number(), ledger="heart", run="run 1", round=0, member="Bern")
named = named_rows(seeds.rows, 3, [], 3)
print(sorted(check(mine.committed(), mine.open(named), named).values()))
from guerdon.looks import seal
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout == "[1, 2, 3]\n"
    assert "`guerdon.looks` needs cryptography" in result.stderr
    assert "pip install 'guerdon[ledger]'" in result.stderr
