"""Obfuscation of a backup for others to read: keyed hashes instead of names, zeros instead of bodies.

The hash of a token is HMAC-SHA-256 under a secret of 32 random bytes, in base32-hex of lower case, as long as the
token and at least 16 characters: equal tokens stay equal, in subjects, filters and names alike. The key file next to
the backup has the secret and the tokens; given to another edit it makes the same hashes. Hashes and key files are as in
`nats backup edit --obfuscate`. Source: jsm.go, backup/obfuscate.go.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api import headers
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage
from natsctl.api.errors import StorageError, UsageError, file_errors
from natsctl.api.stream import StreamConfig
from natsctl.client.atomic_file import PRIVATE, atomic_write
from natsctl.client.backup.manifest import Document, small_file
from natsctl.client.message import as_bytes, as_text

KEY_SUFFIX: Final = ".keys.json"
VERSION: Final = 1
SECRET_BYTES: Final = 32
MIN_TOKEN_CHARS: Final = 16
"""Length of the hash of a shorter token: 80 bits, so that two tokens do not have one hash by chance."""

_new: Final = tuple.__new__
_BUCKETS: Final = ("KV_", "OBJ_")
"""Prefixes of bucket streams; they are kept."""
_ROOTS: Final = ("*", ">", "$KV", "$O")
"""Tokens of subjects that stay."""
_DROPPED: Final = ("description", "metadata", "placement")
_PLAIN_HEADERS: Final = frozenset(
    {
        "kv-operation", "nats-marker-reason", "nats-ttl", "nats-rollup", "nats-expected-last-subject-sequence",
        "nats-schedule", "nats-schedule-ttl", "nats-schedule-time-zone", "nats-schedule-next", "nats-schedule-rollup",
        "nats-incr",
    }
)  # fmt: skip
"""Headers that the server interprets; their values are kept."""
_SUBJECT_HEADERS: Final = frozenset(
    {
        "nats-expected-last-subject-sequence-subject",
        "nats-schedule-target",
        "nats-schedule-source",
        "nats-scheduler",
    }
)


class Obfuscated(Document):
    """Numbers of an obfuscated edit, and the file that leads back to the names; "" in a dry run."""

    tokens_mapped: int
    bodies_padded: int
    key_file: str = ""


def key_file_of(target: Path) -> Path:
    return target.parent / f"{target.name}{KEY_SUFFIX}"


def check_key_file(target: Path, given: Path | None) -> bool:
    """Return whether the key file of a backup is the one that was given.

    Raises UsageError where another is in the way: it leads back to the names of a backup that may be elsewhere by now.
    """
    path = key_file_of(target)
    if given is not None and path.exists() and os.path.realpath(given) == os.path.realpath(path):
        return True
    if path.exists():
        hint = f"choose another target, or use --obfuscation-key {path}"
        raise UsageError(f"the key file {path} exists already", hint=hint)
    return False


class Obfuscator:
    """Hashes of tokens under one secret; `tokens` has the token of each hash."""

    def __init__(self, key_file: Path | None = None) -> None:
        """Begin with a new secret, or with a key file's. Raises UsageError."""
        self.tokens: dict[str, str] = {}
        self.bodies = 0
        self.keeps_bodies = False
        """True for a stream of counters: it needs the totals in its bodies."""
        self._hashes: dict[str, str] = {}
        self._subjects: dict[bytes, bytes] = {}
        self._secret = secrets.token_bytes(SECRET_BYTES)
        if key_file is not None:
            self._load(key_file)

    def _load(self, path: Path) -> None:
        try:
            said = json.loads(small_file(path))
        except (OSError, ValueError, StorageError) as failure:
            raise UsageError(f"{path}: {getattr(failure, 'strerror', None) or failure}") from failure
        if not isinstance(said, dict) or said.get("version") != VERSION:
            hint = "use the natsctl that made it, or a newer one"
            raise UsageError(f"{path} is no key file of version {VERSION}", hint=hint)
        try:
            self._secret = base64.b64decode(str(said.get("secret")), validate=True)
        except ValueError:
            self._secret = b""
        if len(self._secret) != SECRET_BYTES:
            raise UsageError(f"{path}: its secret is invalid")
        mapped = said.get("map") or {}
        if not isinstance(mapped, dict):
            raise UsageError(f"{path}: its map is invalid")
        for hashed, token in mapped.items():
            if not isinstance(token, str) or self._hash(token) != hashed:
                raise UsageError(f"{path}: the mapping of {hashed!r} does not match the secret")
            self.tokens[hashed], self._hashes[token] = token, hashed

    def _hash(self, token: str) -> str:
        raw = as_bytes(token)
        chars = max(MIN_TOKEN_CHARS, len(raw))
        needed = (chars * 5 + 7) // 8
        out = hmac.digest(self._secret, raw, hashlib.sha256)
        block = 0
        while len(out) < needed:
            block += 1
            out += hmac.digest(self._secret, out[-32:] + raw + block.to_bytes(4, "big"), hashlib.sha256)
        return base64.b32hexencode(out[:needed]).decode().lower()[:chars]

    def token(self, token: str) -> str:
        """Return the hash of a token, "" of none. Raises UsageError where two tokens have one hash."""
        if not token:
            return ""
        if known := self._hashes.get(token):
            return known
        hashed = self._hash(token)
        if self.tokens.setdefault(hashed, token) != token:
            raise UsageError(f"{token!r} and {self.tokens[hashed]!r} have the same hash", hint="use another key file")
        self._hashes[token] = hashed
        return hashed

    def subject(self, subject: str, *, destination: bool = False) -> str:
        """Return a subject with hashed tokens; in a destination the functions of a mapping are kept."""
        if not subject:
            return ""
        return ".".join(
            token
            if token in _ROOTS or (destination and token.startswith("{{") and token.endswith("}}"))
            else self.token(token)
            for token in subject.split(".")
        )

    def stream_name(self, name: str) -> str:
        """Return the hash of a stream's name; the prefix of a bucket's stays."""
        for prefix in _BUCKETS:
            if name.startswith(prefix) and name != prefix:
                return prefix + self.token(name.removeprefix(prefix))
        return self.token(name)

    # -- configurations

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stream's configuration with hashed names, without descriptions and fields that are not known."""
        known = {key: value for key, value in config.items() if key in _fields(StreamConfig) and key not in _DROPPED}
        known["name"] = self.stream_name(str(config["name"]))
        if known.get("subjects"):
            known["subjects"] = [self.subject(subject) for subject in known["subjects"]]
        if known.get("mirror"):
            known["mirror"] = self._source(known["mirror"])
        if known.get("sources"):
            known["sources"] = [self._source(source) for source in known["sources"]]
        for field in ("subject_transform", "republish"):
            if known.get(field):
                known[field] = self._transform(known[field])
        return known

    def _transform(self, transform: Mapping[str, Any]) -> dict[str, Any]:
        said = {"src": self.subject(str(transform.get("src") or ""))}
        said["dest"] = self.subject(str(transform.get("dest") or ""), destination=True)
        return {**said, **({"headers_only": True} if transform.get("headers_only") else {})}

    def _source(self, source: Mapping[str, Any]) -> dict[str, Any]:
        said = {key: source[key] for key in ("opt_start_seq", "opt_start_time") if key in source}
        said["name"] = self.stream_name(str(source.get("name") or ""))
        if source.get("filter_subject"):
            said["filter_subject"] = self.subject(source["filter_subject"])
        if source.get("subject_transforms"):
            said["subject_transforms"] = [
                self._transform(subject_transform) for subject_transform in source["subject_transforms"]
            ]
        if external := source.get("external"):
            said["external"] = {key: self.subject(str(external.get(key) or "")) for key in ("api", "deliver")}
        if consumer := source.get("consumer"):
            said["consumer"] = {
                "name": self.token(str(consumer.get("name") or "")),
                "deliver_subject": self.subject(str(consumer.get("deliver_subject") or "")),
            }
        return said

    def consumer(self, consumer: ArchivedConsumer) -> ArchivedConsumer:
        """Return a consumer with hashed names; its place in the stream stays."""
        config = consumer.config
        changed = replace(
            config,
            durable_name=self.token(config.durable_name or ""),
            name=self.token(config.name or ""),
            filter_subject=self.subject(config.filter_subject or ""),
            filter_subjects=[self.subject(filter_subject) for filter_subject in config.filter_subjects or ()],
            deliver_subject=self.subject(config.deliver_subject or ""),
            deliver_group=self.token(config.deliver_group or ""),
            priority_groups=[self.token(priority_group) for priority_group in config.priority_groups or ()],
            description="",
            metadata={},
        )
        return replace(consumer, name=self.token(consumer.name), config=changed)

    # -- messages

    def begin(self) -> None:
        """Count the bodies from zero: messages are read again."""
        self.bodies = 0

    def messages(self, messages: Sequence[ArchivedMessage]) -> list[ArchivedMessage]:
        """Return messages with hashed subjects and headers, and bodies of zeros."""
        known, changed = self._subjects, []
        for seq, ts_ns, subject, header, payload in messages:
            hidden = known.get(subject) or self._subjects.setdefault(subject, as_bytes(self.subject(as_text(subject))))
            if payload and not self.keeps_bodies:
                payload = b"0" * len(payload)
                self.bodies += 1
            parts = (seq, ts_ns, hidden, header and self._header(header), payload)
            changed.append(_new(ArchivedMessage, parts))
        return changed

    def _header(self, block: bytes) -> bytes:
        pairs = sorted(headers.parse(block), key=lambda pair: pair[0])
        if not pairs:
            return b""
        return headers.encode([(key, as_bytes(self._value(as_text(key), as_text(value)))) for key, value in pairs])

    def _value(self, key: str, value: str) -> str:
        if key.lower() in _PLAIN_HEADERS:
            return value
        return self.subject(value) if key.lower() in _SUBJECT_HEADERS else self.token(value)

    def options(self, options: list[str]) -> list[str]:
        """Return the options of an edit without subjects and values."""
        said = []
        for option in options:
            name, equals, value = option.partition("=")
            if name in ("subject", "exclude-subject"):
                value = self.subject(value)
            elif name == "header" and ":" in value:
                key, _, wanted = value.partition(":")
                value = f"{key}:{self._value(key, wanted)}"
            elif name in ("payload-match", "exclude-payload-match"):
                value = self.token(value)
            said.append(f"{name}{equals}{value}")
        return [*said, "obfuscate"]

    def capture(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of backup.json about a captured subscription, with hashed names."""
        said = dict(block)
        if said.get("stream"):
            said["stream"] = self.stream_name(str(said["stream"]))
        said["subjects"] = [self.subject(str(subject)) for subject in said.get("subjects") or ()]
        return said

    # -- the key file

    def reveal(self, value: str) -> str:
        """Return the original value, a subject token by token; unknown tokens are kept."""
        return ".".join(self._revealed(token) for token in value.split("."))

    def _revealed(self, token: str) -> str:
        if token in self.tokens:
            return self.tokens[token]
        for prefix in _BUCKETS:
            if token.startswith(prefix) and (known := self.tokens.get(token.removeprefix(prefix))):
                return prefix + known
        return token

    def save(self, target: Path, given: Path | None) -> bool:
        """Write the key file of a backup and return whether it is new; only the one that was given is replaced.

        Raises UsageError where another is in the way, StorageError.
        """
        same, path = check_key_file(target, given), key_file_of(target)
        secret = base64.b64encode(self._secret).decode()
        content = {"version": VERSION, "secret": secret, "map": dict(sorted(self.tokens.items()))}
        with file_errors(path), atomic_write(path, PRIVATE, durable=True) as file:
            file.write(json.dumps(content, indent=2).encode())
        return not same


def _fields(model: type) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(model))
