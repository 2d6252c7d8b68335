"""natsctl's server and nats-server under the same load in one run: `python -m bench.servers`.

Each load runs on every server in turn, `--rounds` times; each round begins with another server. Figures are medians.
natsctl syncs before every ack (its default) and runs twice: with its native module, and in plain Python
(NATSCTL_PURE=1). nats-server runs with its lazy default sync and, where a target names it, with `sync_interval:
always`; under a load on many streams natsctl syncs every two minutes too. `--against FOLDER` adds natsctl of another
checkout. The load generator is a Go program (bench/load), in two forms: `raw-` modes write encoded lines to a bare
socket, the others use nats.go. Next to the rate is the processor time a message of the server and of the generator.
What a machine lacks (Go, nats-server, the native module) is named, and its figures are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from bench.measure import verdict
from natsctl.native import absent, lib
from natsctl.testing.process import Kind, ServerProcess, reference_binary

HERE: Final = Path(__file__).parent
GENERATOR: Final = HERE / ".bin" / "load"
NATIVE: Final = "natsctl"
PLAIN: Final = "natsctl, plain"
LIKE_LAZY: Final = ", lazy"
"""The end of the names of natsctl's servers that sync as nats-server does."""
LAZY: Final = "nats-server"
ALWAYS: Final = "nats-server, always"
TWO_MINUTES: Final = 'jetstream { sync_interval: "2m" }\n'
QUICK_ROUNDS: Final = 3
QUICK_SHARE: Final = 4
"""The quick form has this part of the messages, of a load that has many."""
ALWAYS_MSGS: Final = 3_000
"""Messages of a run on nats-server with `sync_interval: always`, which stores one or two thousand a second."""
SYNCS: Final = 300
FRAME: Final = 160
"""Bytes that a message of 128 takes in a log, about."""
WARM_MSGS: Final = 20_000
"""Messages of the run on each server that is not counted."""


class Load(NamedTuple):
    """One kind of load: the generator's mode, the number of messages, further flags, and the targets.

    `ratio` is the least rate divided by that of `beside`; `cpu_us` the most CPU of the server a message;
    `above_disk_us` the most by which the median latency exceeds the disk's own sync.
    """

    mode: str
    msgs: int
    ratio: float
    beside: str = LAZY
    flags: str = ""
    cpu_us: float | None = None
    above_disk_us: float | None = None
    lazy: bool = False
    """Whether natsctl too syncs every two minutes."""


LOADS: Final = (
    Load("raw-js-async", 200_000, 1.5, flags="-window 500", cpu_us=2.2),
    Load("raw-js-async-n", 200_000, 2.0, flags="-publishers 4 -window 2000", cpu_us=2.2),
    Load("raw-js-sync", 3_000, 1.0, beside=ALWAYS, above_disk_us=100),
    Load("raw-js-sync-n", 10_000, 0.8, flags="-publishers 16"),
    Load("raw-js-streams", 50_000, 1.0, flags="-streams 1000 -window 250", lazy=True),
    Load("raw-js-fetch", 100_000, 1.3),
    Load("raw-js-consume", 100_000, 1.2),
    Load("raw-js-ordered", 200_000, 1.5),
    Load("raw-core-pub", 400_000, 0.6),
    Load("raw-core-pubsub", 300_000, 1.0),
    Load("raw-core-request", 10_000, 1.2),
    Load("js-async", 100_000, 1.5, cpu_us=2.2),
    Load("js-sync", 3_000, 1.0, beside=ALWAYS, above_disk_us=100),
    Load("js-sync-n", 10_000, 0.8),
    Load("js-fetch", 100_000, 1.3),
    Load("js-consume", 100_000, 1.2),
    Load("js-ordered", 100_000, 1.5),
    Load("core-pub", 300_000, 0.6),
    Load("core-pubsub", 300_000, 1.0),
    Load("core-request", 10_000, 1.2),
)


class Figures(NamedTuple):
    """One run, or the medians of several; latencies are 0 where a mode has none."""

    per_s: float
    server_us: float
    load_us: float
    p50_us: float
    p99_us: float


def generator() -> Path | None:
    """Return the load generator, built if needed; None without Go."""
    if shutil.which("go") is None:
        return None
    GENERATOR.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(GENERATOR.resolve()), "."], cwd=HERE / "load", check=True)
    return GENERATOR.resolve()


def run(generator: Path, server: ServerProcess, load: Load, msgs: int, size: int) -> Figures:
    """Return the figures of one run of one load."""
    command = [str(generator), "-url", server.url, "-pid", str(server.pid), "-mode", load.mode, "-msgs", str(msgs)]
    done = subprocess.run([*command, "-size", str(size), *load.flags.split()], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{load.mode}: {done.stderr.strip()}")
    server.await_removals()
    found = json.loads(done.stdout)
    names = ("msgs_per_s", "server_cpu_us", "load_cpu_us", "p50_us", "p99_us")
    return Figures(*(float(found.get(name) or 0) for name in names))


def disk_us(folder: Path) -> float:
    """Return the median time of an append of one frame with its sync, in a folder."""
    frame, took = b"x" * FRAME, []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(frame)
            os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def medians(runs: list[Figures]) -> Figures:
    """Return the median of each figure."""
    return Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))


def measure(
    generator: Path, servers: dict[str, ServerProcess], load: Load, options: argparse.Namespace
) -> tuple[dict[str, Figures], float]:
    """Return the medians of a load by server, whose runs alternate, and the disk's own sync in µs if it counts."""
    references = (load.beside, LAZY)
    runs: dict[str, list[Figures]] = {
        name: []
        for name in servers
        if name in references or (name not in (LAZY, ALWAYS) and name.endswith(LIKE_LAZY) is load.lazy)
    }
    msgs = load.msgs // QUICK_SHARE if options.quick and load.msgs > 10_000 else load.msgs
    syncs = []
    for turn in range(options.rounds):
        if load.above_disk_us is not None:
            syncs.append(disk_us(servers[NATIVE if NATIVE in servers else PLAIN].store_dir))
        first = turn % len(runs)
        for name in [*runs][first:] + [*runs][:first]:
            os.sync()  # what another server left to be written is not to delay this one
            runs[name].append(
                run(generator, servers[name], load, ALWAYS_MSGS if name == ALWAYS else msgs, options.size)
            )
    return {name: medians(found) for name, found in runs.items()}, statistics.median(syncs) if syncs else 0.0


def judged(load: Load, found: dict[str, Figures], disk: float) -> list[str]:
    """Return a line for each target of a load that can be judged here."""
    lines: list[str] = []
    own = found.get(NATIVE + LIKE_LAZY if load.lazy else NATIVE)
    if own is None:
        return lines
    if load.beside in found:
        ratio = own.per_s / found[load.beside].per_s
        lines.append(f"rate / {load.beside}: {ratio:.2f} (target {load.ratio:g}: {verdict(ratio >= load.ratio)})")
    if load.cpu_us is not None and own.server_us:
        met = own.server_us <= load.cpu_us
        lines.append(f"CPU a message: {own.server_us:.2f} µs (target {load.cpu_us:g}: {verdict(met)})")
    if load.above_disk_us is not None:
        most = disk + load.above_disk_us
        lines.append(
            f"p50: {own.p50_us:.0f} µs (target {most:.0f}, the disk's {disk:.0f} and {load.above_disk_us:g}: "
            f"{verdict(own.p50_us <= most)})"
        )
    return lines


def report(load: Load, found: dict[str, Figures], disk: float) -> None:
    """Print the figures of a load, a line for each server, and its targets."""
    print(f"\n{load.mode} {load.flags}", flush=True)
    for name, figures in found.items():
        cells = [f"  {name:20} {figures.per_s:>10,.0f}/s   server {figures.server_us:7.2f} µs CPU"]
        cells.append(f"generator {figures.load_us:6.2f} µs")
        if figures.p50_us:
            cells.append(f"p50 {figures.p50_us:8,.0f}   p99 {figures.p99_us:8,.0f} µs")
        if name != LAZY and LAZY in found:
            cells.append(f"/ {LAZY} {figures.per_s / found[LAZY].per_s:.2f}")
        print("   ".join(cells), flush=True)
    for line in judged(load, found, disk):
        print(f"  {line}", flush=True)


class Candidate(NamedTuple):
    """A server to be measured: its name, kind, additional environment, and the text of its configuration file."""

    name: str
    kind: Kind = "natsctl"
    environment: Mapping[str, str] = {}
    config: str = ""

    @contextmanager
    def serving(self, folder: Path) -> Iterator[ServerProcess]:
        """Run the server with its store in a folder."""
        flags = []
        if self.config:
            path = folder / f"{self.name}.conf"
            path.write_text(self.config)
            flags = ["-c", str(path)]
        kept = {name: value for name, value in os.environ.items() if name != "NATSCTL_PURE"}
        server = ServerProcess(folder / self.name, self.kind, *flags)
        with mock.patch.dict(os.environ, {**kept, **self.environment}, clear=True):
            server.start()
        try:
            yield server
        finally:
            server.stop()


def candidates(against: Path | None, always: bool = False, lazy: bool = False) -> list[Candidate]:
    """Return the servers that this machine can run, and name those that it cannot.

    `always` and `lazy` add nats-server that syncs always, and natsctl that syncs every two minutes.
    """
    found = [Candidate(NATIVE), Candidate(PLAIN, environment={"NATSCTL_PURE": "1"})]
    if lib is None:
        print(f"no native module ({absent}): plain Python alone")
        del found[0]
    if against is not None:
        other = {"PYTHONPATH": str(against.resolve()), "PYTHONSAFEPATH": "1"}
        asked = [sys.executable, "-c", "from natsctl.native import lib; print(lib is None)"]
        said = subprocess.run(asked, env=os.environ | other, capture_output=True, text=True)
        plain = ", plain" if said.returncode or "True" in said.stdout else ""  # older ones have no such module
        found.append(Candidate(f"natsctl in {against.name}{plain}", environment=other))
    if lazy:
        found += [one._replace(name=one.name + LIKE_LAZY, config=TWO_MINUTES) for one in found]
    if reference_binary() is None:
        print("nats-server is not on PATH: no ratios")
        return found
    found.append(Candidate(LAZY, "reference"))
    if always:
        found.append(Candidate(ALWAYS, "reference", config="jetstream { sync_interval: always }\n"))
    return found


@contextmanager
def started(against: Path | None, loads: list[Load]) -> Iterator[dict[str, ServerProcess]]:
    """Run every server of these loads at once, each with a store of its own."""
    lazy = any(load.lazy for load in loads)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="natsctl-bench-")))
        yield {
            candidate.name: stack.enter_context(candidate.serving(folder))
            for candidate in candidates(against, always=True, lazy=lazy)
        }


def selected(text: str) -> list[Load]:
    """Return the loads that a list of modes names; `raw` and `nats.go` stand for all of one kind."""
    kinds = {load.mode: "raw" if load.mode.startswith("raw-") else "nats.go" for load in LOADS}
    words = set(text.split(","))
    if unknown := words - set(kinds) - set(kinds.values()):
        raise argparse.ArgumentTypeError(f"no such mode: {', '.join(sorted(unknown))} (there are {', '.join(kinds)})")
    return [load for load in LOADS if words & {load.mode, kinds[load.mode]}]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", type=selected, default=None, help="comma separated; also: raw, nats.go")
    parser.add_argument("--rounds", type=int, default=None, help=f"5, quick {QUICK_ROUNDS}")
    parser.add_argument("--size", type=int, default=128, help="payload bytes")
    parser.add_argument("--quick", action="store_true", help="raw modes, fewer rounds and messages: below 3 minutes")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout of natsctl, to be compared")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else 5)
    options.modes = options.modes or selected("raw" if options.quick else "raw,nats.go")
    return options


def main() -> None:
    """Run the selected loads, print each, and all targets at the end."""
    options = parsed()
    print(f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with started(options.against, options.modes) as servers:
        load_generator = generator()
        if load_generator is None:
            print("Go is not on PATH: the load generator cannot be built, no rates")
            return
        for name, server in servers.items():
            run(load_generator, server, LOADS[0], ALWAYS_MSGS if name == ALWAYS else WARM_MSGS, options.size)
        targets = []
        for load in options.modes:
            found, disk = measure(load_generator, servers, load, options)
            report(load, found, disk)
            targets += [f"  {load.mode:18} {line}" for line in judged(load, found, disk)]
        print("\ntargets", *targets, sep="\n")


if __name__ == "__main__":
    main()
