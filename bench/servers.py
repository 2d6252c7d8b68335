"""natsctl's server and nats-server under the same load in one run: `python -m bench.servers`.

Each mode runs on both servers in turn, `--rounds` times; the figures are medians and the ratio is natsctl's over the
reference's. natsctl syncs before every ack (its default). The reference runs twice: with its lazy default sync, and
with `sync_interval: always`. The load generator is a Go program (bench/load); without Go, or without nats-server on
PATH, the missing half is named and left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from natsctl.testing.process import ServerProcess, reference_binary

HERE = Path(__file__).parent
GENERATOR = HERE / ".bin" / "load"


class Mode(NamedTuple):
    """One kind of load: the generator's mode, the number of messages, and the target ratio.

    Targets are against nats-server with its default (`lazy`) or with `sync_interval: always`.
    """

    name: str
    msgs: int
    targets: tuple[tuple[str, float], ...]


MODES = (
    Mode("js-async", 100_000, (("lazy", 1.0), ("always", 15.0))),
    Mode("js-sync", 3_000, ()),
    Mode("js-sync-n", 10_000, ()),
    Mode("js-fetch", 100_000, (("lazy", 0.7),)),
    Mode("js-consume", 100_000, ()),
    Mode("js-ordered", 100_000, (("lazy", 0.7),)),
    Mode("core-pub", 300_000, ()),
    Mode("core-pubsub", 300_000, ()),
    Mode("core-request", 10_000, ()),
)
ALWAYS_MSGS = 10_000  # nats-server with `sync_interval: always` publishes a few thousand messages a second


def generator() -> Path | None:
    """Return the load generator, built if needed; None without Go."""
    if shutil.which("go") is None:
        return None
    GENERATOR.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(GENERATOR.resolve()), "."], cwd=HERE / "load", check=True)
    return GENERATOR.resolve()


def rate(load: Path, url: str, mode: str, msgs: int, size: int) -> float:
    """Return the messages per second of one run of one mode."""
    command = [str(load), "-url", url, "-mode", mode, "-msgs", str(msgs), "-size", str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["msgs_per_s"])


def sync_always_config(folder: Path) -> list[str]:
    """Return the flags with which nats-server syncs before every ack."""
    path = folder / "always.conf"
    path.write_text("jetstream { sync_interval: always }\n")
    return ["-c", str(path)]


def measure_mode(load: Path, servers: dict[str, ServerProcess], mode: Mode, rounds: int, size: int) -> dict[str, float]:
    """Return the median rate of a mode by server name; the servers' rounds alternate."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            if name == "always" and "always" not in dict(mode.targets):
                continue
            msgs = ALWAYS_MSGS if name == "always" else mode.msgs
            rates[name].append(rate(load, server.url, mode.name, msgs, size))
    return {name: statistics.median(found) for name, found in rates.items() if found}


def report(mode: Mode, rates: dict[str, float]) -> None:
    """Print one row: rates, ratios, and targets met or missed."""
    own = rates["natsctl"]
    cells = [f"{mode.name:13} natsctl {own:>10,.0f}/s"]
    for name in ("lazy", "always"):
        if name in rates:
            target = dict(mode.targets).get(name)
            verdict = (
                "" if target is None else f" (target {target:g}: {'met' if own / rates[name] >= target else 'MISSED'})"
            )
            cells.append(f"reference {name} {rates[name]:>10,.0f}/s  ratio {own / rates[name]:.2f}{verdict}")
    print("   ".join(cells), flush=True)


def command_cpu_s(arguments: list[str], runs: int = 5) -> float:
    """Return the median CPU seconds (user and system) of a natsctl command."""
    seconds = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([str(Path(sys.executable).with_name("natsctl")), *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def measure_commands(url: str) -> None:
    """Print the CPU cost of short commands: help, and one request to a running server."""
    at = ["-s", url]
    natsctl = str(Path(sys.executable).with_name("natsctl"))
    subprocess.run(
        [natsctl, *at, "str", "add", "START", "--subjects", "START.>", "--defaults"], check=True, capture_output=True
    )
    for arguments, target in ((["--help"], 0.15), ([*at, "str", "info", "START", "-j"], 0.35)):
        spent = command_cpu_s(arguments)
        shown = " ".join(word for word in arguments if word not in at)
        print(
            f"natsctl {shown:22} {spent:.3f} s CPU (target {target}: {'met' if spent <= target else 'MISSED'})",
            flush=True,
        )


def main() -> None:
    """Run the selected modes and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(mode.name for mode in MODES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128, help="payload bytes")
    options = parser.parse_args()
    wanted = set(options.modes.split(","))
    with tempfile.TemporaryDirectory(prefix="natsctl-bench-") as name:
        folder = Path(name)
        servers = {"natsctl": ServerProcess(folder / "natsctl")}
        if reference_binary() is None:
            print("nats-server is not on PATH: no ratios, natsctl's figures alone")
        else:
            servers["lazy"] = ServerProcess(folder / "lazy", "reference")
            (folder / "always").mkdir()
            servers["always"] = ServerProcess(folder / "always", "reference", *sync_always_config(folder / "always"))
        try:
            for server in servers.values():
                server.start()
            measure_commands(servers["natsctl"].url)
            load = generator()
            if load is None:
                print("Go is not on PATH: the load generator cannot be built, no rates")
                return
            for mode in MODES:
                if mode.name in wanted:
                    report(mode, measure_mode(load, servers, mode, options.rounds, options.size))
        finally:
            for server in servers.values():
                server.stop()


if __name__ == "__main__":
    main()
