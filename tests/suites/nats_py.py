"""The nats.py repository's own tests, unmodified, with natsctl's server as the `nats-server` on PATH.

    python tests/suites/nats_py.py SOURCES                        every test that passes on the reference must pass
    python tests/suites/nats_py.py SOURCES --server reference     write the baseline anew, from the reference on PATH

SOURCES is a checkout of github.com/nats-io/nats.py. `nats_py.txt` names every test with its outcome on the reference;
a test that passes there and can not pass here has its reason behind a `#`. A test that fails is run once more, so that
a busy machine does not decide. Each group runs with a network of its own where the system allows it, because the older
tests use fixed ports.
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import baseline
from baseline import Outcome, Results, own_network

BASELINE: Final = Path(__file__).with_suffix(".txt")
TEST_TIMEOUT_S: Final = 90
PYTHONS: Final = ("python3.13", "python3.14")
"""What the newer packages need; where only an older Python is found, the classic package's tests run alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tests that need the same packages: `packages` of the sources are installed, each of `folders` has its `tests`."""

    name: str
    packages: tuple[str, ...]
    folders: tuple[str, ...]


GROUPS: Final = (
    Group("classic", ("./nats[nkeys,aiohttp]",), ("nats",)),
    Group(
        "core",
        ("./nats-server", "./nats-core[nkeys,websocket]", "./nats-jetstream", "./nats-key-value"),
        ("nats-core", "nats-server", "nats-jetstream", "nats-key-value"),
    ),
)
"""The two clients share the namespace `nats` and can not be installed together."""


def main() -> int:
    parser = baseline.parser_of(__doc__)
    parser.add_argument("--server", choices=("natsctl", "reference"), default="natsctl")
    arguments = parser.parse_args()
    work = baseline.folder_of(arguments, "nats-py")
    binaries = baseline.prepare_server(work, arguments.server)
    with ThreadPoolExecutor(len(GROUPS)) as pool:
        found = pool.map(lambda group: run_group(group, arguments.sources.resolve(), work, binaries), GROUPS)
        results: Results = {name: outcome for part in found for name, outcome in part.items()}
    return baseline.finish(results, BASELINE, "nats.py", write=arguments.server == "reference")


def run_group(group: Group, sources: Path, work: Path, binaries: Path) -> Results:
    python = environment(group, sources, work)
    if python is None:
        print(f"{group.name}: needs one of {', '.join(PYTHONS)}, not run", file=sys.stderr)
        return {}
    results: Results = {}
    for folder in group.folders:
        found = run_tests(sources / folder, work, binaries, python, ("tests",), "first")
        failed = [name for name, outcome in found.items() if outcome == "failed"]
        if failed:
            again = run_tests(sources / folder, work, binaries, python, node_ids(sources / folder, failed), "again")
            found.update({name: outcome for name, outcome in again.items() if name in found})
        results |= found
    return results


def environment(group: Group, sources: Path, work: Path) -> Path | None:
    """Return the Python of a virtual environment with the group's packages, None where there can be none."""
    folder = work / f"venv-{group.name}"
    python = folder / "bin" / "python"
    base = newer_python()
    if group.name == "classic":
        base = base or sys.executable
    if base is None:
        return None
    if not python.exists():
        subprocess.run([base, "-m", "venv", folder], check=True)
    tools = ["pytest", "pytest-asyncio", "pytest-timeout"]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *group.packages, *tools], cwd=sources, check=True)
    return python


def newer_python() -> str | None:
    """Return a Python that can run the newer packages, None where none is found."""
    if sys.version_info >= (3, 13):
        return sys.executable
    named = [found for name in PYTHONS if (found := shutil.which(name))]
    installed = [str(path) for name in PYTHONS for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for found in named + installed:
        if subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def run_tests(folder: Path, work: Path, binaries: Path, python: Path, paths: tuple[str, ...], run: str) -> Results:
    report, log = work / f"{folder.name}-{run}.xml", work / f"{folder.name}-{run}.log"
    command = [
        *own_network(), str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib",
        "-o", "asyncio_mode=auto", f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={report}", *paths,
    ]  # fmt: skip
    environ = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": ""}
    with log.open("wb") as out:
        subprocess.run(command, cwd=folder, env=environ, stdout=out, stderr=out, check=False)
    return {f"{folder.name} {case.get('classname')}::{case.get('name')}": outcome(case) for case in cases(report)}


def cases(report: Path) -> list[ET.Element]:
    """Return the test cases of a JUnit report; raises SystemExit where the run did not get that far."""
    if not report.exists():
        raise SystemExit(f"no test was run; see {report.with_suffix('.log')}")
    return list(ET.parse(report).getroot().iter("testcase"))


def outcome(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def node_ids(folder: Path, names: list[str]) -> tuple[str, ...]:
    """Return what pytest, run in `folder`, calls the tests of these names."""
    found = []
    for name in names:
        dotted, _, test = name.partition(" ")[2].partition("::")
        parts = dotted.removeprefix(f"{folder.name}.").split(".")
        for cut in range(len(parts), 0, -1):
            path = Path(*parts[:cut]).with_suffix(".py")
            if (folder / path).is_file():
                found.append("::".join([str(path), *parts[cut:], test]))
                break
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main())
