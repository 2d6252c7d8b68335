"""Beginning and end of each suite here: its command line, the server under test, and the baseline of outcomes.

A baseline names every test with its outcome on the reference; a test that passes there and can not pass here has its
reason behind a `#`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

Outcome = Literal["passed", "failed", "skipped"]
Results = dict[str, Outcome]
WORKERS: Final = 2


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every suite takes; the module's docstring is its help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--work", type=Path, help="keep what is built, and logs, in this folder")
    return parser


def folder_of(arguments: argparse.Namespace, suite: str) -> Path:
    work = arguments.work or Path(tempfile.mkdtemp(prefix=f"natsctl-{suite}-"))
    work.mkdir(parents=True, exist_ok=True)
    return Path(work).resolve()


def finish(results: Results, baseline: Path, suite: str, *, write: bool) -> int:
    if write:
        write_baseline(results, baseline)
        return 0
    return judge(results, read_baseline(baseline), suite)


def write_starter(place: Path, arguments: str) -> None:
    """Write a program that runs natsctl as it is in this checkout, also where a suite clears PYTHONPATH."""
    root = Path(__file__).resolve().parents[2]
    place.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m natsctl {arguments}\n')
    place.chmod(0o755)


def prepare_server(work: Path, server: str) -> Path:
    folder = work / f"bin-{server}"
    folder.mkdir(exist_ok=True)
    program = folder / "nats-server"
    program.unlink(missing_ok=True)
    if server == "natsctl":
        write_starter(program, 'server run "$@"')
    else:
        found = shutil.which("nats-server")
        if found is None:
            raise SystemExit("the reference nats-server is not on PATH")
        program.symlink_to(found)
    return folder.resolve()


def own_network() -> list[str]:
    """Return the command that gives what follows a network of its own, nothing where that is not allowed."""
    start = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    wrapped = [*start, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        allowed = subprocess.run([*wrapped, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    return wrapped if allowed else []


def run_each(names: Iterable[str], run: Callable[[str], Outcome]) -> Results:
    """Run tests, each that failed once more; at the same time where each has a network of its own."""
    with ThreadPoolExecutor(WORKERS if own_network() else 1) as pool:
        results = dict(zip(names, pool.map(run, names), strict=True))
    return results | {name: run(name) for name, outcome in results.items() if outcome == "failed"}


def write_baseline(results: Results, path: Path) -> None:
    """Keep the outcomes on the reference, and the reasons that stand already."""
    reasons = {name: reason for name, (_, reason) in read_baseline(path).items() if reason} if path.exists() else {}
    lines = []
    for name in sorted(results):
        reason = reasons.get(name)
        lines.append(f"{results[name]:7} {name}" + (f"  # {reason}" if reason else ""))
    path.write_text("\n".join(lines) + "\n")


def read_baseline(path: Path) -> dict[str, tuple[Outcome, str]]:
    baseline: dict[str, tuple[Outcome, str]] = {}
    for line in path.read_text().splitlines():
        entry, _, reason = line.partition("  # ")
        word, _, name = entry.partition(" ")
        for known in ("passed", "failed", "skipped"):
            if word == known:
                baseline[name.strip()] = (known, reason)
    return baseline


def judge(results: Results, baseline: dict[str, tuple[Outcome, str]], suite: str) -> int:
    """Say which tests fail that pass on the reference, and return 1 when one of them has no reason."""
    wanted = {name: reason for name, (outcome, reason) in baseline.items() if outcome == "passed"}
    ran = {name for name in wanted if name.split(" ")[0] in {found.split(" ")[0] for found in results}}
    broken = sorted(name for name in ran if results.get(name) != "passed")
    for name in broken:
        print(f"{results.get(name, 'missing'):7} {name}" + (f"  # {wanted[name]}" if wanted[name] else ""))
    unexplained = [name for name in broken if not wanted[name]]
    print(f"{suite}: {len(ran) - len(broken)} of the {len(ran)} tests that pass on the reference pass here")
    return 1 if unexplained else 0
