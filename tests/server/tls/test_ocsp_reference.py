"""Checks of clients at OCSP responders, on natsctl's server and on the reference: outcome, log, events and varz."""

import asyncio
import json
import re
import ssl
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from natsctl.testing.process import Kind
from tests.support import patient_client
from tests.support.conf_server import ConfServer
from tests.support.leaf_servers import leaf_port
from tests.support.ocsp import Answers, Certified, World
from tests.support.tls_clients import answered, until

pytestmark = pytest.mark.reference

KINDS: tuple[Kind, Kind] = ("natsctl", "reference")

OPTIONS = {
    "usual": "",
    "warn only": "warn_only: true",
    "unknown is good": "unknown_is_good: true",
    "allow when unreachable": "allow_when_ca_unreachable: true",
    "patient": 'allowed_clockskew: "3h", ca_timeout: 62.5',
    "short lived": "cache_ttl_when_next_update_unset: 60, allowed_clockskew: 0",
}

ANSWERS: dict[str, dict[str, Any]] = {
    "good": {}, "server error": {"http_status": 500}, "garbage": {"body": b"no response"}, "nothing": {"body": b""},
    "try later": {"body": bytes.fromhex("30030a0103")},
    "expired": {"this_update": timedelta(hours=-3), "next_update": timedelta(hours=-2)},
    "expired a moment ago": {"next_update": timedelta(seconds=-10)},
    "of tomorrow": {"this_update": timedelta(hours=2), "next_update": timedelta(hours=3)},
    "of a moment ahead": {"this_update": timedelta(seconds=15)}, "without an end": {"next_update": None},
    "without an end, old": {"next_update": None, "this_update": timedelta(hours=-2)},
    "of a delegate": {"signer": "delegate"},
    "of a delegate without permission": {"signer": "delegate without permission"},
    "of another's delegate": {"signer": "another's delegate"}, "of a stranger": {"signer": "stranger"},
    "about another": {"other_serial": True}, "moved": {"moved": True},
}  # fmt: skip


def block(found: World, options: str, more: str = "") -> str:
    files, pki = found.server.files, found.pki
    patience = "" if "ca_timeout" in options else "ca_timeout: 60, "  # the responder is a thread of the tests
    peer = f"ocsp_peer {{ verify: true, {patience}{options} }}"
    return (
        f'tls {{ cert_file: "{files.cert}", key_file: "{files.key}", ca_file: "{pki.root.files.cert}", timeout: 60, '
        f"verify: true, {peer} }}\ndebug: true\nhttp: 127.0.0.1:-1\n{more}\n"
    )


def started(folder: Path, kind: Kind, text: str) -> ConfServer:
    return ConfServer(folder / kind, kind, text.replace("FOLDER", str(folder / kind)))


async def visited(found: World, server: ConfServer, client: Certified, *, tls12: bool = False) -> str:
    try:
        answer = await answered(server.port, found.pki.client(client, tls12=tls12), alerts=tls12)
    except ssl.SSLError as error:
        return str(error.reason)
    return "served" if answer == b"PONG\r\n" else "refused"


def lines(server: ConfServer, since: int = 0) -> list[str]:
    """Return lines of the log that are about OCSP, without what differs with each connection."""
    found = []
    for line in server.log()[since:].splitlines():
        parts = re.search(r"\[([A-Z]{3})\] (.*)", line)
        if parts is None:  # the second line of an error
            continue
        level, text = parts.groups()
        text = re.sub(r"127\.0\.0\.1:\d+ - \w+:\d+ - ", "", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
        text = re.sub(r"(failed|CA response for \[[^\]]*\]): .*", r"\1", text)
        text = re.sub(r"http://[\d.:]+", "URL", text)
        if re.search("OCSP|hain|CA respon", text) and not re.search("Loading|ratio", text):
            found.append(f"[{level}] {text}")
    return found


@pytest.mark.parametrize("options", OPTIONS)
async def test_clients_are_judged_and_logged_as_by_the_reference(options: str, made: World, tmp_path: Path) -> None:
    answers = {name: one for name, one in ANSWERS.items() if name != "about another"}
    assert await judged(options, answers, made, tmp_path) == {"served", "refused"} or options == "warn only"


@pytest.mark.exact  # nats-server 2.15.1 takes a response about another certificate for one about the client's
@pytest.mark.parametrize("options", ["usual", "warn only"])
async def test_a_response_about_another_certificate_says_nothing(options: str, made: World, tmp_path: Path) -> None:
    outcome = await judged(options, {"about another": ANSWERS["about another"]}, made, tmp_path)
    assert outcome == {"served" if options == "warn only" else "refused"}


async def judged(options: str, wanted: dict[str, dict[str, Any]], made: World, tmp_path: Path) -> set[str]:
    seen = {}
    for kind in KINDS:
        with started(tmp_path, kind, block(made, OPTIONS[options], "ocsp_cache: false")) as server:
            for name, answers in wanted.items():
                for status in ("good", "revoked", "unknown") if name == "good" else ("good",):
                    made.responder.answers = Answers(made.answers.statuses, **answers)
                    made.says(status)
                    since = len(server.log())
                    outcome = await visited(made, server, made.client)
                    refused = await visited(made, server, made.client, tls12=True)
                    await until(lambda: server.log()[since:].count("connection closed") == 2)  # noqa: B023
                    seen[kind, name, status] = outcome, refused, lines(server, since)
    made.responder.answers = Answers(made.answers.statuses)
    made.says("good")
    for kind, name, status in seen:
        assert seen[kind, name, status] == seen["reference", name, status], (name, status)
    return {found[0] for found in seen.values()}


CONF_OF_SYSTEM = "accounts { SYS { users: [{user: s, password: p}] }, A { users: [{user: a, password: p}] } }\n"


async def test_events_varz_and_the_cache_are_those_of_the_reference(made: World, tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {}
    revoked = made.issue("revoked", attributes=[("C", "DE"), ("ST", "Hesse"), ("L", "Kassel"), ("CN", "a, b")])
    made.says("revoked", revoked)
    more = f'{CONF_OF_SYSTEM} system_account: SYS\nocsp_cache {{ local_store: "FOLDER/rc", save_interval: 1 }}'
    for kind in KINDS:
        found = seen[kind] = []
        with started(tmp_path, kind, block(made, "", more)) as server:
            events: list[Any] = []

            async def note(message: Any, events: list[Any] = events) -> None:
                events.append((message.subject.split(".", 3)[3], shown_event(json.loads(message.data))))

            client = await patient_client.connect(
                server.url, user="s", password="p", tls=made.pki.client(made.client), tls_hostname="localhost"
            )
            await client.subscribe("$SYS.SERVER.*.OCSP.>", cb=note)
            await client.flush()
            assert await visited(made, server, revoked) == "refused"
            assert await visited(made, server, revoked) == "refused"
            await until(lambda: len(events) == 4)  # noqa: B023
            found.append(events)
            found.append(await asyncio.to_thread(varz_of, server))
            await client.close()
        found.append(shown_cache(tmp_path / kind))
    assert seen["natsctl"] == seen["reference"]
    assert [subject for subject, _ in seen["natsctl"][0]] == ["OCSP.PEER.LINK.INVALID", "OCSP.PEER.CONN.REJECT"] * 2


def shown_event(event: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the keys of an event with what does not differ between two of them."""
    return [(key, None if key in ("id", "timestamp", "server") else value) for key, value in event.items()]


def varz_of(server: ConfServer) -> list[Any]:
    """Return what /varz says about OCSP, and before which keys."""
    found = server.monitor("varz")
    keys = [*found]
    return [
        (key, found[key], keys[keys.index(key) + 1], json.dumps(found[key]))
        for key in ("tls_ocsp_peer_verify", "ocsp_peer_cache")
    ]


def shown_cache(folder: Path) -> object:
    found = json.loads((folder / "rc" / "cache.json").read_text())
    return sorted((key, [*one], one["subject"], one["resp_status"]) for key, one in found.items())


@pytest.mark.parametrize("writer", KINDS)
async def test_either_server_reads_the_others_cache(writer: Kind, made: World, tmp_path: Path) -> None:
    reader: Kind = "reference" if writer == "natsctl" else "natsctl"
    store = tmp_path / "rc"
    conf = block(made, "", f'ocsp_cache {{ local_store: "{store}", save_interval: 1 }}')
    with started(tmp_path, writer, conf) as server:
        assert await visited(made, server, made.client) == "served"
    asked = len(made.responder.asked)
    with started(tmp_path, reader, conf) as server:
        assert await visited(made, server, made.client) == "served"
        assert len(made.responder.asked) == asked
        assert (await asyncio.to_thread(varz_of, server))[1][1]["cache_hits"] == 2


@pytest.mark.parametrize("preserve", [False, True])
async def test_a_revocation_that_expired_counts_where_it_is_preserved(
    preserve: bool, made: World, tmp_path: Path
) -> None:
    """The responder is gone when the client comes again, and the response in the cache has expired."""
    seen = {}
    client = made.issue(f"once revoked {preserve}")
    for kind in KINDS:
        made.says("revoked", client)
        made.responder.answers = Answers(made.answers.statuses, next_update=timedelta(seconds=1))
        more = f'ocsp_cache {{ local_store: "FOLDER/rc", preserve_revoked: {str(preserve).lower()} }}'
        with started(tmp_path, kind, block(made, "allow_when_ca_unreachable: true, allowed_clockskew: 0", more)) as one:
            outcomes = [await visited(made, one, client)]
            await until(lambda: expired(one, tmp_path / "probe" / kind))  # noqa: B023
            made.responder.answers = Answers(made.answers.statuses, http_status=500)
            outcomes += [await visited(made, one, client), await visited(made, one, client)]
            await until(lambda: one.log().count("connection closed") == 3)
            seen[kind] = outcomes, lines(one)
    made.responder.answers = Answers(made.answers.statuses)
    assert seen["natsctl"] == seen["reference"]
    assert seen["natsctl"][0] == ["refused", "refused", "refused" if preserve else "served"]


def expired(server: ConfServer, mark: Path) -> bool:
    """Return whether two seconds have passed since the first call for this mark."""
    now = time.monotonic()
    if not mark.exists():
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(str(now))
    return now - float(mark.read_text()) > 2


@pytest.mark.parametrize("status", ["good", "revoked", "unknown"])
async def test_an_intermediate_counts_too(status: str, made: World, tmp_path: Path) -> None:
    seen = {}
    made.says(status, made.pki.intermediate)
    for kind in KINDS:
        with started(tmp_path, kind, block(made, "", "ocsp_cache: false")) as server:
            outcome = await visited(made, server, made.client)
            await until(lambda: "connection closed" in server.log())
            seen[kind] = outcome, lines(server)
    made.says("good", made.pki.intermediate)
    assert seen["natsctl"] == seen["reference"]
    assert seen["natsctl"][0] == ("served" if status == "good" else "refused")


@pytest.mark.parametrize("side", ["hub checks", "remote checks"])
@pytest.mark.parametrize("status", ["good", "revoked"])
async def test_leaf_nodes_are_checked_on_both_sides(side: str, status: str, made: World, tmp_path: Path) -> None:
    pki, peer = made.pki, "ocsp_peer { verify: true, ca_timeout: 60 },"
    checked = made.client if side == "hub checks" else made.server
    made.says(status, checked)
    seen = {}
    for kind in KINDS:
        tls = f'cert_file: "%s", key_file: "%s", ca_file: "{pki.root.files.cert}", timeout: 60'
        own = tls % (made.server.files.cert, made.server.files.key)
        other = tls % (made.client.files.cert, made.client.files.key)
        more = "ocsp_cache: false\ndebug: true\nhttp: 127.0.0.1:-1"
        at_hub, at_remote = (peer, "") if side == "hub checks" else ("", peer)
        hub_conf = f"leafnodes {{ listen: 127.0.0.1:-1, tls {{ {at_hub} verify: true, {own} }} }}\n{more}"
        with started(tmp_path / "hub", kind, hub_conf) as hub:
            port = leaf_port(hub)
            remote = f"url: 'tls://localhost:{port}', tls {{ {at_remote} {other} }}"
            conf = f"leafnodes {{ reconnect: 60, remotes: [{{ {remote} }}] }}\n{more}"
            with started(tmp_path / "spoke", kind, conf) as spoke:
                judge = hub if side == "hub checks" else spoke
                if status == "good":
                    await until(lambda: linked(judge))  # noqa: B023
                else:
                    await until(lambda: "not OCSP valid" in judge.log())  # noqa: B023
                seen[kind] = refusals(judge), await asyncio.to_thread(leaf_varz, judge)
    made.says("good", checked)
    assert seen["natsctl"] == seen["reference"]
    assert bool(seen["natsctl"][0]) == (status == "revoked")


def refusals(server: ConfServer) -> list[str]:
    return [line for line in lines(server) if "valid" in line and "peer is valid" not in line]


def linked(server: ConfServer) -> bool:
    return bool(server.monitor("leafz").get("leafnodes"))


def leaf_varz(server: ConfServer) -> object:
    leaf = server.monitor("varz")["leaf"]
    return leaf.get("tls_ocsp_peer_verify"), [one.get("tls_ocsp_peer_verify") for one in leaf.get("remotes", [])]


@pytest.mark.parametrize("status", ["good", "revoked"])
async def test_monitoring_under_tls_asks_for_a_good_certificate_too(status: str, made: World, tmp_path: Path) -> None:
    made.says(status)
    seen = {}
    for kind in KINDS:
        conf = block(made, "", "ocsp_cache: false").replace("http:", "https:")
        with started(tmp_path, kind, conf) as server:
            port = server.ports()["monitoring"][0].rpartition(":")[2]
            seen[kind] = [await asyncio.to_thread(fetched, made, port, client) for client in (made.client, None)]
    made.says("good")
    assert seen["natsctl"] == seen["reference"] == [status == "good", False]


def fetched(found: World, port: str, client: Certified | None) -> bool:
    try:
        with urlopen(f"https://localhost:{port}/varz", context=found.pki.client(client)) as answer:
            return bool(json.load(answer)["server_id"])
    except OSError:
        return False
