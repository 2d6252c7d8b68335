"""The `nats` tool against natsctl's server, command by command, and against the reference: both must tell it the same.

`nats` is looked for on PATH: `go install github.com/nats-io/natscli/nats@latest`, or a build of its sources where the
module proxy does not have it. Without it everything here is skipped and counted.

How to use it. A row is a command line, what its output must match, and how the two outputs are compared: `same` after
times, durations, ids and sizes are masked, `digits` with every number masked too, `shape` not at all (each must match
by itself). Rows of a group share their streams and run in order.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pexpect
import pytest

from natsctl.testing.process import Kind, ServerProcess, reference_binary

NATS = shutil.which("nats") or ""
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not NATS, reason="nats (the tool) is not on PATH"),
]

CONFIG = """
server_name: one
server_tags: ["az:1"]
accounts {
  SYS { users: [{ user: s, password: p }] }
  A { jetstream: enabled, users: [{ user: a, password: p }] }
}
system_account: SYS
no_auth_user: a
"""
WITHIN_S = 20.0

Compared = Literal["same", "digits", "shape"]


@dataclass(frozen=True)
class Row:
    """One command as user `user`, the status it ends with, and what it prints (to both outputs)."""

    command: str
    prints: str
    compared: Compared = "same"
    status: int = 0
    user: str = "a"


def system(command: str, prints: str, compared: Compared = "same", status: int = 0) -> Row:
    """Return a row of the system account's user."""
    return Row(command, prints, compared, status, "s")


GROUPS: dict[str, list[Row]] = {
    "account": [
        Row("account info", "Account Information.*Account: A .*JetStream Account Information", "digits"),
        Row("account report connections", "Top 1 Connections out of 1.*NATS CLI", "digits"),
        Row("account report statistics", "Server Statistics.*│ 127.0.0.1 │", "digits"),
        Row("rtt", r"nats://a:p@127\.0\.0\.1:\d+:.*\d.s", "shape"),
        system("account info", "System Account: true.*JetStream not enabled for account", "digits"),
    ],
    "server": [
        system("server list", r"│ one +│.*│ 2\.", "digits"),
        system("server list --json", '"statsz": {', "shape"),
        system("server info", "Server information for one.*JetStream:.*API Support Level", "digits"),
        system("server ping 1", "one +rtt=.*ping statistics", "digits"),
        system("server report jetstream", "JetStream Summary.*│ one", "digits"),
        system("server report connections", "Connections out of.*NATS CLI.*Connections per server", "digits"),
        system("server report connections --json", '"cid": \\d+,.*"uptime": "0s",', "shape"),
        system("server report accounts", "Accounts Overview.*│ SYS", "digits"),
        system("server report cpu", "CPU Usage.*one:", "shape"),
        system("server report mem", "Memory Usage.*one:", "shape"),
        system("server report health", r"│ one .*ok \(200\)"),
        system("server report leafnodes", "Leafnode Report"),
        system("server report routes", "Cluster Report"),
        system("server report gateways", "Super Cluster Report"),
        system("server request variables", '"data":{"server_id":', "shape"),
        system("server request connections", '"connections":\\[{"cid":', "shape"),
        system("server request connections --subscriptions", '"data":{"server_id":.*"connections":\\[', "shape"),
        system("server request subscriptions --detail", '"num_subscriptions":', "shape"),
        system("server request jetstream --all", '"data":{"memory":', "shape"),
        system("server request jetstream-health", '"data":{"status":"ok","status_code":200}', "shape"),
        system("server request accounts", '"accounts":\\[', "shape"),
        system("server request accounts --account A", '"account_detail":{"account_name":"A"', "shape"),
        system("server request routes", '"num_routes":0', "shape"),
        system("server request gateways", '"outbound_gateways":{}', "shape"),
        system("server request leafnodes", '"leafnodes":0', "shape"),
        system("server request ipqueue", '"data":{', "shape"),
        system("server request raft", '"data":{}', "shape"),
        system("server request kick 99999 one", "no such client or leafnode id|.*", status=1),
        system("server account info A", "Account information for account A.*Imports:.*PING.CONNZ", "shape"),
        Row("server list", "no results received|.*", status=1),
        Row("server info", "no results received|.*", status=1),
    ],
    "check": [
        Row("stream add CHECKED --subjects checked --defaults", "Stream CHECKED was created"),
        Row("pub checked hello", "Published 5 bytes"),
        Row("consumer add CHECKED C --pull --defaults", "CHECKED > C"),
        Row("kv add CB", "CB"),
        system("server check connection", "OK Connection", "digits"),
        system("server check connection --format prometheus", "nats_server_check_connections_rtt", "digits"),
        system("server check server --name one", "OK one.*uptime=", "shape"),
        system("server check server --name one --js-required --format text", "JetStream enabled", "digits"),
        system("server check server --name two", "CRITICAL", status=2),
        system("server check meta --expect 1 --lag-critical 1 --seen-critical 1s", "CRITICAL|UNKNOWN", status=2),
        Row("server check stream --stream CHECKED", "OK CHECKED", "digits", 0),
        Row("server check stream --stream NOPE", "CRITICAL", status=2),
        Row("server check consumer --stream CHECKED --consumer C", "OK CHECKED_C"),
        Row("server check consumer --stream CHECKED --consumer NOPE", "CRITICAL", status=2),
        Row("server check message --stream CHECKED --subject checked", "OK Stream Message"),
        Row("server check jetstream", "OK JetStream.*streams=", "digits"),
        Row("server check kv --bucket CB", "OK CB|OK KV"),
        Row("server check request --subject nobody", "CRITICAL", status=2),
    ],
    "core": [
        Row("pub foo hello", 'Published 5 bytes to "foo"'),
        Row("pub foo hello --count 3 -H A:b", "Published", "digits"),
        Row("req nobody hi --timeout 1s", "No responders are available"),
        Row("errors lookup 10039", "JetStream not enabled for account"),
        Row("bench pub bench --msgs 1000 --no-progress", "publisher stats: [0-9,]+ msgs/sec", "shape"),
        Row("service ping", "|", "shape"),
        Row("auth nkey gen user", "^SU", "shape"),
    ],
    "stream": [
        Row("stream add ORDERS --subjects orders.* --defaults", "Stream ORDERS was created"),
        Row("stream add MEM --subjects mem.> --storage memory --max-msgs 10 --max-age=1h --defaults", "MEM was"),
        Row("pub orders.new one{{Count}} --count 5", "Published", "digits"),
        Row("pub orders.old -H A:b hi", "Published 2 bytes"),
        Row("stream ls", "│ ORDERS"),
        Row("stream ls -n", "ORDERS"),
        Row("stream info ORDERS", "Information for Stream ORDERS.*Messages: 6"),
        Row("stream info ORDERS --json", '"name": "ORDERS"'),
        Row("stream state ORDERS", "Messages: 6"),
        Row("stream report", "Stream Report.*ORDERS"),
        Row("stream subjects ORDERS", "orders.new"),
        Row("stream get ORDERS 1", "Item: ORDERS#1"),
        Row("stream get ORDERS -S orders.old", "A: b.*hi"),
        Row("stream rmm ORDERS 2 -f", "|"),
        Row("stream gaps ORDERS -f", "2 - 2|Gaps|gap", "digits"),
        Row("stream edit ORDERS --description hello -f", "Stream ORDERS was updated"),
        Row("stream find", "ORDERS"),
        Row("stream backup ORDERS backup --no-progress", "[Rr]eceived .* compressed data in 1 chunks", "digits"),
        Row("stream rm ORDERS -f", "|"),
        Row("stream restore backup --no-progress", 'Restored stream "ORDERS"', "digits"),
        Row("stream info ORDERS", "Deleted Messages: 1"),
        Row("account backup everything -f", "Received|Backup", "digits"),
        Row("pub mem.a hello", "Published"),
        Row("stream purge MEM -f", "Purged 1 message.*State for Stream MEM"),
        Row("stream seal MEM -f", "Sealed: true|MEM"),
        Row("stream rm MEM -f", "|"),
        Row("stream rm NOPE -f", "stream not found|could not pick a Stream", status=1),
    ],
    "consumer": [
        Row("stream add WORK --subjects work.* --defaults", "Stream WORK was created"),
        Row("pub work.a m{{Count}} --count 5", "Published", "digits"),
        Row("consumer add WORK C --pull --defaults", "Information for Consumer WORK > C"),
        Row("consumer add WORK P --target deliver.p --ack none --deliver all --defaults", "Subject: deliver.p"),
        Row("consumer ls WORK", "│ C "),
        Row("consumer info WORK C", "Unprocessed Messages: 5"),
        Row("consumer info WORK C --json", '"num_pending": 5'),
        Row("consumer next WORK C", "subj: work.a.*m1.*Acknowledged message"),
        Row("consumer next WORK C --count 2", "m2.*m3"),
        Row("consumer next WORK C --no-ack --raw", "m4"),
        Row("consumer report WORK", "Consumer report for WORK"),
        Row("consumer edit WORK C --description x -f", "Description: x"),
        Row("consumer pause WORK C 1h -f", "Paused"),
        Row("consumer resume WORK C -f", "resumed|Resumed"),
        Row("consumer find WORK", "C"),
        Row("consumer sub WORK C --timeout 1s", "|", "shape"),
        Row("consumer rm WORK C -f", "|"),
        Row("bench js pub sync bj --create --msgs 20 --no-progress --stream BJ", "publisher stats", "shape"),
        Row("bench js pub async bj --msgs 200 --no-progress --stream BJ", "publisher stats", "shape"),
        Row("bench js fetch --msgs 100 --no-progress --stream BJ", "consumer.*stats", "shape"),
        Row("bench js ordered --msgs 100 --no-progress --stream BJ", "consumer.*stats", "shape"),
        Row("bench js get sync --msgs 20 --no-progress --stream BJ", "getter stats", "shape"),
    ],
    "buckets": [
        Row("kv add B --history 5", "Key-Value Store Bucket|B"),
        Row("kv put B k v1", "v1"),
        Row("kv put B k v2", "v2"),
        Row("kv get B k", "B > k revision: 2.*v2"),
        Row("kv create B n 1", "1"),
        Row("kv update B n 2 3", "2"),
        Row("kv update B n 2 3", "wrong last sequence", status=1),
        Row("kv history B k", "v1.*v2"),
        Row("kv ls", "│ B "),
        Row("kv ls B", "k.*n"),
        Row("kv status B", "History Kept: 5|Bucket"),
        Row("kv del B k -f", "|"),
        Row("kv get B k", "key not found", status=1),
        Row("kv purge B n -f", "|"),
        Row("kv compact B -f", "|"),
        Row("object add OB", "Object Store|OB"),
        Row("object put OB {config} --name f -f --no-progress", "Object information|OB > f"),
        Row("object ls OB", "│ f "),
        Row("object info OB f", "OB > f"),
        Row("object get OB f -O out.txt -f --no-progress", "Wrote|out.txt", "digits"),
        Row("object del OB f -f", "|"),
        Row("object del OB -f", "|"),
    ],
}  # fmt: skip

MASKS = (
    (r"\x1b\[[0-9;?]*[a-zA-Z]", ""),
    (r"\bN[A-Z2-7]{55}\b", "SERVER"),
    (r"_INBOX\.[\w.]+", "INBOX"),
    (r"/\S*/test_natscli[^\s\"]*", "PATH"),
    (r"\b(?=\w*\d)[A-Za-z0-9]{22}\b", "NUID"),
    (r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?( [+-]\d{4} UTC)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"(127\.0\.0\.1|0\.0\.0\.0):\d+", "ADDRESS"),
    (r"\b(\d+(\.\d+)?(ns|µs|us|ms|s|m|h|d))+\b", "DURATION"),
    (r"\b[\d.,]+ (B|KiB|MiB|GiB|TiB)\b", "SIZE"),
    (r"go1\.[\d.]+|\bnatsctl\b", "GO"),
    (r"sha256:\w+", "DIGEST"),
    (r"(sync writes to disk|Message Compression): \w+", r"\1: FLAG"),
    (r"─+", "─"),
    (r"[█▏▎▍▌▋▊▉]+", "BAR"),
    (r"done! \[.*?\]", ""),
    (r"[ \t]+", " "),
)
"""What differs from run to run, and how natsctl stores what both store."""


def masked(text: str, numbers: bool) -> str:
    """Return what a command printed without what differs from run to run; with `numbers`, without those too."""
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    if numbers:
        text = re.sub(r"\d[\d.,]*(?:e-\d+)?", "#", text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


class Side:
    """One server and a folder for the tool."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind = kind
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.config = folder / "nats.conf"
        self.config.write_text(CONFIG)
        self.process = ServerProcess(folder / "server", kind, "-c", str(self.config))

    def line(self, command: str, user: str) -> list[str]:
        address = urlsplit(self.process.url).netloc
        words = [word.replace("{config}", str(self.config)) for word in command.split(" ")]
        return [NATS, "-s", f"nats://{user}:p@{address}", *words]

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "TERM": "dumb", "COLUMNS": "200"}

    def run(self, command: str, user: str = "a") -> tuple[int, str]:
        done = subprocess.run(
            self.line(command, user), cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    """natsctl's server, and the reference's where it is on PATH, in this order."""
    kinds: list[Kind] = ["natsctl", "reference"] if reference_binary() else ["natsctl"]
    found = [Side(tmp_path_factory.mktemp(f"test_natscli_{kind}"), kind) for kind in kinds]
    try:
        for side in found:
            side.process.start()
        yield found
    finally:
        for side in found:
            side.process.stop()


@pytest.mark.exact
@pytest.mark.parametrize("group", GROUPS)
def test_the_tool_is_told_the_same(sides: list[Side], group: str) -> None:
    faults = []
    with ThreadPoolExecutor() as pool:
        for row in GROUPS[group]:
            told = list(pool.map(lambda side, row=row: side.run(row.command, row.user), sides))
            faults += [f"{row.command}\n{fault}" for fault in judge(row, told)]
    assert not faults, "\n\n".join(faults)


def judge(row: Row, told: list[tuple[int, str]]) -> list[str]:
    """Return what is wrong with what a command has printed on natsctl's server, and on the reference's if there."""
    faults = [
        f"server {index}: status {status}, does not match {row.prints!r}:\n{text}"
        for index, (status, text) in enumerate(told)
        if status != row.status or not re.search(row.prints, text, re.DOTALL)
    ]
    texts = [masked(text, row.compared == "digits") for _, text in told]
    if row.compared != "shape" and len(texts) == 2 and texts[0] != texts[1]:
        faults.append(f"natsctl\n{texts[0]}\nreference\n{texts[1]}")
    return faults


def test_a_reply_is_had_from_the_tool_by_the_tool(sides: list[Side]) -> None:
    for side in sides:
        command = side.line("reply echo.* hello-{{Request}} --count 1", "a")
        replier = pexpect.spawn(
            command[0], command[1:], env=side.environment, cwd=str(side.home), timeout=WITHIN_S, encoding="utf-8"
        )
        replier.expect("Listening on")
        status, text = side.run("req echo.x me --raw")
        assert (status, text.strip()) == (0, "hello-me")
        replier.expect("Received on subject")
        replier.close(force=True)


def test_events_tell_of_connections_and_streams(sides: list[Side]) -> None:
    for side in sides:
        for user, flag, action, told in (
            ("s", "--srv-advisory", "pub foo x", "Client Connection.*Client Disconnection"),
            ("a", "--js-advisory", "stream add SEEN --subjects seen --defaults", "Stream Create Action"),
        ):  # fmt: skip
            command = side.line(f"events {flag}", user)
            watcher = pexpect.spawn(
                command[0], command[1:], env=side.environment, cwd=str(side.home), timeout=WITHIN_S, encoding="utf-8"
            )
            watcher.expect("CLIENT.AUTH.ERR")
            side.run("rtt 1")  # by its end what was subscribed has arrived
            side.run(action)
            for part in told.split(".*"):
                watcher.expect(part)
            watcher.close(force=True)
        side.run("stream rm SEEN -f")


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("server watch jetstream", "│ one +│"),
        ("server watch servers", "│ one +│"),
        ("server watch accounts", "│ A +│"),
        ("top one", "uptime:"),
    ],
)
def test_live_views_show_the_server(sides: list[Side], command: str, shows: str) -> None:
    for side in sides:
        line = side.line(command, "s")
        view = pexpect.spawn(
            line[0], line[1:], env={**side.environment, "TERM": "xterm"}, cwd=str(side.home), timeout=WITHIN_S,
            encoding="utf-8", dimensions=(60, 220),
        )  # fmt: skip
        for _ in range(int(WITHIN_S)):
            side.run("rtt 1")  # accounts are told of when a client comes
            if view.expect([shows, pexpect.TIMEOUT], timeout=1) == 0:
                break
        else:
            pytest.fail(f"{side.kind}: {shows!r} is not shown:\n{view.before}")
        view.close(force=True)
