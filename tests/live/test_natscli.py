"""The `nats` tool against natsctl's server, command by command, and against the reference: both must tell it the same.

`nats` is looked for on PATH: `go install github.com/nats-io/natscli/nats@latest`, or a build of its sources where the
module proxy does not have it. Without it everything here is skipped and counted.

How to use it. A row of test_natscli.json is a command line, what its output must match, and how the two outputs are
compared: `same` after times, durations, ids and sizes are masked, `digits` with every number masked too, `shape` not at
all (each must match by itself). Rows of a group share their streams and run in order.
"""

import json
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

pytestmark = pytest.mark.reference("nats")

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


GROUPS: dict[str, list[Row]] = {
    group: [Row(*row) for row in rows]
    for group, rows in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}

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
        return [shutil.which("nats") or "nats", "-s", f"nats://{user}:p@{address}", *words]

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
