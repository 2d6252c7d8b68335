"""The store of a server, opened and recovered, and the engine's part of the server's options."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from natsctl.api.errors import StorageError, UsageError
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.server.broker_setup import jetstream_accounts
from natsctl.server.log.lines import Log
from natsctl.server.options import EncryptionOptions, ServerOptions
from natsctl.server.resources import default_max_memory, default_max_storage, descriptor_shares

if TYPE_CHECKING:
    from natsctl.api.account import AccountLimits
    from natsctl.jetstream.engine_options import JetStreamOptions
    from natsctl.store.disk import Disk
    from natsctl.store.store import RecoveryReport, Store


class StoreInUseError(StorageError):
    """The store's lock is held by another server."""


def engine_options(options: ServerOptions, operated: dict[str, AccountLimits] | None) -> JetStreamOptions:
    """Return the engine's options; `operated` are the accounts that have JetStream by their JWTs."""
    from natsctl.jetstream.engine_options import JetStreamOptions

    limits = options.jetstream_limits
    found = JetStreamOptions(
        max_memory=options.max_memory or default_max_memory(),
        max_storage=options.max_storage or default_max_storage(options.store_path),
        domain=options.domain,
        archive_version=options.archive_version,
        strict=not options.no_jetstream_strict,
        accounts=jetstream_accounts(options) if operated is None else operated,
        max_duplicate_window_ns=limits.max_duplicate_window_ns,
        max_ack_pending=limits.max_ack_pending,
        max_request_batch=limits.max_request_batch,
    )
    if limits.batches is not None:
        found.batches = limits.batches
    if limits.default_max_consumers:
        found.default_max_consumers = limits.default_max_consumers
    return found


def open_store(options: ServerOptions, log: Log, rng: random.Random, path: Path | None = None) -> Store:
    """Return the store, locked and recovered, of `path` if that is given; raises StoreInUseError, StorageError."""
    from natsctl.store.errors import StoreError, StoreKeyError, StoreLockedError
    from natsctl.store.options import StoreOptions
    from natsctl.store.store import Store

    path = path or options.store_path
    make_durable_folder(path)
    store = Store(
        _disk_of(path, options.encryption, log),
        StoreOptions(sync=options.sync, max_open_streams=descriptor_shares().open_streams),
        rng_salt=lambda: rng.getrandbits(32) | 1,
        monotonic_ns=time.monotonic_ns,
        log=log.warn,
        lock=threading.Lock(),
    )
    try:
        report = store.open()
    except StoreLockedError as error:
        raise StoreInUseError(f"storage directory is in use: {error}") from error
    except StoreKeyError as error:
        hint = "the key is `jetstream { key: … }` of the server's configuration"
        raise StorageError(f"cannot open the store in {path}: {error}", hint=hint) from error
    except (StoreError, OSError) as error:
        raise StorageError(f"cannot open the store in {path}: {error}") from error
    _log_recovery(log, report)
    return store


def _disk_of(path: Path, encryption: EncryptionOptions, log: Log) -> Disk:
    from natsctl.store.disk import PosixDisk

    if not encryption.key:
        return PosixDisk(path)
    from natsctl.store.encrypted_disk import EncryptedDisk

    wanted, disk = encryption, PosixDisk(path)
    return EncryptedDisk(disk, wanted.key, os.urandom, wanted.cipher, wanted.prev_key, log.info)


def _log_recovery(log: Log, report: RecoveryReport) -> None:
    for key, reason in report.damaged.items():
        log.error(f"stream {key} is damaged and stays closed, nothing was touched: {reason}")
    if report.damaged:
        log.error(
            "put back what is missing and start again, or `natsctl server repair` saves the readable messages; "
            "`natsctl stream rm` gives one up and frees its name"
        )
    if report.streams:
        log.info(f"JetStream state recovered: {report.streams} stream{'s' if report.streams > 1 else ''}")


def make_durable_folder(path: Path) -> None:
    """Make a folder with its parents, so that it is still there after a power failure; raises StorageError."""
    missing = []
    while not path.is_dir():
        if (path.exists() or path.is_symlink()) and not path.is_dir():  # another command may have made it just now
            raise StorageError(f"storage directory is not a directory: {path}")
        missing.append(path)
        path = path.parent
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)  # another command may be first
            descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise StorageError(f"cannot create the storage directory: {error}") from error


class RefusedStream(msgspec.Struct):
    """A stream that the store does not serve, and the result of its repair."""

    account: str
    name: str
    reason: str
    repaired: bool = False
    messages: int = 0
    last_seq: int = 0
    notes: list[str] = msgspec.field(default_factory=list)
    remains: str = ""
    """The place of the old folder after a repair."""


@contextmanager
def _store_at_rest(folder: Path, server_config: Path | None) -> Iterator[Store]:
    """Open the store of a server that does not run, and close it; `server_config` has the key of an encrypted one.

    Raises StoreInUseError, StorageError, UsageError.
    """
    path = folder / "jetstream" if (folder / "jetstream" / "FORMAT").exists() else folder
    if not (path / "FORMAT").exists():
        raise UsageError(f"{folder} holds no store: there is no FORMAT in it, nor in {folder / 'jetstream'}")
    options = ServerOptions(jetstream=True, store_dir=path.parent, encryption=_encryption_of(server_config))
    store = open_store(options, Log(with_time=False), random.SystemRandom(), path)
    try:
        yield store
    finally:
        store.close()


def _encryption_of(server_config: Path | None) -> EncryptionOptions:
    if server_config is None:
        return EncryptionOptions()
    from natsctl.server.conf.config import apply
    from natsctl.server.conf.syntax import load_file

    try:
        return apply(load_file(server_config, os.environ), ServerOptions()).encryption
    except OSError as error:
        raise UsageError(f"--server-config: {error}") from error


def _refused(store: Store) -> dict[str, RefusedStream]:
    found = {}
    for key, reason in sorted(store.damaged.items()):
        account, slash, name = key.partition("/")
        found[key] = RefusedStream(account if slash else GLOBAL_ACCOUNT, name or key, reason)
    return found


def refused_streams(folder: Path, server_config: Path | None = None) -> list[RefusedStream]:
    with _store_at_rest(folder, server_config) as store:
        return list(_refused(store).values())


def repair_streams(
    folder: Path, account: str, names: list[str], config: bytes | None, server_config: Path | None = None
) -> list[RefusedStream]:
    """Make streams of the readable parts of refused ones; `config` is for a stream with an unreadable one.

    Raises StorageError (earlier repairs are kept) and UsageError.
    """
    from natsctl.store.errors import StoreError

    with _store_at_rest(folder, server_config) as store:
        refused = {one.name: (key, one) for key, one in _refused(store).items() if one.account == account}
        for name in names:
            if name not in refused:
                raise UsageError(f"{account} has no refused stream {name}", hint="without names they are shown")
        for name in names:
            key, one = refused[name]
            try:
                made = store.salvage(key, None if config is None else _meta_of(name, config))
            except (StoreError, OSError) as error:
                raise StorageError(f"{key} was not repaired: {error}", hint="--config gives a configuration") from error
            one.repaired, one.notes, one.remains = True, made.notes, made.remains
            one.messages, one.last_seq = store.streams[key].messages, store.streams[key].last_seq
        return [one for _, one in (refused[name] for name in names)]


def _meta_of(name: str, config: bytes) -> bytes:
    """Return the metadata of a stream with the configuration given as JSON. Raises UsageError."""
    import msgspec

    from natsctl.api.stream import StreamConfig
    from natsctl.api.stream_config import settle
    from natsctl.api.stream_rules import Draft
    from natsctl.jetstream.api_level import stamp
    from natsctl.jetstream.streams.stream import StreamMeta

    try:
        wanted = msgspec.json.decode(config, type=StreamConfig)
    except msgspec.MsgspecError as error:
        raise UsageError(f"--config: {error}") from error
    wanted.name = name
    refusal = settle(Draft(config=wanted))
    if refusal is not None:
        raise UsageError(f"--config: {refusal.description}")
    stamp(wanted)
    return StreamMeta(time.time_ns(), wanted).encode()
