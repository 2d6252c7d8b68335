"""Kill test of a streaming query: a check from outside that its sink has each message exactly once.

`python -m tests.support.spark_kills --messages 1000000` fills a stream, has Spark read it, transform each message and
write it into another stream (spark_copy_job.py), and kills with signal 9, each when a certain part is written: an
executor (the Python process of a task), the driver with its Java, which goes on from its checkpoint, and the NATS
server, which goes on from its store. A driver that is started again may have other cores, and then cuts the work in
another way (`--cores 1,2,4`). At the end the sink is read without Spark and compared message by message: count, sums,
distinctness, content, and order per subject. Exit status 1 when anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from natsctl.testing.process import Kind, ServerProcess
from tests.support.crash_checker import Stored
from tests.support.kill_loop import api, last_of, read_into, state_of
from tests.support.raw_client import RawClient
from tests.support.servers import quiet_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE: Final = "SPARK_IN"
SINK: Final = "SPARK_OUT"
ALIKE: Final = "ALIKE"
"""The stream of a batch job's second sink, and its only subject."""
ALIKE_VALUES: Final = 7
"""How many values the rows of the second sink have among them all."""
SUBJECTS: Final = 16
PUBLISHED_AT_ONCE: Final = 5000
EXAMPLES: Final = 5
_TEXT: Final = b"the quick brown fox jumps over the lazy dog and then goes home to sleep until the next morning comes"
_LOUD: Final = _TEXT.upper()
_NUMBER: Final = re.compile(rb'\{"n":(\d+),')
WAIT_S: Final = 120.0


def published(number: int) -> tuple[bytes, bytes]:
    """Subject and payload of a message, the first is 1."""
    text = b"%s %d" % (_TEXT, number * 7919 % 1_000_003)
    return b"in.%d" % (number % SUBJECTS), b'{"n": %d, "amount": %d, "text": "%s"}' % (number, number % 1000, text)


def copied(number: int) -> tuple[bytes, bytes, bytes]:
    """Subject, message id and payload that Spark has to make of it."""
    text = b"%s %d" % (_LOUD, number * 7919 % 1_000_003)
    payload = b'{"n":%d,"amount":%d,"text":"%s"}' % (number, 2 * (number % 1000), text)
    return b"out.%d" % (number % SUBJECTS), b"%s:%d" % (SOURCE.encode(), number), payload


@dataclass
class SinkChecker:
    """A comparison of the sink with what has to be there, message by message."""

    messages: int
    explicit: bool = True
    """True where the sink was given ids; else the sink makes them."""
    stored: int = 0
    distinct: int = 0
    duplicates: int = 0
    missing: int = 0
    wrong: int = 0
    out_of_order: int = 0
    sum_of_numbers: int = 0
    sum_of_amounts: int = 0
    examples: list[str] = field(default_factory=list)
    _seen: bytearray = field(init=False, repr=False)
    _last: dict[bytes, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.messages + 1)

    def take(self, subject: bytes, header: bytes, payload: bytes) -> None:
        self.stored += 1
        found = _NUMBER.match(payload)
        number = int(found[1]) if found else 0
        expected = copied(number)
        if not 0 < number <= self.messages or (subject, payload) != (expected[0], expected[2]):
            self._fault("wrong", f"{subject!r} {payload[:120]!r}")
            return
        if self.explicit and b"Nats-Msg-Id:" in header and b"Nats-Msg-Id: " + expected[1] + b"\r\n" not in header:
            self._fault("wrong", f"message {number} has the header {header[:120]!r}")
        self.sum_of_numbers += number
        self.sum_of_amounts += 2 * (number % 1000)
        if self._seen[number]:
            self._fault("duplicates", f"message {number} is there again")
        elif number < self._last.get(subject, 0):
            self._fault("out_of_order", f"message {number} comes after {self._last[subject]} on {subject!r}")
        self._seen[number] = 1
        self._last[subject] = max(number, self._last.get(subject, 0))

    def finish(self) -> None:
        self.distinct = sum(self._seen)
        self.missing = self.messages - self.distinct
        if self.missing:
            first = self._seen.index(0, 1)
            self.examples.append(f"message {first} is missing")

    @property
    def broken(self) -> bool:
        sums = (self.messages * (self.messages + 1) // 2, sum(2 * (n % 1000) for n in range(1, self.messages + 1)))
        faults = self.duplicates or self.missing or self.wrong or self.out_of_order
        return bool(faults) or self.stored != self.messages or (self.sum_of_numbers, self.sum_of_amounts) != sums

    def _fault(self, kind: str, example: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {example}")


async def prepare(client: RawClient, messages: int) -> None:
    day_ns = 86_400_000_000_000
    for name, subject, window_ns in ((SOURCE, "in.>", 120_000_000_000), (SINK, "out.>", day_ns)):
        config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
        await api(client, b"STREAM.CREATE." + name.encode(), config | {"max_age": 0, "duplicate_window": window_ns})
    for first in range(1, messages + 1, PUBLISHED_AT_ONCE):
        last = min(first + PUBLISHED_AT_ONCE - 1, messages)
        for number in range(first, last):
            client.publish(*published(number))
        await client.request(*published(last), WAIT_S)  # acknowledged, so all before it are stored


async def stored(client: RawClient, stream: str) -> int:
    return int((await state_of(client, stream.encode()))["messages"])


async def read_all(client: RawClient, stream: str, take: Callable[[Stored], object]) -> None:
    """Hand every message to `take`, in the order of the stream."""
    await read_into(client, stream.encode(), 1, await last_of(client, stream.encode()), take)


KINDS: Final = ("executor", "driver", "server", "outage")
BATCHES: Final = 7
"""Into which the work is cut; with one to three kills at equal distances, none is between two of them."""
POLL_S: Final = 0.02
FAILURE_SHOWN: Final = 1500
"""Characters of a driver's log that are shown after a failure."""
WINDOW: Final = (10, 4000)
"""Least and most messages under way in a task: few where there are few, so that kills find it at work."""
KILL_AGAIN_AFTER_S: Final = 0.2
_LOCAL = re.compile(r"local\[(\w+|\*)\]")
TASK_WORKER: Final = b"\0pyspark.worker\0"
"""Argument of the Python processes of tasks, which those of the source on the driver do not have."""
JAVA: Final = b"SparkSubmit"


@dataclass(kw_only=True)
class RunSummary:
    kills: list[str] = field(default_factory=list)
    drivers: int = 0
    """Starts of the driver: the first, one for its kill, one for each of `driver_failures`."""
    driver_failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""


@dataclass
class Summary(RunSummary):
    messages: int
    master: str
    server: str
    idempotence: str
    cpu_s: float = 0.0
    """Of all processes that ended by themselves."""
    found: dict[str, Any] = field(default_factory=dict)
    broken: bool = True


class DriverRun:
    """A server, the driver of a job as a child process, and what kills them and itself while it works."""

    attempts: ClassVar[int] = 4
    """Starts of a driver at most: once, after its kill, and after failures that call for a restart."""
    outage_s = 60.0
    """For how long the server is away in an outage."""

    def __init__(self, folder: Path, kind: Kind, summary: RunSummary, kills: Sequence[str]) -> None:
        """Prepare; `kills` come when equal parts of the work are done, in their order."""
        self._folder = folder
        self._server = ServerProcess(folder / "server", kind, "-p", str(quiet_ports(1)[0]))
        self._run_summary = summary
        self._kills = [((at + 1) / (len(kills) + 1), name) for at, name in enumerate(kills)]
        self._driver: subprocess.Popen[bytes] | None = None
        self._log = folder / "driver.log"

    async def run(self) -> None:
        """Start the server, fill it, work until all is done, and judge what there is then; raises RuntimeError."""
        begun = time.monotonic()
        try:
            await asyncio.to_thread(self._server.start)
            await self._fill()
            await self._work()
            await self._judge()
        finally:
            self._kill_driver()
            self._server.kill()
            self._run_summary.seconds = round(time.monotonic() - begun, 1)

    async def _fill(self) -> None:
        raise NotImplementedError

    def _words(self) -> Sequence[str]:
        """Return the module of the driver and its arguments."""
        raise NotImplementedError

    async def _done(self) -> float:
        """Return the part of the work that is done."""
        raise NotImplementedError

    async def _judge(self) -> None:
        raise NotImplementedError

    async def _work(self) -> None:
        """Watch the work, kill what is due, and start the driver until it ends by itself."""
        summary = self._run_summary
        self._start_driver()
        while (code := self._driver.poll() if self._driver else None) != 0:
            if code is not None:
                if code > 0:
                    summary.driver_failures.append(self._said()[-FAILURE_SHOWN:])
                if summary.drivers >= self.attempts:
                    raise RuntimeError(f"the driver failed {self.attempts} times:\n{self._said()}")
                self._start_driver()
            part = await self._done()
            if self._kills and part >= self._kills[0][0]:
                name = self._kills[0][1]
                if await asyncio.to_thread(getattr(self, f"_{name}_dies")):
                    del self._kills[0]
                    summary.kills.append(f"{name} at {part:.0%}")
            await asyncio.sleep(POLL_S)
        if self._kills:
            left = ", ".join(name for _, name in self._kills)
            raise RuntimeError(f"all was written before these could be killed: {left}")

    def _start_driver(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", *self._words()]
            self._driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._run_summary.drivers += 1

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def _executor_dies(self) -> bool:
        """Kill a Python process that runs a task, if one does just now."""
        tasks = [
            child
            for daemon in self._below(TASK_WORKER)
            for child in children_of(daemon)
            if TASK_WORKER in command_line(child)
        ]
        if not tasks:
            return False
        os.kill(max(tasks), signal.SIGKILL)
        return True

    def _driver_dies(self) -> bool:
        self._kill_driver()
        return True

    def _server_dies(self, away_s: float = KILL_AGAIN_AFTER_S) -> bool:
        self._server.kill()
        time.sleep(away_s)
        self._server.start()
        return True

    def _outage_dies(self) -> bool:
        return self._server_dies(self.outage_s)

    def _kill_driver(self) -> None:
        """kill -9 the driver, its Java first, which would end in good order without it."""
        if self._driver is None:
            return
        for pid in self._below(JAVA):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._driver.kill()
        self._driver.wait()

    def _below(self, word: bytes) -> list[int]:
        """Processes anywhere below the driver that have a word in their command line."""
        running = self._driver is not None and self._driver.poll() is None
        return descendants(self._driver.pid, word) if self._driver and running else []


class KillRun(DriverRun):
    """A query that copies a stream into another."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        kind: Kind = options.server
        self.summary = Summary(options.messages, options.master, kind, options.idempotence)
        super().__init__(folder, kind, self.summary, options.kills)
        self._java = options.java
        self._cores: list[int] = options.cores
        self._watcher: RawClient | None = None

    async def _fill(self) -> None:
        client = await RawClient.connect(self._server.url)
        await prepare(client, self.summary.messages)
        await client.close()

    async def _done(self) -> float:
        """Return the part of the messages that the sink has; 0 while the server is away."""
        try:
            if self._watcher is None or self._watcher.closed.is_set():
                self._watcher = await RawClient.connect(self._server.url)
            return await stored(self._watcher, SINK) / self.summary.messages
        except (OSError, TimeoutError):
            return 0

    async def _judge(self) -> None:
        judge = SinkChecker(self.summary.messages, explicit=self.summary.idempotence == "explicit")
        client = await RawClient.connect(self._server.url)
        await read_all(client, SINK, lambda each: judge.take(each.subject, each.header, each.payload))
        await client.close()
        judge.finish()
        self.summary.broken = judge.broken
        self.summary.found = {key: value for key, value in asdict(judge).items() if not key.startswith("_")}
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.summary.cpu_s = round(used.ru_utime + used.ru_stime, 1)

    def _words(self) -> Sequence[str]:
        local = _LOCAL.fullmatch(self.summary.master)
        cores = self._cores[min(self.summary.drivers, len(self._cores) - 1)] if self._cores else 0
        words = ["--master", f"local[{cores or local[1]},4]" if local else self.summary.master, "--java", self._java]
        words += ["--partitions", str(cores)] if cores else []
        words += ["--server", self._server.url, "--checkpoint", str(self._folder / "checkpoint")]
        words += ["--per-batch", str(-(-self.summary.messages // BATCHES))]
        words += ["--idempotence", self.summary.idempotence]
        words += ["--window", str(min(max(self.summary.messages // 250, WINDOW[0]), WINDOW[1]))]
        return "tests.support.spark_copy_job", *words


class BatchRuns:
    """Runs of one batch job on several servers, on other cores each time."""

    def __init__(
        self, folder: Path, messages: int, cores: Sequence[int], java: str = "", session: SparkSession | None = None
    ) -> None:
        """Prepare the runs in an empty folder; they are in `session`, if given, else in processes of their own."""
        self._log = folder / "driver.log"
        self._session = session
        self._messages = messages
        self._cores = cores
        self._java = java

    def stored(self, *urls: str) -> list[dict[str, Any]]:
        """Run the job and return what each server holds; raises RuntimeError where a run fails.

        Each run writes to all servers, since most of its time is the start of Spark.
        """
        for url in urls:
            asyncio.run(self._fill(url))
        for cores in self._cores:
            words = ["--master", f"local[{cores}]", "--java", self._java, "--partitions", str(cores)]
            words += ["--per-batch", str(-(-self._messages // cores)), "--write-id", "day-7"]
            words += [word for url in urls for word in ("--server", url)]
            if self._session is None:
                self._run(cores, words)
            else:
                from tests.support.spark_copy_job import copy_batch, parsed

                copy_batch(self._session, parsed(words))
        return [asyncio.run(self._judged(url)) for url in urls]

    def _run(self, cores: int, words: list[str]) -> None:
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "tests.support.spark_copy_job", *words]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise RuntimeError(f"the run on {cores} cores failed:\n{self._log.read_text(errors='replace')[-6000:]}")

    async def _fill(self, url: str) -> None:
        client = await RawClient.connect(url)
        await prepare(client, self._messages)
        config = {"name": ALIKE, "subjects": [ALIKE], "storage": "file", "duplicate_window": 86_400_000_000_000}
        await api(client, b"STREAM.CREATE." + ALIKE.encode(), config)
        await client.close()

    async def _judged(self, url: str) -> dict[str, Any]:
        """Return what the judge found among the copies, and the number of rows by value among those that are alike."""
        judge, alike = SinkChecker(self._messages, explicit=False), Counter[str]()
        client = await RawClient.connect(url)
        await read_all(client, SINK, lambda each: judge.take(each.subject, each.header, each.payload))
        await client.close()
        client = await RawClient.connect(url)
        await read_all(client, ALIKE, lambda each: alike.update([each.payload.decode()]))
        await client.close()
        judge.finish()
        expected = Counter(str(number % ALIKE_VALUES) for number in range(1, self._messages + 1))
        found = {key: value for key, value in asdict(judge).items() if not key.startswith("_")}
        return {**found, "alike": sum(alike.values()), "broken": judge.broken or alike != expected}


def kinds_of(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := set(names) - set(KINDS):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(KINDS)}")
    return names


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return 1 when the sink is not what it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark_kills", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]", help="local[N], or a master's URL")
    parser.add_argument("--server", choices=("natsctl", "reference"), default="natsctl")
    parser.add_argument("--kills", type=kinds_of, default=list(KINDS[:3]), help="by commas, in this order")
    parser.add_argument(
        "--idempotence",
        choices=("explicit", "ids", "ledger", "none"),
        default="explicit",
        help="explicit: ids of stream and sequence; none plants the fault that must be found",
    )
    parser.add_argument("--cores", type=_numbers, default=[], help="of the drivers in turn, by commas, with local[N]")
    parser.add_argument("--java", default="", help="a Java in place of the one that is found")
    parser.add_argument("--keep", type=Path, default=None, help="use this empty folder and keep it")
    parser.add_argument("-j", "--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="natsctl-spark-kills-") as temporary:
        run = KillRun(options.keep or Path(temporary), options)
        try:
            asyncio.run(run.run())
        except RuntimeError as failure:
            run.summary.failure = str(failure)
    print(json.dumps(asdict(run.summary), indent=None if options.json else 2))
    return 1 if run.summary.broken else 0


def descendants(pid: int, word: bytes = b"") -> list[int]:
    """Return the processes anywhere below one that have a word in their command line."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children_of(pid)
    return [pid for pid in found[1:] if word in command_line(pid)]


def children_of(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in path.read_text().split()]
    return found


def command_line(pid: int) -> bytes:
    """Return the command line of a process, empty for one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


if __name__ == "__main__":
    sys.exit(main())
