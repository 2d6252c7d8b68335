"""Work that a version of natsctl leaves unfinished: `python -m tests.support.stored_work CLONE OUT [work|spark]`.

Run once for each version from now on, as stored_version.py is; `tests/store/test_upgrade_work.py` and
`tests/spark/test_upgrade.py` go on with it in every later version. OUT gets two archives:

* `work.tar.gz`: contexts, a saved plan, a bundle of an audit, the key file of an obfuscated backup, the layout of a
  local cluster; a migration with copied messages, another one killed as it was about to open the destination, a
  replacement of a stream killed when its messages were saved; the stores of both servers.
* `spark.tar.gz`: a streaming query that failed within its third batch, when one of two tasks had written its rows; an
  incremental export; the store of the server.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.raw_client import RawClient
from tests.support.stored_version import SERVER, api, fill, publish, shown, url_of

KILLED_OPENING: Final = """
import os
from natsctl.client.migration.destination import Destination
async def killed(*_): os.kill(os.getpid(), 9)
Destination.open = killed
"""
KILLED_SAVED: Final = """
import os
from natsctl.desired.apply.holding_stream import Holding, Phase
mark = Holding.mark
async def killed(self, phase):
    await mark(self, phase)
    if phase is Phase.SAVED: os.kill(os.getpid(), 9)
Holding.mark = killed
"""
CLUSTER: Final = """
import sys, msgspec
from natsctl.testing import local_cluster
open(sys.argv[1], "wb").write(msgspec.json.encode(local_cluster.Layout.create("c1", 3)))
"""
PLANNED: Final = {"streams": [{"name": "EMPTY", "subjects": ["empty"], "max_age": "1h"}, {"name": "NEW"}]}
REPLACED: Final = {
    "streams": [{"name": "SHORT", "subjects": ["short.>"], "max_msgs": 20, "storage": "memory"}],
    "owner": "team",
}
AUDITED: Final = """
listen: "127.0.0.1:-1"
accounts {
  SYS { users: [{user: sys, password: sys}] }
  APP { jetstream: enabled, users: [{user: app, password: app}] }
}
system_account: SYS
"""
HIDDEN: Final = "hidden.tgz"
ROWS, BATCH, STOPPED_AT = 400, 100, 250
QUERY: Final = """
import sys
from pyspark.sql import functions as f
from natsctl.spark.session import SparkOptions, open_session
url, checkpoint, stopped_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_session(SparkOptions(master="local[1]", conf=(("spark.ui.enabled", "false"),))) as spark:
    read = spark.readStream.format("jetstream").option("servers", url).option("startingOffsets", "earliest")
    read = read.option("maxOffsetsPerTrigger", 100).option("maxRecordsPerPartition", 50)
    rows = read.load("IN")
    if stopped_at:
        fails = f.raise_error(f.lit("stopped")).cast("binary")
        rows = rows.withColumn("value", f.when(f.col("seq") > stopped_at, fails).otherwise(f.col("value")))
    rows = rows.selectExpr("replace(subject, 'in.', 'out.') AS subject", "stream", "seq", "value")
    write = rows.writeStream.format("jetstream").option("servers", url).option("checkpointLocation", checkpoint)
    query = write.option("idempotence", "ledger").trigger(availableNow=True).start("OUT")
    try:
        query.awaitTermination()
    except Exception as failure:
        sys.exit(0 if stopped_at and "stopped" in str(failure) else str(failure))
"""
"""A streaming query that copies IN to OUT, with the ledger: a kept store is opened long after its duplicate windows."""


def natsctl(clone: Path, home: Path, *words: str, patch: str = "", status: int = 0) -> None:
    """Run a command of the version in `clone`, with code of `patch` before it. Raises AssertionError."""
    program = f"{patch}\nimport sys\nfrom natsctl.cli.main import main\nsys.argv = ['natsctl', *sys.argv[1:]]\nmain()"
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=clone, env=environment(clone, home), check=False)
    assert done.returncode == status, (words, done.returncode)


def environment(clone: Path, home: Path) -> dict[str, str]:
    """Return the environment of a version's processes, Spark's among them."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS")}
    paths = os.pathsep.join(map(str, (clone, clone / "natsctl" / "spark")))
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "PYTHONPATH": paths, "NO_COLOR": "1"}


@contextmanager
def serving(clone: Path, folder: Path, *flags: str) -> Iterator[str]:
    """Yield the URL of a server of the version, which is stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    code = SERVER.format(folder=str(folder)).replace("\nmain()", f"\nsys.argv += {list(flags)!r}\nmain()")
    with subprocess.Popen([sys.executable, "-c", code], cwd=clone, env=environment(clone, folder)) as server:
        try:
            yield asyncio.run(asyncio.wait_for(url_of(folder), 60))
        finally:
            server.send_signal(signal.SIGTERM)


async def _filled(url: str) -> dict[str, dict[str, object]]:
    """Fill a server as stored_version.py does, and return the content of its streams."""
    client = await RawClient.connect(url)
    await fill(client)
    names = (await api(client, "STREAM.NAMES"))["streams"]
    found = {name: await shown(client, name) for name in names}
    await client.close()
    return found


def record_work(clone: Path, folder: Path) -> Sequence[str]:
    """Leave work unfinished in `folder`, and return the names of what is to be kept there."""
    with serving(clone, folder / "origin") as origin, serving(clone, folder / "destination") as destination:
        expected = asyncio.run(_filled(origin))
        (folder / "expected.json").write_text(json.dumps(expected, indent=1))

        def run(*words: str, patch: str = "", status: int = 0) -> None:
            natsctl(clone, folder, *words, patch=patch, status=-signal.SIGKILL if patch else status)

        run("context", "add", "origin", "--server", origin, "--description", "of an earlier version", "--select")
        run("context", "add", "destination", "--server", destination)
        moved = ("migrate", "--from", "origin", "--to", "destination")
        run(*moved, "--dir", str(folder / "copied"), "ORDERS", "PACKED")
        run(*moved, "--dir", str(folder / "opening"), "--cutover", "WORK", patch=KILLED_OPENING)
        (folder / "replaced.json").write_text(json.dumps(REPLACED))
        replace = ("--allow-replace", "--keep-messages", "--adopt", "--yes")
        run("apply", str(folder / "replaced.json"), *replace, patch=KILLED_SAVED)
        (folder / "planned.json").write_text(json.dumps({**PLANNED, "owner": "team"}))
        run("plan", str(folder / "planned.json"), "--adopt", "--out", str(folder / "plan.json"), status=10)
        run("stream", "backup", "PACKED", str(folder / "packed.tgz"))
        run("backup", "edit", str(folder / "packed.tgz"), str(folder / HIDDEN), "--obfuscate")
    (folder / "audit.conf").write_text(AUDITED)
    with serving(clone, folder / "audited", "-c", str(folder / "audit.conf")) as url:
        stream = ("stream", "add", "SEEN", "--subjects", "seen", "--defaults")
        bundle = ("audit", "gather", "--no-server-profiles", "-o", str(folder / "audit.zip"))
        for user, words in (("app", stream), ("sys", bundle)):
            natsctl(clone, folder, "-s", url.replace("://", f"://{user}:{user}@"), *words)
    layout = [sys.executable, "-c", CLUSTER, str(folder / "cluster.json")]
    subprocess.run(layout, cwd=clone, env=environment(clone, folder), check=True)
    stores = ("origin/jetstream", "destination/jetstream")
    files = ("config", "copied", "opening", "replaced.json", "plan.json", "packed.tgz", "audit.zip", "cluster.json")
    return (*stores, *files, HIDDEN, next(path.name for path in folder.glob(f"{HIDDEN}.*")), "expected.json")


async def _with_rows(url: str) -> None:
    client = await RawClient.connect(url)
    for name in ("IN", "OUT"):
        config = {"name": name, "subjects": [f"{name.lower()}.>"]}
        assert "error" not in await api(client, f"STREAM.CREATE.{name}", config)
    for number in range(1, ROWS + 1):
        await publish(client, b"in.%d" % (number % 7), b"row %d" % number, b"")
    await client.close()


async def content(url: str, stream: str) -> Mapping[str, object]:
    client = await RawClient.connect(url)
    found = await shown(client, stream)
    await client.close()
    return found


def query(clone: Path, folder: Path, url: str, stopped_at: int = 0) -> None:
    """Run the streaming query of a version, to the end or until a row fails. Raises CalledProcessError."""
    command = [sys.executable, "-c", QUERY, url, str(folder / "checkpoint"), str(stopped_at)]
    subprocess.run(command, cwd=clone, env=environment(clone, folder), check=True, timeout=300)


def record_spark(clone: Path, folder: Path) -> Sequence[str]:
    """Stop a query within a batch and an export between two runs in `folder`; return the names of what to keep."""
    with serving(clone, folder) as url:
        asyncio.run(_with_rows(url))
        query(clone, folder, url, STOPPED_AT)
        stored = asyncio.run(content(url, "OUT"))["state"]
        assert stored["messages"] == STOPPED_AT, stored  # type: ignore[index]  # a state, as `shown` gives it
        export = ("stream", "export", "IN", str(folder / "export"), "--incremental", "--master", "local[1]")
        natsctl(clone, folder, "-s", url, *export)
    return ("jetstream", "checkpoint", "export")


def main() -> None:
    clone, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    records = {"work": record_work, "spark": record_spark}
    for name in sys.argv[3:] or records:
        with tempfile.TemporaryDirectory() as folder:
            kept = records[name](clone, Path(folder).resolve())
            with tarfile.open(out / f"{name}.tar.gz", "w:gz") as archive:
                for part in kept:
                    archive.add(Path(folder) / part, part)


if __name__ == "__main__":
    main()
