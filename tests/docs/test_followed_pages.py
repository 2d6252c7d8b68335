"""Pages followed literally on a fresh clone: every command block in a shell, in order, on the ports that it names.

The shell has a loopback interface of its own if the system allows that, so that port 4222 is free.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.test_pages import BLOCK, DOCS, ROOT, STATUS, Block, blocks, follow

pytestmark = [
    pytest.mark.docs,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (ROOT / ".git").exists() or os.name != "posix", reason="this is not a clone"),
]
OWN_NETWORK = ["unshare", "--map-root-user", "--net"]
MARK = "\x01"
NEEDS_SPARK = "# needs the Spark extra"
WITHIN_S = 60.0
SECTION = re.compile(r"^## ", re.MULTILINE)


class Shell:
    """A shell that runs one line after the other, with the environment of a user who has just logged in."""

    def __init__(self, folder: Path, home: Path, *, network: bool) -> None:
        self.folder = folder
        left = {"PYTHONPATH", "VIRTUAL_ENV", "NATS_URL", "NATS_CONTEXT"}
        kept = {name: value for name, value in os.environ.items() if name not in left and not name.startswith("XDG_")}
        cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        alone = not network and subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode == 0
        begin = "ip link set lo up; exec bash --norc" if alone else "exec bash --norc"
        self._bash = subprocess.Popen(
            [*(OWN_NETWORK if alone else ()), "bash", "-c", begin],
            cwd=folder, env={**kept, "HOME": str(home), "PATH": path, "PIP_CACHE_DIR": cache, "COLUMNS": "120"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, line: str) -> str:
        """Run a line and return what it printed; its exit status is 0, or that of its comment."""
        if line.startswith("natsctl server run"):
            return self._serve(line)
        ended, printed = self._ended(line)
        if line.endswith(NEEDS_SPARK):
            assert ended == 0 or "spark" in printed, f"{line}\n{printed}"
            return printed
        status = STATUS.search(line)
        assert ended == (int(status[1]) if status else 0), f"{line}\n{printed}"
        return printed

    def _ended(self, line: str) -> tuple[int, str]:
        assert self._bash.stdin is not None and self._bash.stdout is not None
        self._bash.stdin.write(f"{{ {line}\n}} </dev/null; printf '\\n{MARK}%s\\n' $?\n")
        self._bash.stdin.flush()
        printed = ""
        while MARK not in (got := self._bash.stdout.readline()):
            assert got, f"{line}: the shell has ended\n{printed}"
            printed += got
        return int(got.removeprefix(MARK)), printed

    def _serve(self, line: str) -> str:
        """Start a server as in a terminal of its own, and wait until it is ready."""
        log = self.folder / "server.log"
        log.unlink(missing_ok=True)
        self._ended(f"{line} >{log} 2>&1 &")
        deadline = time.monotonic() + WITHIN_S
        while "Server is ready" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return log.read_text()

    def close(self) -> None:
        self._ended("kill $(jobs -p); wait")
        assert self._bash.stdin is not None and self._bash.stdout is not None
        self._bash.stdin.close()
        assert self._bash.wait(WITHIN_S) == 0
        self._bash.stdout.close()


def sections(page: Path, first: int, last: int) -> list[Block]:
    text = "".join(SECTION.split(page.read_text())[first : last + 1])
    return [Block(*match) for match in BLOCK.findall(text)]


def install(folder: Path) -> Path:
    """Follow section 1 of the tutorial in a fresh clone: the installation."""
    probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "-d", str(folder), "h11"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no package index can be reached")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    with closing(Shell(clone, folder, network=True)) as shell:
        assert len(follow(sections(DOCS / "tutorial.md", 1, 1), shell.folder, shell.run)) == 4
    return clone


def test_the_tutorial_and_how_to_pages_are_followed_on_a_fresh_clone(tmp_path: Path) -> None:
    clone, how_to = install(tmp_path), DOCS / "how-to"
    tutorial = DOCS / "tutorial.md"
    # The how-to pages begin after the first sections of the tutorial.
    for page, begin, lines in (
        (sections(tutorial, 2, 99), 0, 25),
        (blocks(how_to / "back-up-and-restore.md"), 3, 20),
        (blocks(how_to / "provision-from-ci.md"), 2, 5),
        (blocks(how_to / "handle-messages-that-fail.md"), 3, 16),
    ):
        with closing(Shell(clone, tmp_path, network=False)) as shell:
            shell.run(". .venv/bin/activate")
            follow(sections(tutorial, 2, begin), shell.folder, shell.run)
            assert len(follow(page, shell.folder, shell.run)) == lines
        subprocess.run(["git", "clean", "-qfdx", "-e", ".venv", "-e", "natsctl"], cwd=clone, check=True)
