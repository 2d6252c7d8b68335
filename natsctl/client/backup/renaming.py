"""Buckets restored under another name: the subjects of their messages contain the name, and change with it.

The entries of a key-value bucket are stored as `$KV.BUCKET.KEY`, an object store has `$O.BUCKET.C.NUID` and
`$O.BUCKET.M.NAME`, and the bucket again in the JSON of each object's metadata. A stream with the messages of another
bucket would show no keys, so the messages are rewritten, or the restore is refused. A mirror keeps the subjects of its
origin and clients expect that. Source: ADR-8, ADR-20.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, CountedRecords, Gone
from natsctl.api.errors import UsageError
from natsctl.client.asset_config import LABELS
from natsctl.client.backup.archives import read_items
from natsctl.client.backup.reader import OpenBackup
from natsctl.client.buckets import KV, OBJECTS, BucketKind, kind_of


def renamed(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration under that name; under another one without its owner, who did not create it."""
    wanted = {**config, "name": name}
    if name != config.get("name") and isinstance(labels := wanted.get("metadata"), dict):
        wanted["metadata"] = {key: value for key, value in labels.items() if key not in LABELS}
    return wanted


class BucketRenaming:
    """The change of messages, consumers and configuration from the bucket `old` to `new`: an Alteration."""

    def __init__(self, kind: BucketKind, old: str, new: str) -> None:
        self.kind, self.old, self.new = kind, old, new
        self._before, self._after = f"{kind.root}.{old}.", f"{kind.root}.{new}."
        self._stored, self._stored_after = self._before.encode(), self._after.encode()
        self._metadata = f"{self._before}M.".encode() if kind is OBJECTS else b""

    def __str__(self) -> str:
        return f"subjects {self._before}> rewritten as {self._after}>"

    def begin(self) -> None:
        """Begin the reading that is written."""

    def messages(self, messages: Sequence[ArchivedMessage]) -> list[ArchivedMessage]:
        """Return the messages under the subjects of the new bucket; other subjects stay."""
        return [self._message(message) for message in messages]

    def _message(self, message: ArchivedMessage) -> ArchivedMessage:
        subject = message.subject
        if not subject.startswith(self._stored):
            return message
        if self._metadata and subject.startswith(self._metadata):
            message = message._replace(payload=self._object(message.payload))
        return message._replace(subject=self._stored_after + subject[len(self._stored) :])

    def _object(self, payload: bytes) -> bytes:
        """Return the metadata of an object in the new bucket; unreadable metadata stays as it is."""
        try:
            found = json.loads(payload)
        except ValueError:
            return payload
        if not isinstance(found, dict):
            return payload
        options = found.get("options")
        link = options.get("link") if isinstance(options, dict) else None
        for holder in (found, link):
            if isinstance(holder, dict) and holder.get("bucket") == self.old:
                holder["bucket"] = self.new
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def consumer(self, consumer: ArchivedConsumer) -> ArchivedConsumer:
        config = consumer.config
        changed = replace(
            config,
            filter_subject=self._subject(config.filter_subject),
            filter_subjects=[self._subject(subject) for subject in config.filter_subjects],
        )
        return replace(consumer, config=changed)

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        wanted = dict(config)
        if wanted.get("subjects"):
            wanted["subjects"] = [self._subject(subject) for subject in wanted["subjects"]]
        if isinstance(mapping := wanted.get("subject_transform"), dict):
            wanted["subject_transform"] = {key: self._subject(value) for key, value in mapping.items()}
        if isinstance(mapping := wanted.get("republish"), dict):
            wanted["republish"] = {**mapping, "src": self._subject(mapping.get("src"))}
        if wanted.get("sources"):
            wanted["sources"] = [self._source(source) for source in wanted["sources"]]
        return wanted

    def _source(self, source: Mapping[str, Any]) -> dict[str, Any]:
        mappings = source.get("subject_transforms") or ()
        changed = [{**mapping, "dest": self._subject(mapping.get("dest"))} for mapping in mappings]
        return {**source, **({"subject_transforms": changed} if changed else {})}

    def _subject(self, subject: Any) -> Any:
        if isinstance(subject, str) and subject.startswith(self._before):
            return self._after + subject[len(self._before) :]
        return subject


def renaming_of(backup: OpenBackup, config: Mapping[str, Any]) -> BucketRenaming | None:
    """Return the renaming that makes a backup the bucket of `config`, or None if nothing has to change.

    Raises UsageError if the backup is not of such a bucket, StorageError.
    """
    name = str(config["name"])
    kind = kind_of(name)
    if kind is None or config.get("mirror") or (backup.manifest is not None and backup.stream == name):
        return None
    new, old = kind.bucket_of(name), _stored_bucket(backup, kind)
    if old is not None:
        return BucketRenaming(kind, old, new) if old != new else None
    if backup.stream == name:
        return None  # a stream that only looks like a bucket, by its name
    raise UsageError(
        f"cannot restore {backup.path} as {kind.noun} {new}: it is a backup of {backup.stream}, which is not",
        hint=f"restore it under a name that does not begin with {kind.prefix}",
    )


def _stored_bucket(backup: OpenBackup, kind: BucketKind) -> str | None:
    """Return the bucket of the messages in a backup, or None if it is not a bucket of this kind."""
    named = kind.bucket_of(backup.stream) if kind.is_mine(backup.stream) else None
    if named is not None and backup.config.get("sources"):
        return named  # the first message may be of another bucket
    subject = _first_subject(backup)
    if subject is None:
        return named
    root, _, rest = subject.partition(b".")
    bucket, dot, _ = rest.partition(b".")
    return bucket.decode("utf-8", "replace") if dot and root == kind.root.encode() else None


def _first_subject(backup: OpenBackup) -> bytes | None:
    for item in read_items(backup):
        if not isinstance(item, ArchivedStream | ArchivedConsumer | Gone | CountedRecords) and item:
            return item[0].subject
    return None


def as_bucket(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream with a bucket's name with the subjects of that bucket."""
    kind = kind_of(str(config["name"]))
    return dict(config) if kind is None or has_bucket_subjects(config) else {**config, "subjects": [*_needed(config)]}


def has_bucket_subjects(config: Mapping[str, Any]) -> bool:
    """Return whether a stream with a bucket's name listens on the subjects of that bucket, or mirrors another one."""
    return bool(config.get("mirror")) or set(_needed(config)) <= set(config.get("subjects") or ())


def _needed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the subjects of a bucket, () for another stream."""
    name = str(config["name"])
    kind = kind_of(name)
    if kind is None:
        return ()
    bucket = f"{kind.root}.{kind.bucket_of(name)}"
    return (f"{bucket}.>",) if kind is KV else (f"{bucket}.C.>", f"{bucket}.M.>")


def check_bucket_subjects(config: Mapping[str, Any]) -> None:
    """Raise UsageError if a bucket's stream would not listen on the subjects of its bucket."""
    if not has_bucket_subjects(config):
        given = ", ".join(config.get("subjects") or ()) or "none"
        raise UsageError(
            f"the bucket of stream {config['name']} has the subjects {', '.join(_needed(config))}, not {given}",
            hint="leave --subjects out: those of the bucket are set",
        )
