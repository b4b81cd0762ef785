"""A fresh ledger on each database: SQLite always, PostgreSQL where a server is at hand."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon.ledger import Ledger
from tests.support.ledger_scenes import administer, prepare

SERVER = os.environ.get("GUERDON_TEST_POSTGRES")
NO_SERVER = "no PostgreSQL server: set GUERDON_TEST_POSTGRES to its URL, or run tools/with_postgres make test"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.skipif(not SERVER, reason=NO_SERVER))])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a ledger can be kept: nothing is there yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "guerdon.db")
        return
    with new_database() as url:
        yield url


class new_database:  # noqa: N801 - used as a function
    """A PostgreSQL database of one's own, gone afterwards."""

    def __enter__(self) -> str:
        self.name = f"guerdon_{secrets.token_hex(8)}"
        administer(f"CREATE DATABASE {self.name}")
        return str(SERVER).rpartition("/")[0] + f"/{self.name}"

    def __exit__(self, *_: object) -> None:
        administer(f"DROP DATABASE {self.name} WITH (FORCE)")


def create(where: str) -> None:
    Ledger(where).close()


@pytest.fixture
def ledger(where: str) -> Iterator[Ledger]:
    """An empty ledger, open for writing."""
    with Ledger(prepare(where, create)) as opened:
        yield opened
