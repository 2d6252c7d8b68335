"""`account info`, `report` and `tls`: what a user of an account can see."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from natsctl.api.account import AccountInfo, AccountLimits, Tier
from natsctl.cli.account import render_account
from natsctl.cli.main import run as run_main
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told without the user after a second is not what is tested."""
    monkeypatch.setattr("natsctl.client.account.USER_INFO_WAIT_S", 20.0)


def test_info_tells_who_is_connected_where(natsctl: Run) -> None:
    out = natsctl("account", "info").out
    for text in ("Account: $G", "System Account: false", "TLS Connection: no", "API Level: ", "Expires: never"):
        assert text in out
    assert re.search(r"Connected Address: 127\.0\.0\.1:\d+\n", out)


def test_info_as_json_keeps_the_servers_answer_and_adds_user_and_server(natsctl: Run) -> None:
    document = natsctl("a", "info", "-j").json
    assert document["type"] == "io.nats.jetstream.api.v1.account_info_response"
    assert document["limits"]["max_streams"] == -1
    assert document["user"]["account"] == "$G"
    assert document["server"]["address"].startswith("127.0.0.1:")
    assert "nonce" not in document["server"]


def test_without_jetstream_json_still_tells_user_and_server(natsctl: Run) -> None:
    done = natsctl("a", "info", "-j", "--js-domain", "elsewhere")
    assert done.code == 5
    assert set(done.json) == {"user", "server"}
    assert "JetStream is not enabled" in done.error["description"]


def test_connections_of_the_account_are_reported(natsctl: Run) -> None:
    out = natsctl("account", "report", "connections").out
    assert "Connections per server" in out
    assert re.search(r"│ +\d+ │ natsctl", out)
    rows = natsctl("a", "rep", "conns", "--sort", "cid", "--top", "1", "-j").json
    assert len(rows) == 1
    assert rows[0]["kind"] == "Client"
    assert natsctl("a", "rep", "conns", "--subject", "nobody.listens", "-j").json == []
    assert natsctl("a", "rep", "conns", "--state", "strange").code == 2


def test_statistics_are_those_of_the_account(natsctl: Run) -> None:
    (row,) = natsctl("a", "rep", "statistics", "-j").json
    assert row["acc"] == "$G"
    assert row["conns"] >= 1
    assert row["received"]["msgs"] > 0
    out = natsctl("a", "report", "stats").out
    assert "Account Statistics" in out
    assert "1 server" in out


def test_an_unencrypted_connection_has_no_chain(natsctl: Run) -> None:
    done = natsctl("account", "tls", "-j")
    assert (done.code, done.out) == (5, "")
    assert "not encrypted" in done.error["description"]


@pytest.fixture(scope="module", params=["natsctl", "reference"])
def encrypted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The flags for a server with TLS whose certificate lasts a few days."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    issued = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"], days=3)
    flags = ("--tls", "--tlscert", str(issued.cert), "--tlskey", str(issued.key))
    with ServerProcess(folder / "store", request.param, *flags) as process:
        yield ["-s", process.url, "--tlsca", str(authority.cert)]


def test_the_chain_is_shown_and_what_expires_soon_is_warned_of(
    encrypted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main([*encrypted, "account", "tls"]) == 0
    said = capsys.readouterr()
    assert "Subject: CN=server" in said.out
    assert "Names: localhost, 127.0.0.1" in said.out
    assert "BEGIN CERTIFICATE" in said.out
    assert "warning: the certificate of CN=server expires in" in said.err
    assert run_main([*encrypted, "account", "tls", "--no-pem", "--expire-warn", "0", "--ocsp"]) == 0
    said = capsys.readouterr()
    assert "BEGIN CERTIFICATE" not in said.out
    assert "OCSP Responders: none" in said.out
    assert "warning" not in said.err


def test_facts_of_the_encryption_are_part_of_info(encrypted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main([*encrypted, "account", "info"]) == 0
    out = capsys.readouterr().out
    assert "TLS Connection: yes" in out
    assert re.search(r"TLS Version: TLSv1\.\d", out)
    assert "TLS Verified: true" in out
    assert run_main([*encrypted[:2], "account", "info"]) == 5, "the authority that signed is not trusted"
    assert "no TLS" in capsys.readouterr().err


def test_pages_behind_the_first_are_added_up_by_server(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from natsctl.client import account
    from natsctl.client.system.system_account import ServerAnswer

    held = {"N1": list(range(5)), "N2": list(range(3))}

    async def gather(connection: Any, subject: str, body: dict[str, Any]) -> list[ServerAnswer]:
        offset = body.get("offset", 0)
        return [
            ServerAnswer(
                {"server": {"id": name}, "data": {"total": len(all_), "connections": all_[offset : offset + 2]}}
            )
            for name, all_ in held.items()
        ]

    monkeypatch.setattr(account, "gather", gather)

    async def whole() -> dict[str, list[int]]:
        found = {one.id: one for one in await gather(None, "", {})}
        await account._add_pages(None, "", {}, found, "connections")  # type: ignore[arg-type]  # the fake asks nobody
        return {name: one.data["connections"] for name, one in found.items()}

    assert asyncio.run(whole()) == held


SERVER = {"client_id": 5, "version": "2.10.29", "server_id": "N1", "server_name": "n1", "url": "nats://h:4222"}


def test_limits_reservations_and_tiers_are_shown() -> None:
    limits = AccountLimits(max_memory=0, max_storage=2**30, max_streams=5, max_consumers=-1, max_bytes_required=True)
    info = AccountInfo(
        storage=2**20, reserved_storage=2**29, streams=1, limits=limits, domain="hub", tiers={"R1": Tier(streams=1)}
    )
    text = render_account(info, SERVER, {"user": "ann", "account": "A"}).text()
    assert "JetStream Account Information for domain hub" in text
    assert "Storage: 1.0 MiB of 1.0 GiB (512 MiB reserved)" in text
    assert "Streams: 1 of 5" in text
    assert "Stream Requires Max Bytes Set: true" in text
    assert "Tier R1" in text
    assert "User: ann" in text


def test_permissions_are_listed_and_cannot_drive_the_terminal() -> None:
    user = {"permissions": {"publish": {"allow": ["a.>", "b\x1b[2J"]}, "subscribe": {"deny": ["c"]}}}
    text = render_account(None, SERVER, user).text()
    assert "Publish Allow: a.>" in text
    assert "Subscribe Deny: c" in text
    assert "\x1b" not in text
