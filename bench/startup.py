"""Cost of short commands and of server starts, with nats and nats-server for comparison: `python -m bench.startup`.

Each line is a whole process with its output in a pipe, on natsctl's server with a few streams, consumers and buckets;
figures are wall time and processor time, the best of several, next to the figures of a Python that does nothing, and of
`nats` if it is on PATH. Targets are processor time as a multiple of that Python's.

`--batch 1000` runs so many command lines with `natsctl batch` instead, next to as many processes of natsctl and of
`nats`.
Bytecode has to be kept (no PYTHONDONTWRITEBYTECODE), else every process compiles what it imports.

`--servers 30` starts servers instead, 30 of each in turn: the time from the spawn to an open connection, to INFO
and to the first PONG, median and 95th percentile, and the processor time until then, on an idle machine and beside
`--busy` loops, on an empty store and on one of 1,000 streams with 1,000 messages each, after a stop and after a kill.
`--against FOLDER` adds another tree of natsctl, such as a worktree of an older commit; ratios are to nats-server's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.listing import cost, costs
from bench.measure import Target, api, cpu_ns, verdict
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess, reference_binary
from tests.support.raw_client import RawClient

STREAMS: Final = 20
RESPONDER: Final = "svc.echo"
LINES: Final = (
    ("--help", "--help", 2),
    ("stream info S1 -j", "stream info S1 -j", 3),
    ("stream ls -n", "stream ls -n", 0),
    ("stream ls", "stream ls", 5),
    ("consumer ls S1", "consumer ls S1", 4.5),
    ("kv ls", "kv ls", 4.5),
    ("kv ls B0", "kv ls B0", 0),
    ("kv put B0 key value", "kv put B0 key value", 0),
    ("kv get B0 key --raw", "kv get B0 key --raw", 0),
    ("publish S1.a hello", "publish S1.a hello", 3),
    ("publish S1.a hello -J", "publish S1.a hello -J", 0),
    (f"request {RESPONDER} hello", f"request {RESPONDER} hello", 4),
    ("publish S1.a hello -J --count 2000 -q", "publish S1.a hello -J --count 2000 -q", 0),
    ("__complete zsh stream info S", "", 0),
    ("__complete zsh consumer info S1 C", "", 0),
)
"""Arguments of natsctl and of the nats tool (empty if it has no such command), and the target multiple, 0 for none."""
BATCHED: Final = (
    ("publish", "pub S1.a hello{number}"),
    ("publish with ack", "pub S1.a hello{number} -J -q"),
    ("kv put", "kv put B0 key{number} value"),
    ("stream info", "stream info S1 -j"),
)
MAX_PROCESSES: Final = 100
"""Processes that are run to measure one; the time of more is computed."""


async def fill(url: str) -> None:
    """Create streams with one consumer each, and as many key-value buckets."""
    client = await RawClient.connect(url)
    for number in range(STREAMS):
        stream, bucket = f"S{number}", f"B{number}"
        await api(client, f"STREAM.CREATE.{stream}".encode(), {"name": stream, "subjects": [f"{stream}.>"]})
        durable = {"stream_name": stream, "config": {"durable_name": f"C{number}", "ack_policy": "explicit"}}
        await api(client, f"CONSUMER.DURABLE.CREATE.{stream}.C{number}".encode(), durable)
        config: dict[str, object] = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1}
        config |= {"allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True}
        await api(client, f"STREAM.CREATE.KV_{bucket}".encode(), config)
    await client.close()


DELAY_S: Final = 0.02
"""Latency of each way to a distant server."""
TABS: Final = 10


@contextmanager
def distant(port: int) -> Iterator[int]:
    """Yield the port of a proxy that passes everything on DELAY_S later."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(DELAY_S, writer.write, data)
        loop.call_later(DELAY_S, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(DELAY_S)
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer), return_exceptions=True)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def distant_completions(port: int, home: str) -> None:
    """Print how often names come from a distant server in time, asked each time, and from the file of names."""
    with distant(port) as far:
        for title, fresh in (("asked", True), ("asked within the last minute", False)):
            came, times = 0, []
            for _ in range(TABS):
                if fresh:
                    shutil.rmtree(Path(home) / "natsctl", ignore_errors=True)
                begun_s = time.perf_counter()
                command = [sys.executable, "-m", "natsctl", "__complete", "zsh", "stream", "info", "S1"]
                environment = {**os.environ, "NATS_URL": f"nats://127.0.0.1:{far}", "XDG_CACHE_HOME": home}
                done = subprocess.run(command, env=environment, capture_output=True, check=True)
                times.append(time.perf_counter() - begun_s)
                came += bool(done.stdout)
            line = f"  names over {DELAY_S * 1000:.0f} ms each way, {title}: {came} of {TABS} times"
            print(f"{line}, {statistics.median(times):5.2f}", flush=True)


HELLO: Final = b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\nPING\r\n'
ACCOUNTS: Final = """
accounts: {
  A: {users: [{user: a, password: b}], exports: [{service: "help.>"}]}
  B: {users: [{user: c, password: d}], imports: [{service: {account: A, subject: "help.>"}}]}
  SYS: {users: [{user: admin, password: e}]}
}
system_account: SYS
"""
RETRY_S: Final = 0.001
FILLED_WITHIN_S: Final = 120.0


class Start(NamedTuple):
    """Seconds from spawn to the connection, INFO and PONG, and CPU seconds until then."""

    connected_s: float
    info_s: float
    pong_s: float
    cpu_s: float


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """Keep a number of processors busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def start_once(command: Sequence[str], tree: Path, secure: bool, kill: bool = False) -> Start:
    """Start a server, exchange INFO and PONG, and stop it, or kill it after a message to each stream."""
    port = free_port()
    begun_s = time.perf_counter()
    words = [*command, "-a", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise RuntimeError(f"{words} ended with exit status {process.returncode}") from None
            time.sleep(RETRY_S)
    connected_s = time.perf_counter() - begun_s
    with connection:
        connection.recv(1 << 16)
        info_s = time.perf_counter() - begun_s
        if secure:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(connection)
        connection.sendall(HELLO)
        heard = b""
        while b"PONG" not in heard:
            heard += connection.recv(1 << 16)
        pong_s = time.perf_counter() - begun_s
        cpu_s = cpu_ns(process.pid, all_threads=True) / 1e9
        if kill:
            connection.sendall(
                b"".join(b"PUB S%d.a 1\r\nx\r\n" % number for number in range(STORED_STREAMS)) + b"PING\r\n"
            )
            while b"PONG" not in connection.recv(1 << 16):
                pass
        connection.close()
    process.kill() if kill else process.terminate()
    process.wait()
    return Start(connected_s, info_s, pong_s, cpu_s)


STORED_STREAMS: Final = 1000
STORED_MSGS: Final = 1000
CPU_TARGET: Final = Target(1.2)
"""Of a start on that store."""


async def publish_all(url: str) -> None:
    """Create many streams with messages."""
    client = await RawClient.connect(url)
    for number in range(STORED_STREAMS):
        name = f"S{number}"
        await api(client, f"STREAM.CREATE.{name}".encode(), {"name": name, "subjects": [f"{name}.>"]})
        for _ in range(STORED_MSGS - 1):
            client.publish(f"{name}.a".encode(), b"x" * 128)
        await client.request(f"{name}.a".encode(), b"x" * 128, FILLED_WITHIN_S)
    await client.close()


def fill_store(command: Sequence[str], tree: Path, folder: str) -> None:
    """Fill the store of a server, which is stopped then."""
    port = free_port()
    words = [*command, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
    process = subprocess.Popen(words, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(RETRY_S)
    try:
        asyncio.run(publish_all(f"nats://127.0.0.1:{port}"))
    finally:
        process.terminate()
        process.wait()


def compare_starts(
    rounds: int,
    against: Path | None,
    title: str,
    flags: Sequence[str],
    store: bool,
    *,
    full: bool = False,
    kill: bool = False,
) -> None:
    """Print the cost of starts with these flags, a line for each server.

    `full` is on a store with many streams, and has a target; with `kill` each server was killed before.
    """
    own = [sys.executable, "-m", "natsctl", "server", "run"]
    servers: dict[str, tuple[list[str], Path]] = {"natsctl": (own, Path.cwd())}
    if against is not None:
        servers["before"] = (own, against)
    if reference := reference_binary():
        servers["nats-server"] = ([reference], Path.cwd())
    starts: dict[str, list[Start]] = {name: [] for name in servers}
    with ExitStack() as kept:
        stores = {name: kept.enter_context(tempfile.TemporaryDirectory()) for name in servers if full}
        for name, folder in stores.items():
            fill_store(*servers[name], folder)
        for number in range(rounds + 1):
            for name, (command, tree) in servers.items():
                with tempfile.TemporaryDirectory() as empty:
                    words = [*command, *flags, *(("-js", "-sd", stores.get(name, empty)) if store else ())]
                    start = start_once(words, tree, "TLS" in title, kill)
                if number:  # the first one compiles, and fills the page cache
                    starts[name].append(start)
    print(f"\n{title}", flush=True)
    floor = statistics.median(one.pong_s for one in starts.get("nats-server", starts["natsctl"]))
    for name, runs in starts.items():
        parts = []
        for what, values in zip(("connection", "INFO", "PONG", "processor"), zip(*runs, strict=True), strict=True):
            late = sorted(values)[int(0.95 * len(values))]
            parts.append(f"{what} {statistics.median(values) * 1000:6.1f} ms (95 %: {late * 1000:6.1f})")
        ratio = statistics.median(one.pong_s for one in runs) / floor
        line = f"  {name:12} {'   '.join(parts)}   ratio {ratio:.1f}"
        if full and name == "natsctl" and "nats-server" in starts:
            used, most = (statistics.median(start.cpu_s for start in starts[kind]) for kind in (name, "nats-server"))
            line += f"   processor {used / most:.2f}{CPU_TARGET.judged('processor', used, most)}"
        print(line, flush=True)


def starts_of_servers(rounds: int, busy: int, against: Path | None) -> None:
    """Measure starts without a configuration, with JetStream, with accounts, with TLS."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        issued = Authority(folder / "ca").issue("server", addresses=["127.0.0.1"])
        accounts = folder / "accounts.conf"
        accounts.write_text(ACCOUNTS)
        secure = ["--tls", f"--tlscert={issued.cert}", f"--tlskey={issued.key}"]
        for loops in dict.fromkeys((0, busy)):
            with beside(loops):
                where = f"beside {loops} busy loops" if loops else "idle"
                compare_starts(rounds, against, f"no configuration, {where}", (), False)
                compare_starts(rounds, against, f"JetStream on an empty store, {where}", (), True)
                large = f"JetStream on {STORED_STREAMS} streams of {STORED_MSGS} messages, {where}"
                compare_starts(rounds, against, large, (), True, full=True)
                compare_starts(rounds, against, f"{large}, after a kill", (), True, full=True, kill=True)
                compare_starts(rounds, against, f"accounts, {where}", ("-c", str(accounts)), False)
                compare_starts(rounds, against, f"TLS, {where}", secure, False)


def commands() -> None:
    """Print a line for each command."""
    reference = shutil.which("nats")
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        asyncio.run(fill(server.url))
        os.environ["NATS_URL"] = server.url
        print("seconds of the clock (of the processor)")
        words = [sys.executable, "-m", "natsctl", "reply", RESPONDER, "--echo"]
        responder = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert responder.stderr is not None
        responder.stderr.readline()  # it listens
        for own, other, target in LINES:
            mine, bare = costs([sys.executable, "-m", "natsctl", *own.split()], [sys.executable, "-c", "pass"])
            line = f"  {own:36} natsctl {mine.wall_s:5.2f} ({mine.cpu_s:.3f})"
            line += f"   python {bare.wall_s:5.2f} ({bare.cpu_s:.3f})"
            if reference and other:
                theirs = cost([reference, *other.split()])
                line += f"   nats {theirs.wall_s:5.2f} ({theirs.cpu_s:.3f})"
            multiple = mine.cpu_s / bare.cpu_s
            line += f"   {multiple:.1f} times python"
            print(line + (f", target {target:g}: {verdict(multiple <= target)}" if target else ""), flush=True)
        responder.terminate()
        responder.communicate()
        distant_completions(int(server.url.rpartition(":")[2]), folder)


def batches(count: int) -> None:
    """Print a line for each kind of command line: a batch, and as many processes."""
    reference = shutil.which("nats")
    own = [sys.executable, "-m", "natsctl"]
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        asyncio.run(fill(server.url))
        os.environ["NATS_URL"] = server.url
        file = Path(folder) / "lines.txt"
        print(f"seconds for {count:,} command lines; milliseconds of one, without the start of the batch")
        for title, line in BATCHED:
            lines = [line.format(number=number) for number in range(count)]
            file.write_text("\n".join(lines[:1]))
            start = cost([*own, "batch", str(file)])
            file.write_text("\n".join(lines))
            batch = cost([*own, "batch", str(file)])
            as_json = cost([*own, "batch", "-j", str(file)])
            each_ms = (batch.wall_s - start.wall_s) / count * 1000
            text = f"  {title:18} batch {batch.wall_s:6.2f} ({each_ms:.2f} ms)   with -j {as_json.wall_s:6.2f}"
            for name, command in (("natsctl", own), ("nats", [reference] if reference else [])):
                if command:
                    some = lines[:MAX_PROCESSES]
                    begun_s = time.perf_counter()
                    for each in some:
                        subprocess.run([*command, *each.split()], check=True, capture_output=True)
                    all_s = (time.perf_counter() - begun_s) * count / len(some)
                    text += f"   processes of {name} {all_s:6.1f} ({all_s / batch.wall_s:.0f} times)"
            print(text, flush=True)


def main() -> None:
    """Measure commands, batches of them, or starts of servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=0, metavar="ROUNDS", help="start servers, so many of each kind")
    parser.add_argument("--busy", type=int, default=2, help="loops that run beside the second half of the starts")
    parser.add_argument(
        "--batch", type=int, default=0, metavar="LINES", help="run so many command lines in one process"
    )
    parser.add_argument("--against", type=Path, help="another tree of natsctl, to be compared")
    options = parser.parse_args()
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        sys.exit("unset PYTHONDONTWRITEBYTECODE: without bytecode the figures are those of the compiler")
    if options.servers:
        starts_of_servers(options.servers, options.busy, options.against)
    elif options.batch:
        batches(options.batch)
    else:
        commands()


if __name__ == "__main__":
    main()
