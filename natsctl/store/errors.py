"""Errors of the store, by who must act on them."""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything the store raises on purpose."""


class StoreFullError(StoreError):
    """The disk has no room: nothing was kept of the refused work, and service resumes when space returns."""


class RecordsKeptError(StoreFullError):
    """Messages found no room and were taken back, or erasures wait for room; the commit's records are on disk."""


class StorePoisonedError(StoreError):
    """A write or sync of this stream failed; it refuses further writes until the next start. Source: docs/adr/0003."""


class StoreDamagedError(StoreError):
    """Bytes that were synced are missing or altered; the stream is refused and nothing is touched."""


class StoreLockedError(StoreError):
    """Another process holds the store folder."""


class StoreKeyError(StoreError):
    """The store is encrypted, and its key is missing or another one; nothing was touched."""


class StoreFormatError(StoreError):
    """The folder is not a store this version can read."""


class StreamKeyTakenError(StoreError):
    """A stream with this key is already there."""
