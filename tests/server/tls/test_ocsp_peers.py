"""Checks of other sides at their responders: what waits, what does not, and what bounds it."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from msgspec.structs import replace

from natsctl.broker.auth.static_auth import User
from natsctl.server.instance import ServerInstance
from natsctl.server.ocsp import responses, service
from natsctl.server.ocsp.peers import PeerVerifier
from natsctl.server.ocsp.responses import (
    InvalidCertificateError,
    InvalidResponseError,
    OcspResponse,
    ResponderError,
    demands_staple,
    fingerprint,
    parse_response,
    request_for,
    responders_of,
)
from natsctl.server.ocsp.service import ResponseCache
from natsctl.server.options import OcspCacheOptions, OcspOptions, OcspPeerOptions, WebSocketOptions
from natsctl.server.process.reload import Reloader
from natsctl.server.resources import SystemClock
from natsctl.server.tls.certificates import public_key_sha256
from tests.server.websocket.upgrades import request
from tests.support.ocsp import Answers, Certified, Pki, World
from tests.support.tls_clients import HELLO, PATIENCE_S, ListLog, answered, serving, talking, until

PEER = OcspPeerOptions(verify=True)


@pytest.fixture(autouse=True)
def usual(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test with a responder that holds everything for good, and a folder without a cache."""
    monkeypatch.chdir(tmp_path)
    made.responder.answers = Answers(dict.fromkeys(made.answers.statuses, "good"))
    made.responder.asked.clear()


@pytest.fixture(params=["ssl", "pyOpenSSL"])
def library(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"ocsp": OcspOptions("always")} if request.param == "pyOpenSSL" else {}


@asynccontextmanager
async def checking(
    made: World, log: ListLog | None = None, peer: OcspPeerOptions = PEER, **more: Any
) -> AsyncIterator[ServerInstance]:
    tls = made.pki.tls(made.server, verify=True, ocsp_peer=peer, **more.pop("tls", {}))
    async with serving(log, **{"tls": tls, **more}) as server:
        yield server


async def visited(made: World, server: ServerInstance, client: Certified, **more: Any) -> str:
    try:
        return (await answered(server.port, made.pki.client(client, **more), alerts=True)).decode().strip() or "closed"
    except ssl.SSLError as error:
        return str(error.reason)


@pytest.mark.parametrize("tls12", [False, True])
async def test_a_revoked_client_is_refused_by_either_library(tls12: bool, library: dict[str, Any], made: World) -> None:
    revoked = made.issue("revoked")
    made.says("revoked", revoked)
    async with checking(made, **library) as server:
        assert await visited(made, server, made.client, tls12=tls12) == "PONG"
        assert await visited(made, server, revoked, tls12=tls12) in (
            ["SSLV3_ALERT_BAD_CERTIFICATE"] if tls12 else ["closed"]
        )
        assert not server.broker.closed[-1].in_msgs


async def test_nothing_that_a_client_sends_counts_before_it_was_checked(library: dict[str, Any], made: World) -> None:
    """The client's first words leave with the end of its handshake; the responder is slow to answer."""
    async with checking(made, **library, peer=replace(PEER, timeout_s=20.0)) as server, talking(server.port) as talk:
        await talk.line()
        made.answers.hang = True
        await talk.secure(made.pki.client(made.client))
        talk.writer.write(HELLO * 2000)
        await until(lambda: any(serial == made.client.serial for _, serial in made.responder.asked))
        session = next(iter(server.broker.sessions.values()))
        assert not session.login.connected
        async with talking(server.port) as other:  # others are served meanwhile
            assert (await other.line()).startswith(b"INFO")
        made.answers.hang = False
        made.responder._going.set()
        made.responder._going = type(made.responder._going)()


async def test_a_responder_that_hangs_delays_nobody_whose_status_is_known(made: World) -> None:
    known = made.issue("known")
    async with checking(made, peer=replace(PEER, timeout_s=PATIENCE_S)) as server:
        assert await visited(made, server, known) == "PONG"
        made.answers.hang = True
        crowd = [asyncio.ensure_future(visited(made, server, made.client)) for _ in range(20)]
        await until(lambda: made.client.serial in {serial for _, serial in made.responder.asked})
        assert await visited(made, server, known) == "PONG"
        assert not [visit for visit in crowd if visit.done()]
    await asyncio.gather(*crowd)


async def test_more_requests_than_places_wait_within_their_time(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_REQUESTS", 2)
    made.answers.hang = True
    responders = responses.Responders()
    wanted = request_for(made.client.certificate, made.pki.intermediate.certificate)
    url = f"{made.responder.url}/{quote_plus(base64.b64encode(wanted))}"

    async def ask(timeout_s: float) -> bytes:
        return await responders.ask("GET", url, b"", timeout_s, lambda status: "")

    first = [asyncio.ensure_future(ask(PATIENCE_S)) for _ in range(2)]
    await until(lambda: len(made.responder.asked) == 2)
    outcomes = await asyncio.gather(*[ask(0.2) for _ in range(4)], return_exceptions=True)
    assert all("context deadline exceeded" in str(outcome) for outcome in outcomes)
    assert len(made.responder.asked) == 2
    first.pop(0).cancel()
    first.append(asyncio.ensure_future(ask(PATIENCE_S)))
    await until(lambda: len(made.responder.asked) == 3)
    for each in first:
        each.cancel()


@pytest.mark.parametrize("answers", [{"endless": True}, {"body": b"0" * 70_000}, {"body": b"\xff" * 60_000}])
async def test_long_and_endless_answers_are_cut(answers: dict[str, Any], made: World) -> None:
    log = ListLog()
    async with checking(made, log) as server:
        made.responder.answers = Answers(made.answers.statuses, **answers)
        assert await visited(made, server, made.client) == "closed"
    assert log.said("the answer is longer than 65536 bytes") or log.said("Could not parse OCSP CA response")


async def test_a_client_that_leaves_during_its_check_leaves_nothing(made: World) -> None:
    log = ListLog()
    async with checking(made, log, replace(PEER, timeout_s=0.5)) as server:
        made.answers.hang = True
        async with talking(server.port) as talk:
            await talk.line()
            await talk.secure(made.pki.client(made.client))
            await until(lambda: made.responder.asked)
        await until(lambda: not server.broker.sessions)
    assert not log.said("internal fault")


async def test_a_server_stops_while_clients_are_checked(made: World) -> None:
    log = ListLog()
    async with checking(made, log, replace(PEER, timeout_s=20)) as server:
        made.answers.hang = True
        visit = asyncio.ensure_future(visited(made, server, made.client))
        await until(lambda: made.responder.asked)
    assert await visit == "closed"
    assert not log.said("internal fault")


async def test_users_and_pins_come_from_a_certificate_that_was_checked(library: dict[str, Any], made: World) -> None:
    name = "CN=client,O=Acme,C=DE"
    pins = frozenset({public_key_sha256(made.client.der)})
    for pinned, expected in ((pins, "PONG"), (frozenset({"0" * 64}), "closed")):
        more = {"tls": {"verify_and_map": True, "pinned_certs": pinned}, "users": (User(name, ""),)}
        async with checking(made, **library, **more) as server:
            assert await visited(made, server, made.client) == expected


async def test_websocket_clients_are_checked(library: dict[str, Any], made: World) -> None:
    log = ListLog()
    tls = made.pki.tls(made.server, verify=True, ocsp_peer=PEER)
    websocket = WebSocketOptions(port=-1, host="127.0.0.1", tls=tls)
    revoked = made.issue("revoked too")
    made.says("revoked", revoked)
    async with serving(log, websocket=websocket, **library) as server:
        port = server.port_of("websocket")
        async with talking(port, made.pki.client(made.client)) as talk:
            talk.writer.write(request())
            assert (await talk.line()).startswith(b"HTTP/1.1 101")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with talking(port, made.pki.client(revoked, tls12=True)):
                pass
        assert log.said("websocket: http: TLS handshake error from 127.0.0.1:")
        assert log.said(": client not OCSP valid")


async def test_responses_are_asked_for_once_while_they_are_current(made: World) -> None:
    async with checking(made) as server:
        for _ in range(3):
            assert await visited(made, server, made.client) == "PONG"
        assert len(made.responder.asked) == 2
        ocsp = server.ocsp
        assert (ocsp.cache.stats.hits, ocsp.cache.stats.misses) == (4, 2)
        clock = ocsp.peers._clock
        now_ns = clock.now_ns()
        ocsp.peers._clock = Later(now_ns + 2 * 3_600_000_000_000)
        made.answers.this_update = timedelta(hours=2)
        made.answers.next_update = timedelta(hours=3)
        assert await visited(made, server, made.client) == "PONG"
        assert len(made.responder.asked) == 4
        assert ocsp.cache.counts() == {"good": 2, "revoked": 0, "unknown": 0}


class Later(SystemClock):
    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns


async def test_a_reload_switches_checks_on_with_a_cache_of_its_own(made: World, tmp_path: Path) -> None:
    log = ListLog()
    made.says("revoked")
    tls = made.pki.tls(made.server, verify=True)
    async with serving(log, tls=tls, config_file=tmp_path / "nats.conf") as server:
        assert await visited(made, server, made.client) == "PONG"
        before = server.options
        after = replace(before, tls=replace(tls, ocsp_peer=PEER), ocsp_cache=OcspCacheOptions(folder="other"))
        Reloader(server, lambda: after, before).reload()
        assert log.said("Reloaded OCSP peer cache") and log.said("OCSP peer cache online, type [local]")
        assert await visited(made, server, made.client) == "closed"
        off = replace(after, tls=tls)
        Reloader(server, lambda: off, after).reload()
        assert await visited(made, server, made.client) == "PONG"
    assert "revoked" in (tmp_path / "other" / "cache.json").read_text()


# Parts


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": {"resp": "b25l"}}', b"\xff" * 100])
def test_a_damaged_cache_file_is_logged_and_replaced(content: bytes, made: World, tmp_path: Path) -> None:
    log = ListLog()
    (tmp_path / "_rc_").mkdir()
    (tmp_path / "_rc_" / "cache.json").write_bytes(content)
    cache = ResponseCache(OcspCacheOptions(), log, SystemClock())
    cache.load()
    assert log.said("Unable to load OCSP peer cache: ")
    cache.save()
    assert json.loads((tmp_path / "_rc_" / "cache.json").read_text()) == {}


def test_a_bomb_in_the_cache_file_does_not_go_off(made: World, tmp_path: Path) -> None:
    log = ListLog()
    bomb = service._compressed(bytes(50_000_000))
    item = {"cached_at": "2026-01-01T00:00:00Z", "resp_status": "good", "resp_expires": "2026-01-01T00:00:00Z"}
    encoded = base64.b64encode(bomb).decode()
    (tmp_path / "_rc_").mkdir()
    (tmp_path / "_rc_" / "cache.json").write_text(json.dumps({"a": {**item, "resp": encoded}}))
    ResponseCache(OcspCacheOptions(), log, SystemClock()).load()
    assert log.said("a response is longer than 65536 bytes")


def test_a_full_cache_forgets_the_oldest_and_a_folder_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_CACHED", 2)
    log = ListLog()
    cache = ResponseCache(OcspCacheOptions(folder=str(tmp_path / "no" / "such")), log, SystemClock())
    for key in ("a", "b", "c"):
        cache.put(key, OcspResponse(b"1", "good", 0, None, True), "CN=x")
    assert cache.get("a") is None and cache.get("b") == b"1" and cache.counts()["good"] == 2
    cache.save()
    assert log.said("Unable to save OCSP peer cache: ")
    assert cache.unsaved() is not None


def test_a_response_that_was_cut_or_changed_anywhere_is_refused(made: World) -> None:
    client, issuer = made.client.certificate, made.pki.intermediate.certificate
    for signer in ("authority", "delegate"):
        made.answers.signer = signer
        der = made.responder.response(made.client.serial)
        assert parse_response(der, client, issuer).status == "good"
        for at in range(0, len(der), 7):
            with pytest.raises(InvalidResponseError):
                parse_response(der[:at], client, issuer)
            changed = bytearray(der)
            changed[at] ^= 0x40
            try:
                found = parse_response(bytes(changed), client, issuer)
            except InvalidResponseError:
                continue
            assert found[1:] == parse_response(der, client, issuer)[1:]  # a byte that nothing is read from


def test_a_certificate_whose_extensions_cannot_be_read_does_not_pass_for_one_without_a_responder(
    made: World,
) -> None:
    oid = bytes.fromhex("06082b06010505070101")  # authority information access
    at = made.client.der.index(oid) + len(oid)
    broken = bytearray(made.client.der)
    broken[at + 4] = 0x01  # no name any more
    from cryptography import x509

    with pytest.raises(InvalidCertificateError):
        responders_of(x509.load_der_x509_certificate(bytes(broken)))
    assert responders_of(made.client.certificate) == [made.responder.url]


def test_only_the_extension_itself_demands_a_staple(made: World) -> None:
    assert not demands_staple(made.client.der)
    assert demands_staple(made.issue("demanding", must_staple=True).der)
    assert not demands_staple(b"\x00" + bytes.fromhex("06082b06010505070118"))


class Silent:
    """Responders that nobody reaches, and events that nobody hears."""

    async def ask(self, *_: object) -> bytes:
        raise ResponderError("no answer")

    def peer_rejected(self, *_: object) -> None:
        pass

    link_invalid = peer_rejected


@pytest.mark.parametrize(("status", "refused"), [("revoked", True), ("good", False)])
async def test_an_unreadable_revocation_refuses_a_client_while_no_responder_answers(
    tmp_path: Path, status: Any, refused: bool
) -> None:
    cache = ResponseCache(OcspCacheOptions(preserve_revoked=True), ListLog(), SystemClock())
    pki, silent = Pki(tmp_path, "http://127.0.0.1:1"), Silent()
    client = pki.issue("client", pki.root)
    cache.put(fingerprint(client.der), OcspResponse(b"no DER", status, 0, None, True), "client")
    verifier: Any = PeerVerifier(ListLog(), SystemClock(), lambda: cache, lambda: silent, silent)
    options = OcspPeerOptions(verify=True, allow_when_unreachable=True)
    for _ in range(2):  # the entry is preserved
        assert bool(await verifier.verdict([client.der, pki.root.der], options, "Client")) is refused
