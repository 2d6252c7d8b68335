"""The tests of github.com/nats-io/natscli, unmodified, with natsctl as the `nats` that they run.

    python tests/suites/natscli.py SOURCES                      every test that passes with nats must pass
    python tests/suites/natscli.py SOURCES --tool reference     write the baseline anew, from the nats on PATH
    python tests/suites/natscli.py SOURCES --run 'TestServer'   only the tests whose names match

SOURCES is the folder of the module (`go mod download -json github.com/nats-io/natscli@v0.5.1` names it); Go builds the
program of its tests once. They start servers of their own and run `nats/nats` as a person would. `natscli.txt` names
every test with its outcome with nats; a test that passes there and can not pass here has its reason behind a `#`. Each
test is a process of its own, since one that panics ends all that would follow it; a test that fails is run once more.
Each has a network of its own where the system allows it, because their clusters use fixed ports; elsewhere they run one
after the other.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import baseline
from baseline import Outcome

BASELINE: Final = Path(__file__).with_suffix(".txt")
TEST_TIMEOUT_S: Final = 180
ENDS: Final[Mapping[str, Outcome]] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def main() -> int:
    parser = baseline.parser_of(__doc__)
    parser.add_argument("--tool", choices=("natsctl", "reference"), default="natsctl")
    parser.add_argument("--run", default="", help="only the tests whose names match this regular expression")
    arguments = parser.parse_args()
    work = baseline.folder_of(arguments, "natscli")
    program = build(arguments.sources.resolve(), work)
    install(work / "module" / "nats" / "nats", arguments.tool)
    names = [name for name in listed(program) if re.search(arguments.run, name)]
    run = partial(run_test, program, work)
    return baseline.finish(
        baseline.run_each(names, run), BASELINE, "natscli", write=arguments.tool == "reference" and not arguments.run
    )


def build(sources: Path, work: Path) -> Path:
    """Return the program that has the tests; the module is copied, since the cache of Go is read-only."""
    module, program = work / "module", work / "tests"
    if not module.exists():
        shutil.copytree(sources, module, copy_function=shutil.copyfile)
        for folder in (module, *(path for path in module.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
    if not program.exists():
        subprocess.run(["go", "test", "-c", "-o", program, "./nats/tests"], cwd=module, check=True)
    return program


def install(place: Path, tool: str) -> None:
    place.unlink(missing_ok=True)
    if tool == "natsctl":
        baseline.write_starter(place, '"$@"')
        return
    found = shutil.which("nats")
    if found is None:
        raise SystemExit("the reference nats is not on PATH")
    place.symlink_to(found)


def listed(program: Path) -> list[str]:
    done = subprocess.run([program, "-test.list", "."], capture_output=True, text=True, check=True)
    return done.stdout.split()


def run_test(program: Path, work: Path, name: str) -> Outcome:
    folder, home = work / "module" / "nats" / "tests", work / "home" / name
    home.mkdir(parents=True, exist_ok=True)
    command = [*baseline.own_network(), str(program), "-test.v", "-test.run", f"^{name}$"]
    environ = {**os.environ, "CI": "true", "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    with (work / f"{name}.log").open("w+b") as log:
        try:
            subprocess.run(command, cwd=folder, env=environ, stdout=log, stderr=log, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "failed"
        log.seek(0)
        end = re.search(rf"^--- (PASS|FAIL|SKIP): {name} ".encode(), log.read(), re.MULTILINE)
    return ENDS[end[1].decode()] if end else "failed"


if __name__ == "__main__":
    sys.exit(main())
