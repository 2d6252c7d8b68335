"""The nats.c repository's own tests, unmodified, with natsctl's server as their server.

    python tests/suites/nats_c.py SOURCES                        every test that passes on nats-server must pass
    python tests/suites/nats_c.py SOURCES --server reference     write the baseline anew, from the nats-server on PATH

SOURCES is a checkout of github.com/nats-io/nats.c; CMake, a C compiler and OpenSSL's headers build its `testsuite`.
`nats_c.txt` names every test with its outcome on nats-server; a test that passes there and can not pass here has its
reason behind a `#`. A test that fails is run once more. Each has a network of its own where the system allows it,
because the tests use fixed ports; elsewhere they run one after the other.
"""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import baseline
from baseline import Outcome

BASELINE: Final = Path(__file__).with_suffix(".txt")
TEST_TIMEOUT_S: Final = 180


def main() -> int:
    parser = baseline.parser_of(__doc__)
    parser.add_argument("--server", choices=("natsctl", "reference"), default="natsctl")
    arguments = parser.parse_args()
    work = baseline.folder_of(arguments, "nats-c")
    sources = arguments.sources.resolve()
    server = baseline.prepare_server(work, arguments.server) / "nats-server"
    version = subprocess.run([server, "-v"], capture_output=True, text=True, check=True).stdout
    environ = {**os.environ, "NATS_TEST_SERVER_EXE": str(server), "NATS_TEST_SERVER_VERSION": version.strip()}
    run = partial(run_test, sources / "test", work, build(sources, work), environ)
    names = re.findall(r"_test\((\w+)\)", (sources / "test" / "list_test.txt").read_text())
    return baseline.finish(baseline.run_each(names, run), BASELINE, "nats.c", write=arguments.server == "reference")


def build(sources: Path, work: Path) -> Path:
    program = work / "build" / "bin" / "testsuite"
    if not program.exists():
        options = ["-DNATS_BUILD_STREAMING=OFF", "-DNATS_BUILD_EXAMPLES=OFF", "-DCMAKE_BUILD_TYPE=Release"]
        subprocess.run(["cmake", "-S", sources, "-B", work / "build", *options], check=True, stdout=subprocess.DEVNULL)
        make = ["cmake", "--build", work / "build", "--target", "testsuite", "--parallel", str(baseline.WORKERS)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return program


def run_test(folder: Path, work: Path, program: Path, environ: dict[str, str], name: str) -> Outcome:
    with (work / f"{name}.log").open("w+b") as log:
        try:
            command = [*baseline.own_network(), str(program), name]
            status = subprocess.run(command, cwd=folder, env=environ, stdout=log, stderr=log, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "failed"
        log.seek(0)
        text = log.read()
    if status.returncode or b"ALL PASSED" not in text:
        return "failed"
    return "skipped" if b"Skipping since" in text else "passed"


if __name__ == "__main__":
    sys.exit(main())
