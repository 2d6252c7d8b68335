"""The request tables of `requests/`: natsctl's engine answers as nats-server does, and as it was recorded to answer."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from natsctl.testing.process import ServerProcess
from tests.jetstream.requests import api, consumer_config, stream_config, upstream_config
from tests.support.differential import AccountServer
from tests.support.recorded import assert_as_recorded, record, unknown
from tests.support.request_differential import Case, answers, differences, differing, notes

TABLE: Final = "requests"
GROUPS: Final[dict[str, Callable[[], Iterable[Case]]]] = {
    f"{module.__name__.rpartition('.')[2]}.{group.__name__}": group
    for module in (consumer_config, stream_config, upstream_config)
    for group in module.GROUPS
}
NAMES: Final = [*GROUPS, *api.EXCHANGES]
KNOWN: Final = {**stream_config.KNOWN, **upstream_config.KNOWN}


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("name", GROUPS)
def test_the_engine_answers_as_recorded(name: str, every: int) -> None:
    assert_as_recorded(TABLE, name, lambda: notes(answers(GROUPS[name](), every)), every)


@pytest.mark.parametrize("name", api.EXCHANGES)
def test_the_engine_sends_as_recorded(name: str) -> None:
    assert_as_recorded(TABLE, name, api.EXCHANGES[name].heard)


def test_all_requests_are_recorded() -> None:
    assert not unknown(TABLE, NAMES)


@pytest.mark.reference
@pytest.mark.parametrize("name", GROUPS)
def test_both_answer_the_same(name: str, accounts: AccountServer) -> None:
    cases = list(GROUPS[name]())
    answered = answers(cases)
    found = differences(accounts.url(), cases, answered, KNOWN)
    assert not found, "\n".join([f"{len(found)} differences", *found])
    record(TABLE, {name: lambda: notes(answered)}, NAMES)


@pytest.mark.reference
@pytest.mark.parametrize("name", api.EXCHANGES)
def test_both_send_the_same(name: str, accounts: AccountServer, tmp_path: Path) -> None:
    exchange = api.EXCHANGES[name]
    if exchange.config or exchange.listens:
        config = tmp_path / "server.conf"
        config.write_text(exchange.config)
        with ServerProcess(tmp_path / "server", "reference", "-c", str(config)) as process:
            found = differing(exchange, process.url, process.await_removals)
    else:
        found = differing(exchange, accounts.url(), accounts.process.await_removals)
    assert not found, "\n".join(found)
    record(TABLE, {name: exchange.heard}, NAMES)
