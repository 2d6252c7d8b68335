"""Journal of one stream, and its meta file.

The journal has the records of the stream's consumers, in a separate file next to the segments. Records are buffered,
written with the stream's next commit, and synced on request. The file is created with its first records. A rewrite
replaces the whole file by one of the next generation, in one step. Source: docs/adr/0006.

The meta file is one JSON line with a checksum of the whole file, then the bytes of the store's user. The line names the
owner of the file: the store, the stream's number and its random identity, drawn when the stream is created
and repeated in the header of every file of the stream. In a store of format 1 the identity is computed from the store's
and the stream's number instead, so that each file can be marked when it is next written. Source: docs/adr/0004.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from zlib import crc32

from natsctl.store import frame
from natsctl.store.disk import Disk, File
from natsctl.store.file_commit import JournalWork
from natsctl.store.frame import IDENTITY_BYTES, NO_IDENTITY
from natsctl.store.subject_table import SubjectTable

KIND = struct.Struct("<H")
Entry = tuple[int, bytes]


def journal_name(generation: int) -> str:
    return f"journal-{generation}.log"


def entry_of(record: frame.FrameRecord) -> Entry:
    return KIND.unpack_from(record.payload)[0], record.payload[2:]


def _encode(entries: Sequence[Entry], number: int, synced: int, salt: int) -> bytes:
    return b"".join(
        frame.encode(frame.JOURNAL, number + at, 0, synced, salt, KIND.pack(kind) + body)
        for at, (kind, body) in enumerate(entries, 1)
    )


def _encode_file(head: frame.FileHead, entries: Sequence[Entry]) -> bytes:
    return head.encode() + _encode(entries, 0, 0, head.salt)


class Journal:
    """Records of one stream: in the file, being written by a commit, and waiting for the next."""

    __slots__ = (
        "_buffered",
        "_disk",
        "_recovered",
        "_replacement",
        "_taken",
        "file",
        "folder",
        "head",
        "identity",
        "size",
        "synced_count",
        "synced_size",
        "written",
    )

    def __init__(self, disk: Disk, folder: str, stream_id: int, salt: int, identity: bytes) -> None:
        self._disk = disk
        self.folder = folder
        self.identity = identity
        self.head = frame.FileHead(salt, stream_id, 1, 0, 0, identity, frame.JOURNAL_FILE)
        self.size = 0
        self.synced_size = 0
        self.written = 0
        self.synced_count = 0
        self.file: File | None = None
        self._buffered: list[Entry] = []
        self._replacement: list[Entry] | None = None
        self._taken: tuple[list[Entry] | None, list[Entry]] | None = None
        self._recovered: list[Entry] | None = None

    def adopt(self, head: frame.FileHead, size: int, entries: list[Entry]) -> None:
        """Continue a recovered file; its `entries` stay in memory until `records` returns them or the file changes."""
        self.head, self.size, self.synced_size = head, size, size
        self.written = self.synced_count = len(entries)
        self._recovered = entries

    @property
    def path(self) -> str:
        return f"{self.folder}/{journal_name(self.head.generation)}"

    @property
    def pending(self) -> bool:
        return bool(self._buffered) or self._replacement is not None

    @property
    def unsynced(self) -> bool:
        return self.synced_size < self.size

    def append(self, kind: int, body: bytes) -> None:
        self._buffered.append((kind, body))

    def replace(self, records: Sequence[Entry]) -> None:
        """Queue the replacement of all records by `records` for the next commit."""
        self._replacement = list(records)
        self._buffered = []

    def _next_head(self) -> frame.FileHead:
        """Return the head of the next generation.

        It has a salt of its own, so that old blocks that a crash leaves in the tail of the new file never validate.
        """
        generation = self.head.generation + 1
        salt = frame.next_salt(self.head.salt, generation)
        return self.head._replace(generation=generation, salt=salt, identity=self.identity, role=frame.JOURNAL_FILE)

    def take(self, sync: bool) -> JournalWork | None:
        """Return the disk work for the buffered records, or None; `settle` ends it."""
        waiting = self.size - self.synced_size
        if self._replacement is None and not self._buffered:
            if not (sync and self.unsynced):
                return None
            self._taken = (None, [])
            return JournalWork(self.path, self.size, b"", True, file=self.file, unsynced_bytes=waiting)
        replacement, buffered = self._replacement, self._buffered
        self._taken = (replacement, buffered)
        self._replacement, self._buffered = None, []
        if replacement is not None or not self.size:
            head = self._next_head() if self.size else self.head
            entries = (replacement or []) + buffered
            path, replaces = f"{self.folder}/{journal_name(head.generation)}", self.path if self.size else ""
            encode = partial(_encode_file, head, entries)
            return JournalWork(path, 0, b"", True, replaces=replaces, encode=encode)
        data = _encode(buffered, self.written, self.synced_count, self.head.salt)
        return JournalWork(self.path, self.size, data, sync, file=self.file, unsynced_bytes=waiting)

    def keep_file(self, work: JournalWork) -> None:
        """Keep the file that a commit may have opened, even if the commit failed, so that `close` closes it."""
        if work.file is not None:
            self.file = work.file

    def settle(self, work: JournalWork, full: bool) -> None:
        """Record that `work` is done; if the disk was `full`, buffer its records again, before later ones."""
        replacement, taken = self._taken or (None, [])
        self._taken = self._recovered = None
        if full:
            if self._replacement is None:
                self._replacement = replacement
                self._buffered = taken + self._buffered
            return
        if work.encode is not None:
            if work.replaces:
                self.head = self._next_head()
            self.close()
            self.written = self.synced_count = len(replacement or []) + len(taken)
            self.size = self.synced_size = len(work.data)
            return
        self.written += len(taken)
        self.size = work.offset + len(work.data)
        if work.sync:
            self.synced_size, self.synced_count = self.size, self.written

    def records(self) -> list[Entry]:
        if self._replacement is not None:
            return self._replacement + self._buffered
        taken = self._taken or (None, [])
        if taken[0] is not None:
            return taken[0] + taken[1] + self._buffered
        entries: list[Entry] = []
        if self._recovered is not None:
            entries, self._recovered = self._recovered, None
        elif self.size:
            file = self._disk.open_read(self.path)
            try:
                data = file.pread(self.size, 0)
            finally:
                file.close()
            entries = [entry_of(record) for record in frame.scan(data, len(data), SubjectTable()).records]
        return entries + taken[1] + self._buffered

    def close(self) -> None:
        """Close the file; the next commit opens it again."""
        if self.file is not None:
            self.file.close()
            self.file = None


UNMARKED, MARKED = 1, 2
"""Formats of the meta file: without and with an identity."""


class MetaRecord(NamedTuple):
    """Content of the meta file; `replaces` is the id of a stream of the same key that was being deleted."""

    stream_id: int
    key: str
    meta: bytes
    replaces: int = 0
    store: bytes = NO_IDENTITY
    identity: bytes = NO_IDENTITY
    run: int = 0
    """Number of the store's start (run) that created the stream."""
    version: int = 0
    """Number of earlier writes of the file, so that an earlier one is recognised."""
    unmarked: tuple[int, int] = (0, -1)
    """Highest base of a segment, and generation of the journal, without an identity in the header."""

    def encode(self) -> bytes:
        marked = self.identity != NO_IDENTITY
        fields: dict[str, object] = {"format": MARKED if marked else UNMARKED, "id": self.stream_id, "key": self.key}
        if self.replaces:
            fields["replaces"] = self.replaces
        if marked:
            fields |= {"store": self.store.hex(), "identity": self.identity.hex(), "run": self.run}
            fields |= {"version": self.version, "unmarked": list(self.unmarked)}
        plain = json.dumps(fields, sort_keys=True).encode()
        fields["crc"] = crc32(plain + b"\n" + self.meta)
        return json.dumps(fields, sort_keys=True).encode() + b"\n" + self.meta


def parse_meta_record(data: bytes) -> MetaRecord | None:
    line, newline, meta = data.partition(b"\n")
    if not newline:
        return None
    try:
        fields = json.loads(line)
        found = MetaRecord(fields["id"], fields["key"], meta, fields.get("replaces", 0))
        if fields["format"] == MARKED:
            store, identity = bytes.fromhex(fields["store"]), bytes.fromhex(fields["identity"])
            base, generation = fields["unmarked"]
            found = found._replace(store=store, identity=identity, run=fields["run"])
            found = found._replace(version=fields["version"], unmarked=(base, generation))
        known = isinstance(found.stream_id, int) and isinstance(found.key, str)
        return found if known and found.encode() == data else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def inherited_identity(store: bytes, stream_id: int) -> bytes:
    """Return the identity of a stream of format 1, created without one."""
    from hashlib import blake2b  # half a megabyte, for stores of earlier versions

    return blake2b(store + stream_id.to_bytes(8, "little"), digest_size=IDENTITY_BYTES).digest()


class MetaFile:
    """The meta file of one stream: its content, the next content to write, and the mark of the durable one."""

    __slots__ = ("_birth", "_pending", "content", "durable", "mark", "record")

    def __init__(self, record: MetaRecord) -> None:
        self.record = record
        """Content of the file, as if the commit in flight had ended."""
        self.content = self.durable = record.meta
        self.mark = (0, 0)
        """Version and checksum of the file."""
        self._pending = self._birth = False

    def create(self, record: MetaRecord) -> None:
        """Queue the first content, for the commit that creates the stream."""
        self.record, self._birth = record, True

    @property
    def unborn(self) -> bool:
        """Return whether no commit that creates the stream has begun."""
        return self._birth

    def adopt(self, record: MetaRecord, crc: int, identity: bytes, newest: tuple[int, int]) -> None:
        """Go on from a recovered file.

        Without an identity, `newest` is recorded as the last segment and journal that lack one too.
        """
        self.mark = (record.version, crc)
        self.record = record._replace(replaces=0)
        if record.identity == NO_IDENTITY:
            self.record = self.record._replace(identity=identity, unmarked=newest)

    def set(self, meta: bytes) -> None:
        self.content, self._pending = meta, True

    @property
    def waits(self) -> bool:
        """Return whether there is anything to write."""
        return self._pending or self._birth

    def take(self, store: bytes) -> tuple[bytes | None, bool]:
        """Return the bytes to be written, None for none, and whether they create the stream."""
        if self._birth:
            self._birth = self._pending = False
            return self.record._replace(meta=self.content).encode(), True
        if not self._pending:
            return None, False
        self._pending = False
        version = self.mark[0] + 1
        return self.record._replace(store=store, meta=self.content, replaces=0, version=version).encode(), False

    def settle(self, written: bytes, created: bool) -> None:
        self.mark = (self.mark[0] + (not created), crc32(written))
        if not self._pending:
            self.durable = self.content

    def take_back(self) -> None:
        """Go back to the durable content, as there was no room for another, unless a newer one is queued."""
        if not self._pending:
            self.content = self.durable
