"""Whatever is sent to the service, it answers as its schema says."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from guerdon.ledger import Ledger
from guerdon.serve.access import Allowance
from guerdon.serve.app import create_service_app
from tests.serve.conftest import TOKENS, Served, make_service, serving

UNIMPORTANT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

schema: Any = schemathesis.openapi.from_dict(create_service_app(None).openapi())  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with (
        Ledger(folder / "guerdon.db") as ledger,
        serving(make_service(folder, ledger), allowance=Allowance(rate=1e6, burst=1e6)) as one,
    ):
        yield one


@schema.parametrize()
@settings(max_examples=15, suppress_health_check=UNIMPORTANT)
def test_the_service_keeps_to_its_schema(case: Any, open_run: Served) -> None:
    open_run.service.members.guesses.__init__()  # the fuzzer's wrong tokens are one address's
    headers = {"authorization": f"Bearer {TOKENS['north']}"}
    if case.path == "/v1/ask":
        case.query = {**(case.query or {}), "wait": 0} if isinstance(case.query, dict) else case.query
    # What fits each parameter need not fit the run: a round that is not open, bytes that are no report.
    case.call_and_validate(
        base_url=open_run.address, headers=headers, excluded_checks=[checks.positive_data_acceptance]
    )
