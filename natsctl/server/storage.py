"""The store of a server, opened and recovered, and what the engine is told of the options."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from natsctl.api.errors import StorageError
from natsctl.server.broker_setup import jetstream_accounts
from natsctl.server.capacity import default_max_memory, default_max_storage
from natsctl.server.descriptors import descriptor_shares
from natsctl.server.options import ServerOptions
from natsctl.server.process.log import Log

if TYPE_CHECKING:
    from natsctl.api.account import AccountLimits
    from natsctl.jetstream.engine import JetStreamOptions
    from natsctl.store.store import RecoveryReport, Store


class StoreInUse(StorageError):
    """The store's lock is held by another server."""


def engine_options(options: ServerOptions, operated: dict[str, AccountLimits] | None) -> JetStreamOptions:
    """Return the engine's options; `operated` are the accounts that have JetStream where operators say so."""
    from natsctl.jetstream.engine import JetStreamOptions

    limits = options.jetstream_limits
    found = JetStreamOptions(
        max_memory=options.max_memory or default_max_memory(),
        max_storage=options.max_storage or default_max_storage(options.store_path),
        domain=options.domain,
        archive_version=options.archive_version,
        accounts=jetstream_accounts(options) if operated is None else operated,
        max_duplicate_window_ns=limits.max_duplicate_window_ns,
        max_ack_pending=limits.max_ack_pending,
        max_request_batch=limits.max_request_batch,
        batches=limits.batches,
    )
    if limits.default_max_consumers:
        found.default_max_consumers = limits.default_max_consumers
    return found


def open_store(options: ServerOptions, log: Log, rng: random.Random) -> Store:
    """Return the store, locked and recovered; raises StoreInUse, StorageError."""
    from natsctl.store.disk import PosixDisk
    from natsctl.store.errors import StoreError, StoreLocked
    from natsctl.store.options import StoreOptions
    from natsctl.store.store import Store

    path = options.store_path
    make_durable_folder(path)
    store = Store(
        PosixDisk(path),
        StoreOptions(sync=options.sync, max_open_streams=descriptor_shares().open_streams),
        rng_salt=lambda: rng.getrandbits(32) | 1,
        monotonic_ns=time.monotonic_ns,
        log=log.warn,
    )
    try:
        report = store.open()
    except StoreLocked as error:
        raise StoreInUse(f"storage directory is in use: {error}") from error
    except (StoreError, OSError) as error:
        raise StorageError(f"cannot open the store in {path}: {error}") from error
    _log_recovery(log, report)
    return store


def _log_recovery(log: Log, report: RecoveryReport) -> None:
    """Tell what the store has not told by itself: its notes are in the log already."""
    for key, reason in report.damaged.items():
        log.error(f"stream {key} is damaged and stays closed, nothing was touched: {reason}")
    if report.damaged:
        log.error(
            "put back what is missing and start again, or `natsctl server repair` makes streams of what can be read; "
            "`natsctl stream rm` gives one up and frees its name"
        )
    if report.streams:
        log.info(f"JetStream state recovered: {report.streams} stream{'s' if report.streams > 1 else ''}")


def make_durable_folder(path: Path) -> None:
    """Make a folder with its parents, so that it is still there after a power failure; raises StorageError."""
    missing = []
    while not path.is_dir():
        if path.exists() or path.is_symlink():
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
