"""Staples: what clients see, which certificates get them, renewal, and the end of a server that is revoked."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from msgspec.structs import replace
from OpenSSL import SSL

from natsctl.server.instance import ServerInstance
from natsctl.server.ocsp.responses import Responders
from natsctl.server.ocsp.staples import MIN_INTERVAL_S, USUAL_INTERVAL_S, Staple, StapleError, StapleSources, staple_of
from natsctl.server.options import OcspOptions, ServerOptions, WebSocketOptions
from natsctl.server.process.reload import Reloader
from natsctl.server.tls.contexts import TlsFileError
from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer
from tests.support.ocsp import ENCODINGS, Answers, Certified, World, world
from tests.support.tls_clients import PATIENCE_S, ListLog, answered, more, serving, talking, until

KINDS = pytest.mark.parametrize("kind", ["natsctl", "reference"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("ocsp"), must_staple=True) as found:
        yield found


@pytest.fixture(autouse=True)
def usual(made: World) -> None:
    """Begin each test with a responder that holds everything for good."""
    made.responder.answers = Answers(dict.fromkeys(made.answers.statuses, "good"))
    made.responder.asked.clear()


def staple_seen(port: int, found: World, *, greeted: bool = True, client: Certified | None = None) -> str:
    """Return the status that a handshake staples, "none" without one; blocking."""
    seen: list[bytes] = []

    def note(connection: SSL.Connection, staple: bytes, data: object) -> bool:
        seen.append(staple)
        return True

    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.load_verify_locations(str(found.pki.root.files.cert))
    context.set_verify(SSL.VERIFY_PEER, lambda connection, certificate, code, depth, ok: bool(ok))
    context.set_ocsp_client_callback(note)
    if client is not None:
        context.use_certificate_chain_file(str(client.files.cert))
        context.use_privatekey_file(str(client.files.key))
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw:
        while greeted and not more(raw).endswith(b"\n"):
            pass
        raw.settimeout(None)
        connection = SSL.Connection(context, raw)
        connection.request_ocsp()
        connection.set_connect_state()
        try:
            connection.do_handshake()
        except SSL.Error:
            return "no handshake"
    return ocsp.load_der_ocsp_response(seen[0]).certificate_status.name.lower() if seen[0] else "none"


def conf(found: World, text: str, server: Certified | None = None) -> str:
    files = (server or found.server).files
    return (
        f'tls {{ cert_file: "{files.cert}", key_file: "{files.key}", ca_file: "{found.pki.root.files.cert}", '
        f"timeout: 5 }}\n{text}\n"
    )


def process(folder: Path, kind: Kind, text: str) -> ConfServer:
    return ConfServer(folder, kind, text, "-js", "-sd", str(folder))


MODES = {
    "": {"good": "good", "revoked": "revoked", "down": "refused"},
    "ocsp: true": {"good": "good", "revoked": "revoked", "down": "refused"},
    "ocsp: false": {"good": "none", "revoked": "none", "down": "none"},
    "ocsp { mode: auto }": {"good": "good", "revoked": "revoked", "unknown": "unknown"},
    "ocsp { mode: always }": {"good": "good", "revoked": "refused", "unknown": "refused"},
    "ocsp { mode: must }": {"good": "good", "revoked": "refused"},
    "ocsp { mode: never }": {"good": "none"},
}


@KINDS
@pytest.mark.parametrize("mode", MODES)
async def test_a_certificate_that_demands_a_staple_gets_one_or_none_starts(
    mode: str, kind: Kind, made: World, tmp_path: Path
) -> None:
    for status, expected in MODES[mode].items():
        made.answers.http_status = 500 if status == "down" else 200
        made.says("good" if status == "down" else status, made.server)
        seen, log = await started_and_seen(process(tmp_path / status, kind, conf(made, mode)), made)
        assert seen == expected, status
        if expected == "refused":
            text = "found existing OCSP status" if status != "down" else "bad OCSP status update"
            assert f"{text} for certificate at '{made.server.files.cert}': " in log
        if kind == "natsctl":  # the reference has no log yet
            assert ("has MustStaple but OCSP is disabled" in log) == (expected == "none")


async def started_and_seen(server: ConfServer, found: World) -> tuple[str, str]:
    """Return the staple of a server, "refused" for one that did not start, and its log."""
    try:
        with server:
            return await asyncio.to_thread(staple_seen, server.port, found), server.log()
    except RuntimeError:
        return "refused", server.log()
    finally:
        server.kill()


@KINDS
async def test_a_certificate_that_demands_none_gets_one_in_the_mode_always_alone(
    kind: Kind, made: World, tmp_path: Path
) -> None:
    plain = made.issue("plain")
    for number, (mode, expected) in enumerate({"always": "good", "must": "none", "auto": "none"}.items()):
        text = conf(made, f"ocsp {{ mode: {mode} }}", plain)
        assert (await started_and_seen(process(tmp_path / str(number), kind, text), made))[0] == expected


@KINDS
@pytest.mark.parametrize("mode", ["must", "auto"])
async def test_a_server_that_is_revoked_while_it_runs_ends_or_staples_it(
    mode: str, kind: Kind, made: World, tmp_path: Path
) -> None:
    made.answers.next_update = timedelta(seconds=2)
    with process(tmp_path, kind, conf(made, f"ocsp {{ mode: {mode} }}")) as server:
        assert await asyncio.to_thread(staple_seen, server.port, made) == "good"
        made.answers.next_update = timedelta(hours=1)
        made.says("revoked", made.server)
        made.answers.encoding = "no status" if mode == "must" else ""
        await until(
            lambda: f"Received OCSP status for Client certificate '{made.server.files.cert}': revoked" in server.log()
        )
        if mode == "auto":
            assert await asyncio.to_thread(staple_seen, server.port, made) == "revoked"
        else:
            await until(lambda: "Server Exiting.." in server.log())


@KINDS
async def test_a_staple_of_an_earlier_run_is_used_without_a_request(kind: Kind, made: World, tmp_path: Path) -> None:
    for _ in range(2):
        with process(tmp_path, kind, conf(made, "ocsp: true")) as server:
            assert await asyncio.to_thread(staple_seen, server.port, made) == "good"
        assert "Found OCSP status for Client certificate at" in server.log()
    assert made.responder.asked == [("POST", made.server.serial)]
    assert re.fullmatch("[0-9a-f]{64}", next((tmp_path / "ocsp").iterdir()).name)


@KINDS
async def test_responders_in_the_configuration_come_first_and_get_is_a_way_out(
    kind: Kind, made: World, tmp_path: Path
) -> None:
    elsewhere = made.issue("elsewhere", must_staple=True, urls=["http://127.0.0.1:9"])
    made.answers.no_post = True
    text = conf(made, f'ocsp {{ mode: must, url: "{made.responder.url}/" }}', elsewhere)
    assert (await started_and_seen(process(tmp_path, kind, text), made))[0] == "good"
    assert made.responder.asked == [("POST", elsewhere.serial), ("GET", elsewhere.serial)]


class Clock:
    def __init__(self) -> None:
        self.offset_ns = 0

    def now_ns(self) -> int:
        return time.time_ns() + self.offset_ns

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.offset_ns

    def turn(self, seconds: float) -> None:
        self.offset_ns += round(seconds * 1e9)


class Schedule:
    """A staple whose waits turn the clock, after a test has seen how long they are."""

    def __init__(self, found: World, folder: Path | None, mode: str = "auto") -> None:
        self.clock, self.log, self.waits = Clock(), ListLog(), list[float]()
        self.at_wait: Callable[[int], None] = lambda number: None
        sources = StapleSources(self.log, self.clock, Responders(), folder, (), self._sleep)
        files, pki = found.server.files, found.pki
        staple = staple_of(sources, OcspOptions(mode), "Client", files.cert, pki.root.files.cert)
        self.staple: Staple = staple

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, -1))
        self.clock.turn(seconds)
        self.at_wait(len(self.waits))


async def test_a_staple_is_renewed_at_half_of_its_time_and_sooner_after_failures(made: World, tmp_path: Path) -> None:
    schedule = Schedule(made, tmp_path)

    def change(wait: int) -> None:
        made.answers.this_update = made.answers.next_update = timedelta(seconds=schedule.clock.offset_ns / 1e9)
        made.answers.next_update += timedelta(hours=1)
        made.answers.http_status = 500 if wait in (2, 3) else 200
        if wait == 5:
            made.answers.next_update = None
        elif wait == 6:
            made.says("revoked", made.server)

    schedule.at_wait = change
    await schedule.staple.check()
    assert await schedule.staple.keep_renewed() is False
    assert schedule.waits[:3] == [1800, 1800, 900]
    assert schedule.waits[3] == 450 and schedule.waits[5] == USUAL_INTERVAL_S
    assert schedule.log.said("checking again in 30m") or schedule.log.said("checking again in 29m")
    assert schedule.log.said("Bad OCSP status update for certificate") and schedule.log.said("trying again in")
    assert schedule.log.said(f"Received OCSP status for Client certificate '{made.server.files.cert}': revoked")


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_revocation_in_an_encoding_that_only_go_reads_replaces_a_good_staple(
    encoding: str, made: World, tmp_path: Path
) -> None:
    made.answers.encoding = encoding
    schedule = Schedule(made, tmp_path, "always")

    def revoke(wait: int) -> None:
        assert wait == 1, "the old staple is kept"
        made.says("revoked", made.server)

    schedule.at_wait = revoke
    await schedule.staple.check()
    assert await schedule.staple.keep_renewed() is True
    assert schedule.log.said("Received OCSP status for Client certificate") and schedule.log.said(": revoked")
    assert schedule.staple._response is not None and schedule.staple._response.status == "revoked"


async def test_without_a_responder_the_old_staple_serves_until_it_ends(made: World, tmp_path: Path) -> None:
    schedule = Schedule(made, tmp_path)
    await schedule.staple.check()
    made.answers.http_status = 500
    schedule.clock.turn(3000)
    assert schedule.staple.in_force is not None
    schedule.clock.turn(700)
    assert schedule.staple.in_force is None and schedule.staple.next_run_s() == MIN_INTERVAL_S
    with pytest.raises(StapleError, match="exhausted ocsp servers: non-ok http status on POST request"):
        await schedule.staple.found()


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"signer": "delegate without permission"}, "signer missing authorization by CA to act as OCSP signer"),
        ({"signer": "stranger"}, "bad OCSP signature"),
        ({"other_serial": True}, "no response matching the supplied certificate"),
        ({"body": b"x" * 300_000}, "the answer is longer than 65536 bytes"),
        ({"this_update": timedelta(hours=1), "next_update": timedelta(hours=2)}, "invalid ocsp ThisUpdate, is future"),
        ({"this_update": timedelta(hours=-2), "next_update": timedelta(hours=-1)}, "invalid ocsp NextUpdate, is past"),
        ({"body": bytes.fromhex("30030a0106")}, "ocsp: error from server: unauthorized"),
    ],
)
async def test_a_response_that_does_not_count_is_no_staple(
    answers: dict[str, Any], text: str, made: World, tmp_path: Path
) -> None:
    schedule = Schedule(made, tmp_path)
    made.responder.answers = Answers(made.answers.statuses, **answers)
    with pytest.raises(StapleError, match=text):
        await schedule.staple.check()
    assert schedule.staple.in_force is None


async def test_whoever_asks_at_the_same_time_shares_a_request_and_a_bad_file_is_replaced(
    made: World, tmp_path: Path
) -> None:
    schedule = Schedule(made, tmp_path)
    (tmp_path / "ocsp" / schedule.staple.key).write_bytes(b"no response")
    await asyncio.gather(*[schedule.staple.found() for _ in range(20)])
    assert made.responder.asked == [("POST", made.server.serial)]
    assert Schedule(made, tmp_path).staple.in_force is not None


async def test_a_folder_that_cannot_be_written_is_an_error(made: World, tmp_path: Path) -> None:
    schedule = Schedule(made, tmp_path)
    (tmp_path / "ocsp").rmdir()
    (tmp_path / "ocsp").write_text("")
    with pytest.raises(StapleError, match="failed to write ocsp status"):
        await schedule.staple.check()
    with pytest.raises(StapleError, match="OCSP storage directory is not a directory"):
        Schedule(made, tmp_path)


def test_the_issuer_is_found_or_named_as_missing(made: World, tmp_path: Path) -> None:
    sources = StapleSources(ListLog(), Clock(), Responders(), None, ())
    alone = made.issue("alone", must_staple=True)
    alone.files.cert.write_bytes(alone.certificate.public_bytes(Encoding.PEM))
    authorities = made.pki.intermediate.files.cert
    assert staple_of(sources, None, "Client", alone.files.cert, authorities) is not None
    for wrong in (made.pki.stranger.files.cert, None):
        with pytest.raises(StapleError, match="no issuers found"):
            staple_of(sources, None, "Client", alone.files.cert, wrong)
    no_authority = made.pki.issue("none", made.client, must_staple=True)
    with pytest.raises(StapleError, match=r"CN=client.*invalid ca basic constraints: is not ca"):
        staple_of(sources, None, "Client", no_authority.files.cert, None)


# Servers in this process


@asynccontextmanager
async def stapling(made: World, log: ListLog | None = None, **more: Any) -> AsyncIterator[ServerInstance]:
    async with serving(log, **{"tls": made.pki.tls(made.server), **more}) as server:
        yield server


async def test_a_handshake_fetches_a_staple_that_has_ended(made: World) -> None:
    log = ListLog()
    async with stapling(made, log) as server:
        staple = server.ocsp._all()[0]
        staple._response = staple._response._replace(next_update_ns=time.time_ns() - 1)
        made.responder.asked.clear()
        assert await asyncio.to_thread(staple_seen, server.port, made) == "good"
        assert made.responder.asked == [("POST", made.server.serial)]
        made.answers.http_status = 500
        staple._response = None
        assert await asyncio.to_thread(staple_seen, server.port, made) == "no handshake"
        await until(lambda: log.said("TLS handshake error: exhausted ocsp servers"))


async def test_a_responder_that_hangs_delays_only_the_handshake_that_needs_it(made: World) -> None:
    log = ListLog()
    plain = made.issue("for websocket")
    websocket = WebSocketOptions(port=-1, host="127.0.0.1", tls=made.pki.tls(plain))
    async with stapling(made, log, tls=made.pki.tls(made.server, timeout_s=1.0), websocket=websocket) as server:
        made.answers.hang = True
        server.ocsp._all()[0]._response = None
        async with talking(server.port) as held:
            await held.line()
            handshake = asyncio.ensure_future(held.secure(made.pki.client()))
            async with talking(server.port_of("websocket"), made.pki.client()) as other:
                other.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await other.line()).startswith(b"HTTP/1.1 400")
            with pytest.raises((ConnectionError, OSError)):
                await handshake
        assert log.said("TLS handshake timeout")


async def test_websocket_clients_see_the_staple_of_their_listener(made: World) -> None:
    websocket = WebSocketOptions(port=-1, host="127.0.0.1", tls=made.pki.tls(made.server))
    async with stapling(made, tls=None, websocket=websocket) as server:
        port = server.port_of("websocket")
        assert await asyncio.to_thread(staple_seen, port, made, greeted=False) == "good"


async def test_each_certificate_of_a_listener_has_its_own_staple(made: World) -> None:
    other = made.issue("other", must_staple=True)
    pairs = tuple((one.files.cert, one.files.key) for one in (made.server, other))
    tls = replace(made.pki.tls(made.server), cert_file=None, key_file=None, certs=pairs)
    async with stapling(made, tls=tls) as server:
        assert {serial for _, serial in made.responder.asked} == {made.server.serial, other.serial}
        assert await asyncio.to_thread(staple_seen, server.port, made) == "good"


async def test_a_curve_that_cannot_be_required_is_refused_and_one_that_can_is_required(made: World) -> None:
    # Older releases of Python, such as 3.11.2, can require elliptic curves only, with or without stapling.
    with pytest.raises(TlsFileError, match=r"curve_preferences: X25519 cannot be required with (stapling|this Python)"):
        async with stapling(made, tls=made.pki.tls(made.server, curve_preferences=("X25519",))):
            pass
    async with stapling(made, tls=made.pki.tls(made.server, curve_preferences=("CurveP384",))) as server:
        for curve, served in (("prime256v1", False), ("secp384r1", True)):
            context = made.pki.client()
            context.set_ecdh_curve(curve)
            assert await answered(server.port, context) == (b"PONG\r\n" if served else b"")


# Reloads


async def reloaded(server: ServerInstance, before: ServerOptions, **changes: Any) -> ServerOptions:
    new = replace(before, **changes)
    Reloader(server, lambda: new, before).reload()
    return new


async def test_a_reload_switches_stapling_on_and_off_and_follows_the_certificate(made: World, tmp_path: Path) -> None:
    log = ListLog()
    plain, other = made.issue("plain too"), made.issue("another", must_staple=True)
    options = {"tls": made.pki.tls(plain), "config_file": tmp_path / "nats.conf", "store_dir": tmp_path}
    async with serving(log, **options) as server:
        now = server.options

        async def seen() -> str:
            return await asyncio.to_thread(staple_seen, server.port, made)

        assert await seen() == "none"
        now = await reloaded(server, now, ocsp=OcspOptions("always"))
        assert log.said("Reloaded: OCSP") and await seen() == "good"
        now = await reloaded(server, now, tls=made.pki.tls(other))
        assert await seen() == "good" and made.responder.asked[-1][1] == other.serial
        asked = len(made.responder.asked)
        now = await reloaded(server, now, ocsp=OcspOptions("must"))
        assert await seen() == "good" and len(made.responder.asked) == asked
        now = await reloaded(server, now, ocsp=OcspOptions("never"))
        assert await seen() == "none"
        bad = made.issue("bad")
        made.says("revoked", bad)
        await reloaded(server, now, tls=made.pki.tls(bad), ocsp=OcspOptions("always"))
        await until(lambda: log.said("Can't restart OCSP features: found existing OCSP status for certificate at"))
        assert await seen() == "none"
