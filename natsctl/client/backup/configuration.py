"""Backup of an account's configuration into a folder, in the layout of the `nats` tool of 2020.

`stream_<S>.json` for each stream, `stream_<S>_consumer_<C>.json` for each durable consumer, `stream_template_<T>.json`
for each template, and with data `stream_<S>.tgz`, a stream backup as one file (client/backup/writer.py). Each JSON is
`{"type", "time", "configuration": base64 of indented JSON, "checksum": hex sha256 of those bytes}`. The folder gets its
name when it is complete. Source: docs/compatibility.md#backups-of-the-nats-tool.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, ConflictError, StorageError, UsageError
from natsctl.api.update_losses import Loss, consumer_losses, stream_losses
from natsctl.api.versions import LEVEL_KEY, REQUIRED_LEVEL_KEY, VERSION_KEY
from natsctl.client.backup.archives import is_since
from natsctl.client.backup.manifest import META_NAME, checked_name, configuration_in, created_now, small_file
from natsctl.client.backup.save import save_stream
from natsctl.client.backup.transfer import OnProgress, RetryingManager, ignore_progress
from natsctl.client.backup.writer import part_of
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned

Log = Callable[[str], None]
Transfer = Callable[[], AbstractContextManager[OnProgress]]
"""Opens the display of one stream's progress."""

NO_TEMPLATES_SINCE = (2, 14)
OUR_RUNTIME = "natsctl"
"""Value in the INFO of natsctl's server where nats-server has Go's version; it has templates in every version."""


@dataclass(slots=True)
class AccountBackup:
    """Names of the saved or restored assets; consumers as `STREAM > CONSUMER`."""

    folder: str
    streams: list[str] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)


async def save_account(
    manager: Manager, folder: Path, *, data: bool, log: Log, transfer: Transfer = lambda: nullcontext(ignore_progress)
) -> AccountBackup:
    """Save every stream and durable consumer of the account to a folder that does not exist yet or is empty.

    Reports its steps to `log`. Raises UsageError for a folder in use, StorageError for one that cannot be
    written. Nothing is left after a failure.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} exists", hint="name a folder that does not exist yet")
    if manager.connection.dry_run:
        names = list(await manager.stream_names())
        raise DryRunError(effect={"target": str(folder), "streams": len(names), "data": data})
    log(f"Creating JetStream backup into {folder}")
    part = part_of(folder)
    saved = AccountBackup(str(folder))
    try:
        for answer in sorted(await manager.stream_list(), key=lambda one: str(one.raw["config"]["name"])):
            await _save_stream(manager, answer.raw["config"], part, folder, saved, log)
        await _save_templates(manager, part, folder, saved, log)
        log("Configuration backup complete")
        for name in saved.streams if data else ():
            log(f"Stream {name} data to {folder / f'stream_{name}.tgz'}")
            target = part / f"stream_{name}.tgz"
            with transfer() as step:
                retrying = RetryingManager(manager, say=log)
                await save_stream(retrying, name, target, on_progress=step)
            saved.data.append(name)
        part.rename(folder)
    except OSError as failure:
        raise StorageError(f"cannot write the backup {folder}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return saved


async def _save_stream(
    manager: Manager, config: dict[str, Any], part: Path, folder: Path, saved: AccountBackup, log: Log
) -> None:
    stream = checked_name("stream", str(config["name"]))
    name = _write(part, f"stream_{stream}", "stream", without_server_metadata(config))
    log(f"Stream {stream} to {folder / name}")
    saved.streams.append(stream)
    for answer in await manager.consumer_list(stream):
        kept = configuration_in(answer.raw, f"consumer {answer.raw.get('name')}")
        durable = kept.get("durable_name")
        if not durable:
            continue
        stem = f"stream_{stream}_consumer_{checked_name('consumer', str(durable))}"
        consumer = {"name": durable, "stream": stream, "config": without_server_metadata(kept)}
        name = _write(part, stem, "consumer", consumer)
        log(f"Consumer {stream} > {durable} to {folder / name}")
        saved.consumers.append(f"{stream} > {durable}")


async def _save_templates(manager: Manager, part: Path, folder: Path, saved: AccountBackup, log: Log) -> None:
    if not may_have_templates(manager.connection.info):
        return
    for template in await manager.template_names():
        stem = f"stream_template_{checked_name('template', str(template))}"
        configuration = configuration_in((await manager.template_info(template)).raw, f"template {template}")
        name = _write(part, stem, "stream_template", configuration)
        log(f"Stream Template {template} to {folder / name}")
        saved.templates.append(template)


def may_have_templates(info: dict[str, Any]) -> bool:
    """Return whether a server answers requests about templates; nats-server from 2.14 on does not."""
    return info.get("go") == OUR_RUNTIME or not is_since(str(info.get("version") or ""), NO_TEMPLATES_SINCE)


def without_server_metadata(config: dict[str, Any]) -> dict[str, Any]:
    metadata = config.get("metadata")
    if not isinstance(metadata, dict):
        return config
    own = {key: value for key, value in metadata.items() if key not in (VERSION_KEY, LEVEL_KEY, REQUIRED_LEVEL_KEY)}
    kept = {key: value for key, value in config.items() if key != "metadata"}
    return {**kept, "metadata": own} if own else kept


def _write(folder: Path, stem: str, kind: str, configuration: dict[str, Any]) -> str:
    """Write one file of a backup and return its name: `STEM.json`, or `STEM~2.json` and so on if that exists.

    Consumer C of stream S and the stream S_consumer_C have one name, and so have S and s on some file systems. Each
    file has the kind of its configuration, so that a restore does not depend on names.
    """
    content = json.dumps(configuration, indent=2, ensure_ascii=False).encode()
    document = {
        "type": kind,
        "time": created_now(),
        "configuration": base64.b64encode(content).decode(),
        "checksum": hashlib.sha256(content).hexdigest(),
    }
    text = json.dumps(document, indent=2) + "\n"
    for number in count(1):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}~{number}.json")
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            break
    return path.name


@dataclass(slots=True)
class SavedConfiguration:
    """A file of a backup, with the asset that it configures."""

    path: Path
    kind: str
    configuration: dict[str, Any]
    time: str = ""


def read_saved(path: Path) -> SavedConfiguration:
    """Return the configuration in one file of a backup.

    Raises UsageError if it is not a backup, StorageError if its checksum is wrong.
    """
    try:
        document = json.loads(small_file(path))
        content = base64.b64decode(document["configuration"], validate=True)
        kind, checksum = str(document["type"]), str(document["checksum"])
    except OSError as failure:
        raise UsageError(f"cannot read {path}: {failure.strerror}") from failure
    except (ValueError, KeyError, TypeError, RecursionError) as failure:
        raise UsageError(f"{path} is not a file of a configuration backup: {failure}") from failure
    if hashlib.sha256(content).hexdigest() != checksum:
        raise StorageError(f"{path} is damaged: its checksum does not match")
    try:
        configuration = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise UsageError(f"{path}: configuration: {failure}") from failure
    if not isinstance(configuration, dict):
        raise UsageError(f"{path}: configuration: expected an object")
    return SavedConfiguration(path, kind, configuration, str(document.get("time") or ""))


async def restore_account(
    manager: Manager, source: Path, *, update_streams: bool, log: Log, only: Path | None = None
) -> AccountBackup:
    """Create the assets of a backup folder (or of its file `only`): streams first, then consumers.

    Data is not restored. A stream that exists is updated with `update_streams`, else ConflictError is raised before
    anything is changed.
    """
    if only is None and (source / META_NAME).is_file():
        raise UsageError(f"{source} is the backup of one stream", hint="natsctl stream restore reads it")
    files = [only] if only is not None else sorted(source.glob("*.json")) if source.is_dir() else []
    if not files:
        if not source.exists():
            raise UsageError(f"{source} does not exist")
        whole = source.is_dir() and any(source.glob(f"*/{META_NAME}"))
        raise UsageError(
            f"{source} is not a folder of a configuration backup: no JSON files in it",
            hint="it is a backup of a whole account: natsctl account restore reads it" if whole else "",
        )
    saved = []
    for path in files:
        log(f"Reading file {path}")
        saved.append(read_saved(path))
    done = AccountBackup(str(source))
    existing = set(await manager.stream_names())
    if manager.connection.dry_run:
        raise _preview(manager, saved, existing, update_streams)
    streams = [one for one in saved if one.kind == "stream"]
    taken = [
        str(stream.configuration.get("name")) for stream in streams if stream.configuration.get("name") in existing
    ]
    if taken and not update_streams:
        raise ConflictError(
            f"stream {taken[0]} exists", hint="give --update-streams to change it to the saved configuration"
        )
    for one in streams:
        name = await _restore_stream(manager, one.configuration, existing, log)
        existing.add(name)
        done.streams.append(name)
    for one in saved:
        if one.kind == "stream_template":
            log(f"Restoring Stream Template {one.configuration.get('name')}")
            await manager.template_create(one.configuration)
            done.templates.append(str(one.configuration.get("name")))
    for one in saved:
        if one.kind == "consumer":
            await _restore_consumer(manager, one, existing, done, log)
        elif one.kind not in ("stream", "stream_template"):
            log(f"Skipping {one.path}: {one.kind} is of no known kind")
    return done


async def restore_losses(
    manager: Manager, source: Path, *, update_streams: bool, only: Path | None = None
) -> list[Loss]:
    """Return the losses of existing streams and consumers by an update to the saved configuration.

    None in a dry run.
    """
    if manager.connection.dry_run:
        return []
    files = [only] if only is not None else sorted(source.glob("*.json")) if source.is_dir() else []
    existing = set(await manager.stream_names())
    found: list[Loss] = []
    for saved in map(read_saved, files):
        config = saved.configuration
        name = str(config.get("stream" if saved.kind == "consumer" else "name"))
        if name not in existing:
            continue
        if saved.kind == "stream" and update_streams:
            live = (await manager.stream_info(name)).raw
            found += _named(f"Stream {name}", stream_losses(live["config"], config, live["state"], time.time_ns()))
        elif saved.kind == "consumer" and isinstance(config.get("config"), dict):
            found += await _consumer_losses(manager, name, str(config.get("name")), config["config"])
    return found


async def _consumer_losses(manager: Manager, stream: str, name: str, config: dict[str, Any]) -> list[Loss]:
    found = await manager.find_consumer(stream, name)
    if found is None:
        return []
    live = found.raw
    return _named(f"Consumer {stream} > {name}", consumer_losses(live["config"], config, live))


def _named(what: str, losses: list[Loss]) -> list[Loss]:
    return [loss._replace(text=f"{what}: {loss.text}") for loss in losses]


def _preview(
    manager: Manager, saved: list[SavedConfiguration], existing: set[str], update_streams: bool
) -> DryRunError:
    """Return the dry run's result: every request for a stream, and the streams that exist already."""
    planned = []
    names = [str(one.configuration.get("name")) for one in saved if one.kind == "stream"]
    for one in saved:
        name = str(one.configuration.get("name"))
        if one.kind == "stream":
            endpoint = endpoints.STREAM_UPDATE if name in existing else endpoints.STREAM_CREATE
            subject = endpoint.subject(name, prefix=manager.connection.target.api_prefix)
            planned.append(Planned(subject, one.configuration))
    there = [name for name in names if name in existing]
    effect: dict[str, Any] = {"streams": len(names), "consumers": sum(one.kind == "consumer" for one in saved)}
    if there:
        effect["updates" if update_streams else "conflicts"] = there
    return DryRunError(*planned, effect=effect)


async def _restore_stream(manager: Manager, config: dict[str, Any], existing: set[str], log: Log) -> str:
    name = str(config.get("name") or "")
    if name in existing:
        log(f"Updating Stream {name} configuration")
        await manager.stream_update(config)
    else:
        log(f"Restoring Stream {name}")
        await manager.stream_create(config)
    return name


async def _restore_consumer(
    manager: Manager, saved: SavedConfiguration, existing: set[str], done: AccountBackup, log: Log
) -> None:
    stream, name = str(saved.configuration.get("stream")), str(saved.configuration.get("name"))
    config = saved.configuration.get("config")
    if not isinstance(config, dict):
        raise UsageError(f"{saved.path}: configuration: no consumer in it")
    if stream not in existing:
        log(f"Skipping Consumer {stream} > {name}: there is no Stream {stream}")
        return
    log(f"Restoring Consumer {stream} > {name}")
    try:
        await manager.consumer_create(stream, {"durable_name": name, **config})
    except ApiResponseError as failure:
        failure.hint = failure.hint or f"consumer {stream} > {name} of {saved.path}"
        raise
    done.consumers.append(f"{stream} > {name}")
