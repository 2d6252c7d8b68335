"""`natsctl migrate` between two servers: everything arrives, a killed run is continued, a failed one is taken back."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.cli.main import run as run_main
from natsctl.client.connection import Connection
from natsctl.client.migration.destination import MigrationDestination
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import clear, eventually
from tests.support.commands import Done, Run
from tests.support.migration_kills import compare, configs, fill

OWN = pytest.mark.ours("what a migration does when it fails is its own")
KILLED = -signal.SIGKILL
INTERRUPTED = 130
FEW = 5


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("other"), getattr(request, "param", "natsctl")) as process:
        yield process


@pytest.fixture
def migrate(natsctl: Run, shared_server: ServerProcess, other: ServerProcess, tmp_path: Path) -> Iterator[Run]:
    """Runs `natsctl migrate` from the shared server to the other one, both without streams at first."""

    def run(*words: str) -> Done:
        return natsctl(
            "migrate", "--from", shared_server.url, "--to", other.url, "--dir", str(tmp_path / "copy"), *words
        )

    clear(other)
    yield run
    clear(other)


def infos(run: Run) -> dict[str, Any]:
    found = [run("str", "info", name, "-j").json for name in run("str", "ls", "-a", "-n").out.split()]
    return {one["config"]["name"]: (one["config"], one["state"]["messages"]) for one in found}


@pytest.fixture
def there(natsctl: Run, other: ServerProcess) -> Run:
    return lambda *words: natsctl("--server", other.url, *words)


@pytest.mark.parametrize("other", ["natsctl", "reference"], indirect=True)
def test_everything_moves(migrate: Run, there: Run, natsctl: Run, shared_server: ServerProcess, other: Any) -> None:
    streams = configs(6)
    names = [config["name"] for config in streams]
    asyncio.run(fill(shared_server.url, streams, 300))
    before = {name: natsctl("str", "info", name, "-j").json["config"] for name in names}
    copied = migrate("-j")
    assert (copied.code, copied.json["action"], len(copied.json["streams"])) == (0, "copied", 6), copied.err
    assert infos(there) == {}
    assert natsctl("pub", "S00.late", "late", "--wait").code == 0

    moved = migrate("--cutover", "-j")
    assert (moved.code, moved.json["action"]) == (0, "moved"), moved.err
    assert {one["phase"] for one in moved.json["streams"]} == {"done"}
    assert moved.json["streams"][0]["sha256"]
    assert [one["warnings"] for one in moved.json["streams"]] == [[]] * 6
    assert asyncio.run(compare(Path(copied.json["folder"]), shared_server.url, other.url, names)) == []
    for name in names:
        after = there("str", "info", name, "-j").json["config"]
        assert after["subjects"] == before[name]["subjects"]
        assert "natsctl.migration" not in after.get("metadata", {})
    assert json.loads(there("con", "info", "S00", "work", "-j").out).get("paused") is not True
    assert natsctl("pub", "S00.later", "x", "--wait").code != 0
    assert there("pub", "S00.later", "x", "--wait", "-j").json["seq"] == 52
    again = migrate("--cutover", "-j")
    assert (again.code, again.json["streams"]) == (0, [])


@pytest.fixture
def orders(natsctl: Run, migrate: Run) -> Run:
    """The migration of a stream with a consumer that waits for two acks, which holds 20 messages."""
    assert natsctl("str", "add", "ORDERS", "--subjects", "orders.*", "--defaults").code == 0
    assert natsctl("con", "add", "ORDERS", "WORK", "--pull", "--wait", "1h", "--defaults").code == 0
    assert natsctl("pub", "orders.new", "{{Count}}", "--count", "20", "-q", "-J", "-H", "A: b").code == 0
    assert natsctl("con", "next", "ORDERS", "WORK", "--count", "2", "--no-ack").code == 0
    assert natsctl("con", "next", "ORDERS", "WORK", "--count", "3").code == 0
    return migrate


@pytest.mark.parametrize("other", ["natsctl", "reference"], indirect=True)
def test_mirrors_sources_and_buckets_continue(migrate: Run, natsctl: Run, there: Run) -> None:
    for line in (
        "str add ORDERS --subjects orders.* --defaults",
        "pub orders.new {{Count}} --count 20 -q -J",
        "str rmm ORDERS 7 -f",
        "str add COPY --mirror ORDERS --defaults",
        "str add ALL --source ORDERS --subjects all.* --defaults",
        "str add SEALED --subjects sealed --defaults",
        "pub sealed x -J -q",
        "str seal SEALED -f",
        "kv add B --history 3",
        "kv put B k v",
        "kv del B k -f",
        "str add EMPTY --subjects empty --defaults",
        "pub empty x --count 4 -J -q",
        "str purge EMPTY -f",
    ):
        assert natsctl(*line.split()).code == 0, line
    eventually(lambda: reached(natsctl, "COPY") == 20 and reached(natsctl, "ALL") == 19)
    moved = migrate("--cutover", "-j")
    assert moved.code == 0, moved.err
    assert {one["stream"]: (one["first_seq"], one["last_seq"]) for one in moved.json["streams"]} == {
        "ALL": (1, 19),
        "COPY": (1, 20),
        "EMPTY": (5, 4),
        "KV_B": (1, 2),
        "ORDERS": (1, 20),
        "SEALED": (1, 1),
    }
    assert there("pub", "orders.new", "late", "-J", "-q").code == 0
    eventually(lambda: reached(there, "COPY") == 21 and reached(there, "ALL") >= 20)
    assert reached(there, "ALL") == 20
    assert there("pub", "empty", "x", "--wait", "-j").json["seq"] == 5
    assert there("str", "info", "SEALED", "-j").json["config"]["sealed"]
    assert "DEL" in there("kv", "history", "B", "k").out.upper()


def reached(run: Run, stream: str) -> int:
    return int(run("str", "info", stream, "-j").json["state"]["last_seq"])


def killed_at(asked: str, before: bool, words: list[str], with_signal: int = signal.SIGKILL) -> int:
    """Return the exit status of a command that gets a signal before or after it sends a request on such a subject."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        request = Connection.request

        async def requested(self: Connection, subject: str, *given: Any, **more: Any) -> Any:
            if asked in subject and before:
                os.kill(os.getpid(), with_signal)
            answer = await request(self, subject, *given, **more)
            if asked in subject:
                os.kill(os.getpid(), with_signal)
            return answer

        Connection.request = requested  # type: ignore[method-assign]
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        code = run_main(words)
    finally:
        os._exit(code)


@pytest.mark.live
@pytest.mark.parametrize(
    ("asked", "before"),
    [
        ("STREAM.UPDATE", True),
        ("STREAM.UPDATE", False),
        ("CONSUMER.PAUSE", False),
        ("STREAM.SNAPSHOT", False),
        ("STREAM.RESTORE", False),
        ("CONSUMER.LIST", False),
    ],
)
def test_a_killed_cutover_is_finished_by_the_next(
    asked: str, before: bool, orders: Run, there: Run, shared_server: ServerProcess, other: Any, tmp_path: Path
) -> None:
    copy = ["--dir", str(tmp_path / "copy")]
    words = ["migrate", "--from", shared_server.url, "--to", other.url, *copy, "--cutover"]
    assert killed_at(asked, before, words) == KILLED
    moved = orders("--cutover", "-j")
    assert moved.code == 0, moved.err
    assert asyncio.run(compare(tmp_path, shared_server.url, other.url, ["ORDERS"])) == []
    assert there("str", "info", "ORDERS", "-j").json["config"]["subjects"] == ["orders.*"]
    consumer = there("con", "info", "ORDERS", "WORK", "-j").json
    assert (consumer["num_ack_pending"], consumer["ack_floor"]["stream_seq"]) == (2, 0)


@OWN
def test_a_cutover_killed_while_it_opens_goes_forward_only(
    orders: Run, there: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(self: MigrationDestination, name: str, *rest: Any) -> None:
        raise UnreachableError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(MigrationDestination, "open", unreachable)
        assert orders("--cutover").code == 5
    refused = orders("--abort", "-j")
    assert (refused.code, "is open: clients may have" in refused.error["description"]) == (4, True)
    assert (orders("-j").code, orders("--cutover").code) == (4, 0)
    assert there("pub", "orders.new", "x", "--wait", "-j").json["seq"] == 21
    assert orders("--abort").code == 4
    elsewhere = orders("--abort", "--dir", str(tmp_path / "elsewhere"), "-j")
    assert (elsewhere.code, "is open" in elsewhere.error["description"]) == (4, True)


@OWN
@pytest.mark.live
@pytest.mark.parametrize("asked", ["STREAM.UPDATE", "STREAM.RESTORE"])
def test_a_killed_cutover_is_taken_back_from_another_machine(
    asked: str, orders: Run, natsctl: Run, there: Run, other: ServerProcess, shared_server: Any, tmp_path: Path
) -> None:
    before = infos(natsctl)
    sides = ["migrate", "--from", shared_server.url, "--to", other.url]
    assert killed_at(asked, False, [*sides, "--dir", str(tmp_path / "lost"), "--cutover"]) == KILLED
    assert "migrating" in json.dumps(infos(natsctl))
    held = orders("--cutover", "-j")
    assert (held.code, "another migration has stopped ORDERS" in held.error["description"]) == (4, True)
    back = orders("--abort", "-j")
    assert (back.code, back.json["action"]) == (0, "taken back"), back.err
    assert (infos(natsctl), infos(there)) == (before, {})
    assert natsctl("con", "info", "ORDERS", "WORK", "-j").json.get("paused") is not True
    assert orders("--cutover").code == 0


@OWN
def test_a_cutover_to_another_server_is_not_taken_back(
    orders: Run, natsctl: Run, other: ServerProcess, shared_server: Any, tmp_path: Path
) -> None:
    """Its destination may be open: with the origin open as well, clients would publish to both."""
    elsewhere = other.url.replace("127.0.0.1", "localhost")
    sides = ["migrate", "--from", shared_server.url, "--to", elsewhere, "--dir", str(tmp_path / "there")]
    assert natsctl(*sides, "--cutover").code == 0
    held = orders("--abort", "-j")
    assert (held.code, f"to be moved to {elsewhere}" in held.error["description"]) == (4, True)
    assert natsctl("pub", "orders.new", "x", "--wait").code != 0


@OWN
def test_an_interrupted_cutover_is_taken_back(
    orders: Run, natsctl: Run, there: Run, other: ServerProcess, shared_server: Any, tmp_path: Path
) -> None:
    before = infos(natsctl)
    words = ["migrate", "--from", shared_server.url, "--to", other.url, "--dir", str(tmp_path / "copy"), "--cutover"]
    assert killed_at("STREAM.RESTORE", False, words, signal.SIGINT) == INTERRUPTED
    assert (infos(natsctl), infos(there)) == (before, {})
    assert orders("--cutover").code == 0


@OWN
def test_a_cutover_that_fails_is_taken_back(
    orders: Run, natsctl: Run, there: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def differs(self: MigrationDestination, name: str, *rest: Any) -> None:
        raise NatsctlError(f"{name} differs")

    before = infos(natsctl)
    with monkeypatch.context() as patched:
        patched.setattr(MigrationDestination, "compare", differs)
        failed = orders("--cutover", "-j")
    assert (failed.code, failed.error["description"]) == (1, "ORDERS differs")
    assert (infos(natsctl), infos(there)) == (before, {})
    assert natsctl("con", "next", "ORDERS", "WORK", "--raw").code == 0
    assert orders("--cutover").code == 0


@OWN
def test_reasons_that_hold_a_migration_are_named_and_nothing_is_changed(
    orders: Run, natsctl: Run, there: Run, tmp_path: Path
) -> None:
    assert natsctl("str", "add", "EVENTS", "--subjects", "events", "--defaults").code == 0
    assert there("str", "add", "ORDERS", "--subjects", "x", "--defaults").code == 0
    assert there("str", "add", "OTHER", "--subjects", "ev*", "events", "--defaults").code in (0, 2)
    assert there("str", "add", "OTHER", "--subjects", "events", "--defaults").code in (0, 4)
    before = infos(natsctl), infos(there)
    for words in ((), ("--cutover",), ("--sample", "3")):
        held = orders(*words, "-j")
        assert held.code == 4
        assert "has a stream ORDERS" in held.error["description"]
        assert "has stream OTHER on a subject of EVENTS" in held.error["description"]
    assert (infos(natsctl), infos(there)) == before
    missing = orders("NOPE", "-j")
    assert (missing.code, "no stream NOPE" in missing.error["description"]) == (3, True)
    assert (there("str", "rm", "ORDERS", "-f").code, there("str", "rm", "OTHER", "-f").code) == (0, 0)


@OWN
def test_a_dry_run_changes_nothing(orders: Run, natsctl: Run, there: Run, tmp_path: Path) -> None:
    before = infos(natsctl)
    dry = orders("--cutover", "--dry-run", "-j")
    assert (dry.code, dry.json["effect"]["messages"]) == (0, 20), dry.err
    assert [one["subject"].split(".")[3] for one in dry.json["requests"]] == ["UPDATE", "RESTORE"]
    assert (infos(natsctl), infos(there), (tmp_path / "copy").exists()) == (before, {}, False)


@OWN
def test_a_sample_leaves_the_origin_alone(orders: Run, natsctl: Run, there: Run) -> None:
    before = infos(natsctl)
    sampled = orders("--sample", str(FEW), "-j")
    assert (sampled.code, sampled.json["action"], sampled.json["messages"]) == (0, "sampled", FEW), sampled.err
    assert infos(natsctl) == before
    state = there("str", "info", "ORDERS", "-j").json["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (FEW, 16, 20)
    assert there("pub", "orders.new", "x", "--wait", "-j").json["seq"] == 21
    assert there("str", "rm", "ORDERS", "-f").code == 0
    since = orders("--since", "1h", "-j")
    assert (since.code, since.json["messages"]) == (0, 20), since.err


@pytest.mark.ours("no server is asked")
def test_an_unknown_context_is_not_found(natsctl: Run) -> None:
    missing = natsctl("migrate", "--from", "nowhere", "--to", "elsewhere", "-j")
    assert (missing.code, "nowhere" in missing.error["description"]) == (3, True)
