"""kill -9, Ctrl-C and lost connections in the middle of an apply; and two applies at once. On both servers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

pytestmark = [pytest.mark.both, pytest.mark.live, pytest.mark.timeout(600)]

SEED = 20261121
STREAMS, CONSUMERS = 40, 4
WITHIN_S = 60.0
MESSAGES, ACKED = 400, 25


class Applying:
    """`natsctl` as processes on one server, in one folder."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.folder = folder
        self._environment = {**os.environ, "NATS_URL": server.url, "HOME": str(folder), "NO_COLOR": "1"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "natsctl", *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=WITHIN_S)
        return process.returncode, out, err

    def ask(self, *words: str) -> Any:
        code, out, err = self.run(*words, "-j")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def applying(server: ServerProcess, tmp_path: Path) -> Iterator[Applying]:
    folder = tmp_path / "work"
    folder.mkdir()
    yield Applying(server, folder)


def many(folder: Path, *, max_msgs: int = -1) -> str:
    """A document of some hundred assets; mirrors have to wait for their origins."""
    streams: list[dict[str, Any]] = []
    for number in range(STREAMS):
        consumers = [
            {"durable_name": f"C{one}", "ack_policy": "explicit", "filter_subject": f"S{number}.{one}"}
            for one in range(CONSUMERS)
        ]
        streams.append(
            {"name": f"S{number}", "subjects": [f"S{number}.>"], "max_msgs": max_msgs, "consumers": consumers}
        )
        if number % 10 == 0:
            streams.insert(0, {"name": f"M{number}", "mirror": {"name": f"S{number}"}})
    path = folder / "many.json"
    path.write_text(json.dumps({"streams": streams}))
    return str(path)


def begun(process: subprocess.Popen[str], lines: int) -> list[str]:
    assert process.stderr is not None
    return [process.stderr.readline() for _ in range(lines)]


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What an apply tells until it ends; `communicate` would pass over what `begun` has read ahead."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        err, out = process.stderr.read(), process.stdout.read()
    return out, err


def is_as_described(applying: Applying, path: str) -> None:
    code, out, err = applying.run("apply", "-f", path)
    assert (code, err) == (0, "")
    mirrors = len(range(0, STREAMS, 10))
    assert out == f"nothing to do: {STREAMS * (CONSUMERS + 1) + mirrors} assets as described\n"
    # A mirror reads its origin by a consumer that the server makes, which the reference does a moment later.
    wanted = (STREAMS + mirrors, STREAMS * CONSUMERS + mirrors)
    deadline = time.monotonic() + WITHIN_S
    while (found := counted(applying)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == wanted


def counted(applying: Applying) -> tuple[int, int]:
    counts = applying.ask("account", "info")
    return counts["streams"], counts["consumers"]


def test_after_a_kill_in_the_middle_of_an_apply_the_next_one_makes_the_rest(applying: Applying) -> None:
    chance = random.Random(SEED)
    path = many(applying.folder)
    process = applying.start("apply", "-f", path)
    told = begun(process, chance.randrange(1, STREAMS * CONSUMERS))
    process.kill()
    process.communicate(timeout=WITHIN_S)
    assert all(line.startswith("created ") for line in told)
    code, out, err = applying.run("apply", "-f", path)
    assert code == 0, err
    assert "failed" not in out
    is_as_described(applying, path)


def test_ctrl_c_tells_what_was_done_and_leaves_nothing_half_made(applying: Applying) -> None:
    path = many(applying.folder)
    process = applying.start("apply", "-f", path, "--concurrency", "2")
    told = begun(process, 3)
    process.send_signal(signal.SIGINT)
    out, err = ended(process)
    assert process.returncode == 130
    assert out.startswith("interrupted: ")
    told += err.splitlines()
    made = [line.removeprefix("created Stream ").strip() for line in told if line.startswith("created Stream ")]
    assert sorted(made) == sorted(applying.ask("str", "ls", "-n", "-a"))
    assert any(line.endswith(": interrupted") for line in told)
    assert not any("failed" in line for line in told)


def test_a_server_that_dies_ends_an_apply_with_what_was_done(applying: Applying, server: ServerProcess) -> None:
    path = many(applying.folder)
    process = applying.start("apply", "-f", path, "--concurrency", "2")
    told = begun(process, 3)
    server.kill()
    out, err = ended(process)
    assert process.returncode == 5, err
    assert all(line.startswith("created ") for line in told)
    assert out.startswith("the connection was lost: ")
    told += [line for line in err.splitlines() if line.startswith(("created ", "failed ", "skipped "))]
    assert len(told) == STREAMS * (CONSUMERS + 1) + len(range(0, STREAMS, 10)), err
    assert any(line.startswith("skipped ") and line.endswith(": the connection was lost") for line in told)


def test_two_applies_of_the_same_documents_at_once_make_everything_once(applying: Applying) -> None:
    path = many(applying.folder)
    both = [applying.start("apply", "-f", path) for _ in range(2)]
    ends = [(process.communicate(timeout=WITHIN_S), process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    changed = many(applying.folder, max_msgs=99)
    both = [applying.start("apply", "-f", changed, "-j") for _ in range(2)]
    ends = [(process.communicate(timeout=WITHIN_S), process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    assert sum(json.loads(out)["summary"]["updated"] for (out, _), _ in ends) >= STREAMS
    is_as_described(applying, changed)


def kept(folder: Path, storage: str) -> str:
    path = folder / "kept.json"
    consumers = [{"durable_name": "C", "ack_policy": "explicit"}]
    stream = {"name": "KEPT", "subjects": ["KEPT.>"], "storage": storage, "consumers": consumers}
    path.write_text(json.dumps({"streams": [stream]}))
    return str(path)


def test_a_kill_while_a_stream_is_replaced_loses_no_message(applying: Applying) -> None:
    """Killed anywhere between the backup and the end of the restore, the next apply brings all of it back."""
    chance = random.Random(SEED)
    code, _, err = applying.run("apply", "-f", kept(applying.folder, "file"))
    assert code == 0, err
    applying.run("pub", "KEPT.x", "message {{Count}} " + "x" * 2000, "--count", str(MESSAGES), "--wait")
    applying.run("con", "next", "KEPT", "C", "--count", str(ACKED), "--ack")
    assert applying.ask("con", "info", "KEPT", "C")["ack_floor"]["stream_seq"] == ACKED
    words = ("--allow-replace", "--keep-messages", "--yes")
    path = kept(applying.folder, "memory")
    process = applying.start("apply", "-f", path, *words)
    begun(process, 1)
    time.sleep(chance.random() * 0.1)  # the kill comes at any moment
    process.kill()
    process.communicate(timeout=WITHIN_S)
    code, _, err = applying.run("apply", "-f", path, *words)
    assert code == 0, err
    info = applying.ask("str", "info", "KEPT")
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (MESSAGES, MESSAGES), err
    assert (info["config"]["storage"], info["config"]["subjects"]) == ("memory", ["KEPT.>"])
    assert applying.ask("con", "info", "KEPT", "C")["ack_floor"]["stream_seq"] == ACKED
    assert applying.ask("str", "ls", "-n", "-a") == ["KEPT"], err
