"""Work that earlier versions left unfinished: later versions finish it, or refuse it with the way out.

`versions/*/work.tar.gz` are made by `python -m tests.support.stored_work`, which says what is in them. The table in
docs/compatibility.md#formats-and-versions lists all formats that are kept on disk or in streams.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from natsctl.api.errors import NatsctlError, StorageError, UsageError
from natsctl.client.backup.obfuscation import Obfuscator
from natsctl.client.migration import migration_state, spool
from natsctl.desired.apply import holding_stream
from natsctl.testing import local_cluster
from natsctl.testing.process import ServerProcess
from tests.support.stored_version import unpack
from tests.support.stored_work import HIDDEN, content

VERSIONS = Path(__file__).with_name("versions")
KEPT = sorted(VERSIONS.glob("*/work.tar.gz"))
CLONE = VERSIONS.parent.parent.parent


class Work(NamedTuple):
    folder: Path
    origin: ServerProcess
    destination: ServerProcess

    @property
    def expected(self) -> Any:
        """Return what was in the streams of the origin before."""
        return json.loads((self.folder / "expected.json").read_text())

    def run(self, *words: str, status: int = 0) -> Any:
        """Run a command with the kept contexts, and return its JSON."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS")}
        done = subprocess.run(
            [sys.executable, "-m", "natsctl", *words, "-j"],
            env={**kept, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == status, (words, done.stderr)
        return json.loads(done.stdout if status in (0, 10) else done.stderr)

    def arrived(self, stream: str) -> Any:
        return asyncio.run(content(self.destination.url, stream))


@pytest.fixture(params=KEPT, ids=lambda path: path.parent.name)
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    """Unpack the work of one version; its contexts get the URLs of the servers."""
    unpack(request.param, tmp_path)
    with ServerProcess(tmp_path / "origin") as origin, ServerProcess(tmp_path / "destination") as destination:
        found = Work(tmp_path, origin, destination)
        for name, server in (("origin", origin), ("destination", destination)):
            found.run("context", "edit", name, "--server", server.url)
        yield found


def test_versions_are_kept() -> None:
    assert KEPT


def test_the_page_lists_every_format_that_has_a_name() -> None:
    page = (CLONE / "docs" / "compatibility.md").read_text().partition("## Formats and versions")[2]
    sources = (path.read_text() for path in (CLONE / "natsctl").rglob("*.py"))
    named = {name for text in sources for name in re.findall(r'"(natsctl\.[a-z-]+/\d+)"', text)}
    assert len(named) >= 7
    assert sorted(name for name in named if f"`{name}`" not in page) == []


def test_contexts_open(work: Work) -> None:
    assert work.run("context", "show", "origin")["description"] == "of an earlier version"
    assert [one["name"] for one in work.run("context", "ls") if one["selected"]] == ["origin"]
    assert work.run("stream", "info", "ORDERS")["state"]["messages"] == len(work.expected["ORDERS"]["messages"])


def test_a_migration_goes_on_from_the_copied_messages(work: Work) -> None:
    before = spool.Spool(work.folder / "copied" / "streams" / "ORDERS")
    assert before.messages >= len(work.expected["ORDERS"]["messages"])
    assert before.reached == work.expected["ORDERS"]["state"]["last_seq"]
    before.close()
    moved = work.run(
        *("migrate", "--from", "origin", "--to", "destination", "--cutover", "ORDERS", "PACKED"),
        *("--dir", str(work.folder / "copied")),
    )
    assert [one["phase"] for one in moved["streams"]] == ["done", "done"]
    for name in ("ORDERS", "PACKED"):
        arrived = work.arrived(name)
        assert arrived["messages"] == work.expected[name]["messages"]
        assert arrived["consumers"].keys() == work.expected[name]["consumers"].keys()


def test_a_cutover_that_was_killed_is_finished(work: Work) -> None:
    moved = work.run(
        "migrate", "--from", "origin", "--to", "destination", "--cutover", "--dir", str(work.folder / "opening")
    )
    assert [(one["stream"], one["phase"]) for one in moved["streams"]] == [("WORK", "done")]
    arrived = work.arrived("WORK")
    assert arrived["messages"] == work.expected["WORK"]["messages"]
    assert arrived["config"]["subjects"] == ["work.>"]


def test_a_replacement_that_was_killed_is_finished(work: Work) -> None:
    words = ("--allow-replace", "--keep-messages", "--adopt", "--yes")
    work.run("apply", str(work.folder / "replaced.json"), *words)
    after = asyncio.run(content(work.origin.url, "SHORT"))
    assert after["config"]["storage"] == "memory"
    assert after["config"]["subjects"] == ["short.>"]
    assert after["messages"] == work.expected["SHORT"]["messages"]
    assert not [name for name in work.run("stream", "ls", "-n", "-a") if name.startswith(holding_stream.PREFIX)]


def test_a_saved_plan_is_carried_out(work: Work) -> None:
    work.run("apply", "--plan", str(work.folder / "plan.json"), "--yes")
    assert work.run("stream", "info", "EMPTY")["config"]["max_age"] == 3_600_000_000_000
    assert work.run("stream", "info", "NEW")["config"]["metadata"]


def test_a_bundle_is_analysed(work: Work) -> None:
    found = work.run("audit", "analyze", str(work.folder / "audit.zip"))
    assert found
    listed = work.run("server", "list", "1", "--archive", str(work.folder / "audit.zip"))
    assert listed


def test_a_key_file_leads_back_to_names(work: Work) -> None:
    key_file = next(work.folder.glob(f"{HIDDEN}.*"))
    assert "packed" in Obfuscator(key_file).tokens.values()
    again = str(work.folder / "again.tgz")
    work.run(
        "backup", "edit", str(work.folder / "packed.tgz"), again, "--obfuscate", "--obfuscation-key", str(key_file)
    )
    named = [work.run("backup", "inspect", str(path))["config"] for path in (work.folder / HIDDEN, again)]
    assert named[0] == named[1]
    key_file.write_text(json.dumps({**json.loads(key_file.read_text()), "version": 99}))
    with pytest.raises(UsageError, match="no key file of version"):
        Obfuscator(key_file)


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.parent.name)
def test_the_layout_of_a_cluster_opens_or_is_refused(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    layout = local_cluster.Layout.load(tmp_path)
    assert layout is not None and layout.name == "c1" and len(layout.nodes) == 3
    file = tmp_path / local_cluster.LAYOUT
    later = {**json.loads(file.read_bytes()), "format": "natsctl.cluster/99"}
    file.write_text(json.dumps(later))
    with pytest.raises(NatsctlError, match=r"natsctl\.cluster/99") as caught:
        local_cluster.Layout.load(tmp_path)
    assert "natsctl that made it" in caught.value.hint


def test_a_migration_of_a_later_version_is_refused(tmp_path: Path) -> None:
    unpack(KEPT[-1], tmp_path)
    path = tmp_path / "copied"
    document = json.loads((path / "state.json").read_bytes())
    (path / "state.json").write_text(json.dumps({**document, "format": "natsctl.migration/99"}))
    folder = migration_state.MigrationFolder(path, "origin", "destination")
    with pytest.raises(StorageError, match=r"natsctl\.migration/99") as caught, folder.held():
        pass
    assert "natsctl that made it" in caught.value.hint


def test_a_stream_that_a_later_version_has_stopped_is_refused() -> None:
    marker = migration_state.MigrationMarker(id="a", destination="b", created="2026-11-24T00:00:00Z")
    text = msgspec.json.encode(marker).decode()
    assert migration_state.marker_of({"name": "S", "metadata": {migration_state.MARKER: text}}) == marker
    later = text.replace(migration_state.MARKER_FORMAT, "natsctl.migration-stop/99")
    with pytest.raises(StorageError, match=r"natsctl\.migration-stop/99") as caught:
        migration_state.marker_of({"name": "S", "metadata": {migration_state.MARKER: later}})
    assert "natsctl that made it" in caught.value.hint
