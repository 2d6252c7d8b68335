"""Accounts that a reload changes or takes away, on both servers; and what the log says of operators."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support.callouts import until
from tests.support.operators import NO_JETSTREAM_LIMITS, Operator, Visitor, close_reason, login

pytestmark = pytest.mark.both
PATIENT = "authorization { timeout: 30 }"
"""Who comes has two seconds to say CONNECT, unless told otherwise; a busy machine stands still for longer."""


class Place(NamedTuple):
    process: ServerProcess
    operator: Operator
    file: Path
    system: Visitor

    def reload(self) -> None:
        self.file.write_text(self.operator.conf(PATIENT))
        self.signal()

    def signal(self) -> None:
        before = self.process.log().count("Reloaded server configuration")
        os.kill(self.process.pid, signal.SIGHUP)
        until(lambda: self.process.log().count("Reloaded server configuration") > before)


@pytest.fixture(params=["natsctl", "reference"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    operator, file = Operator(), tmp_path / "nats.conf"
    for name in ("STAYS", "GOES", "REVOKES", "NARROWS"):
        operator.account(name)
    operator.account("ENDED", {"exp": 1000})
    file.write_text(operator.conf(PATIENT))
    with ServerProcess(tmp_path / "server", request.param, "-c", str(file)) as process:
        system = login(process.url, operator.user(operator.system))
        yield Place(process, operator, file, system)
        system.close()


def test_reload_changes_and_takes_away_accounts(place: Place) -> None:
    operator, accounts = place.operator, place.operator.accounts
    visitors = {name: login(place.process.url, operator.user(accounts[name])) for name in accounts if name != "ENDED"}
    assert all(visitor.said == [] for visitor in visitors.values())
    accounts["REVOKES"].nats["revocations"] = {"*": int(time.time()) + 3600}
    accounts["NARROWS"].nats["limits"] = {**accounts["NARROWS"].nats["limits"], "subs": 1}
    goes = accounts.pop("GOES")
    place.reload()
    assert visitors["STAYS"].say(b"") == []
    assert visitors["NARROWS"].say(b"SUB a 1\r\nSUB b 2\r\n") == [b"-ERR 'maximum subscriptions exceeded'"]
    assert visitors["REVOKES"].hear(b"PONG") == [b"-ERR 'User Authentication Revoked'"]
    assert visitors["GOES"].hear(b"PONG") == [b"-ERR 'Authorization Violation'"]
    assert close_reason(place.system, visitors["GOES"].cid) == "Authentication Failure"
    assert login(place.process.url, operator.user(goes)).said == [b"-ERR 'Authorization Violation'"]
    assert f'Reloaded: deleting account [removed]: "{goes.public}"' in place.process.log()


def test_streams_of_an_account_are_there_after_a_restart(place: Place) -> None:
    account = place.operator.account("STORES", limits=NO_JETSTREAM_LIMITS)
    user = place.operator.user(account)
    place.reload()
    visitor = login(place.process.url, user)
    assert visitor.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')["config"]["name"] == "S"
    assert visitor.ask("s", b"kept")["seq"] == 1
    place.process.stop()
    place.process.start()
    again = login(place.process.url, user)
    assert again.ask("$JS.API.STREAM.INFO.S")["state"]["messages"] == 1
    assert again.ask("$JS.API.INFO")["streams"] == 1


def test_log_names_operators_and_what_is_wrong_with_accounts(place: Place) -> None:
    lines = [line.split("] ", 2)[-1] for line in place.process.log().splitlines()]
    texts = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [-+]\d{4} .*", "TIME", line) for line in lines]
    start = texts.index("Trusted Operators")
    ended = place.operator.accounts["ENDED"].public
    assert texts[start + 1 : start + 5] == [
        '  System  : ""', '  Operator: "O"', "  Issued  : TIME", "  Expires : Never",
    ]  # fmt: skip
    assert f"Account [{ended}] has validation issues:" in texts and "  - claim is expired" in texts


@pytest.mark.parametrize("kind", ["natsctl", "reference"])
def test_reload_reads_the_folder_of_accounts_again(kind: Kind, tmp_path: Path) -> None:
    operator, file, folder = Operator(), tmp_path / "nats.conf", tmp_path / "jwt"
    account = operator.account("A")
    user = operator.user(account)
    folder.mkdir()
    for name, token in operator.preload().items():
        (folder / f"{name}.jwt").write_text(token)
    file.write_text(
        f"operator: {operator.jwt()}\nsystem_account: {operator.system.public}\n{PATIENT}\n"
        f'resolver {{ type: full, dir: "{folder}" }}\n'
    )
    with ServerProcess(tmp_path / "server", kind, "-c", str(file)) as process:
        visitor = login(process.url, user)
        assert visitor.said == []
        account.nats["revocations"] = {user.key.public: int(time.time()) + 100}
        (folder / f"{account.public}.jwt").write_text(account.jwt(operator.signer))
        late = operator.account("LATE")
        (folder / f"{late.public}.jwt").write_text(late.jwt(operator.signer))
        Place(process, operator, file, visitor).signal()
        if kind == "natsctl":  # the reference reads the folder and leaves accounts that are alive as they were
            assert any(b"-ERR 'User Authentication Revoked'" in line for line in visitor.hear(b"PONG"))
        newcomer = login(process.url, operator.user(late))
        assert newcomer.said == []
