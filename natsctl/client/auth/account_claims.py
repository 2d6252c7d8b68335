"""Parts of an account's claims: limits, JetStream, exports, imports, subject mappings, scopes of signing keys.

Every function changes `account.nats` without signing: call `account.sign()` to check and sign all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from natsctl.api.errors import ConflictError, UsageError
from natsctl.client.auth.claims import NO_LIMIT, Document, faults, put
from natsctl.client.auth.operators import EntityNotFoundError, ManagedAccount

JETSTREAM: Final = (
    "mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending", "mem_max_stream_bytes",
    "disk_max_stream_bytes", "max_bytes_required",
)  # fmt: skip
"""Keys of limits about JetStream."""
DEFAULT_STORAGE_BYTES: Final = 1 << 30
STREAM: Final = "stream"
SERVICE: Final = "service"


def limits_of(account: ManagedAccount) -> Document:
    """Return the limits in an account's claims, to be read and changed."""
    limits: Document = account.nats.setdefault("limits", {})
    return limits


def has_jetstream(account: ManagedAccount) -> bool:
    limits = limits_of(account)
    tiers = limits.get("tiered_limits") or {}
    return any(one.get("mem_storage") or one.get("disk_storage") for one in (limits, *tiers.values()))


def set_limits(account: ManagedAccount, wanted: Mapping[str, int | bool]) -> None:
    """Set limits by their keys in the claims; a limit that is zero is left out of the claims."""
    for key, value in wanted.items():
        put(limits_of(account), key, value)


def enable_jetstream(account: ManagedAccount, wanted: Mapping[str, int | bool]) -> None:
    """Enable JetStream for an account, or change its limits; raises UsageError for an account with tiers."""
    limits = limits_of(account)
    if limits.get("tiered_limits"):
        raise UsageError(
            f"account {account.name} has limits by tier: flat limits would contradict them",
            hint="--no-jetstream removes all of its limits",
        )
    if not has_jetstream(account):
        first = {"mem_storage": DEFAULT_STORAGE_BYTES, "disk_storage": DEFAULT_STORAGE_BYTES}
        set_limits(account, {**first, "streams": NO_LIMIT, "consumer": NO_LIMIT})
    set_limits(account, wanted)
    if not has_jetstream(account):
        raise UsageError("JetStream needs storage on disk or in memory", hint="--no-jetstream turns it off")


def disable_jetstream(account: ManagedAccount) -> None:
    """Remove all limits about JetStream, without which an account may not use it."""
    for key in (*JETSTREAM, "tiered_limits"):
        limits_of(account).pop(key, None)
    account.nats.pop("cluster_traffic", None)


# -- exports and imports


class Sharing(NamedTuple):
    """The exports or the imports of an account, each known by its subject."""

    kind: str
    """`export` or `import`."""
    account: ManagedAccount

    @property
    def entries(self) -> list[Document]:
        return sorted(self.account.nats.get(f"{self.kind}s") or [], key=lambda one: str(one.get("subject", "")))

    def subject_of(self, entry: Document) -> str:
        return str(entry.get("subject", "")) if self.kind == "export" else local_subject(entry)

    def subjects(self) -> list[str]:
        return sorted(map(self.subject_of, self.entries))

    def find(self, subject: str) -> Document:
        """Return the entry of a subject in this account, a stream before a service; raises EntityNotFoundError."""
        found = [entry for entry in self.entries if self.subject_of(entry) == subject]
        if not found:
            raise EntityNotFoundError(self.kind, subject, self.subjects(), f"account {self.account.name}")
        return min(found, key=lambda one: one.get("type") != STREAM)

    def add(self, entry: Document) -> None:
        """Add an entry; raises ConflictError."""
        subject = self.subject_of(entry)
        if any(self.subject_of(one) == subject and one.get("type") == entry["type"] for one in self.entries):
            raise ConflictError(f"account {self.account.name} has a {entry['type']} {self.kind} {subject} already")
        body = {key: value for key, value in entry.items() if value}
        self.account.nats[f"{self.kind}s"] = [*(self.account.nats.get(f"{self.kind}s") or []), body]

    def remove(self, entry: Document) -> None:
        held = [one for one in self.account.nats[f"{self.kind}s"] if one is not entry]
        put(self.account.nats, f"{self.kind}s", held)


def local_subject(entry: Document) -> str:
    """Return the subject that an import has in its own account.

    Older JWTs have `to` in its place: of a stream a prefix, of a service the exporter's subject.
    """
    subject, to = str(entry.get("subject", "")), str(entry.get("to") or "")
    if entry.get("local_subject"):
        return str(entry["local_subject"])
    return f"{to}.{subject}" if to and entry.get("type") == STREAM else subject


def remote_subject(entry: Document) -> str:
    subject, to = str(entry.get("subject", "")), str(entry.get("to") or "")
    return to if to and entry.get("type") == SERVICE and not entry.get("local_subject") else subject


_BUCKET_SERVICES: Final = (
    "$JS.API.STREAM.INFO.KV_{}",
    "$JS.API.DIRECT.GET.KV_{}.$KV.{}.>",
    "$JS.API.CONSUMER.CREATE.KV_{}.>",
    "$KV.{}.>",
)
_BUCKET_STREAMS: Final = ("_INBOX.KV_{}.>",)
_API: Final = "$JS.API."


def bucket_exports(bucket: str) -> list[Document]:
    """Return the exports through which another account may use a key-value bucket."""
    common = {"name": f"KV_{bucket}", "description": f"Export for KV Bucket {bucket}"}
    return [
        {**common, "subject": subject.format(bucket, bucket), "type": kind}
        for kind, subjects in ((SERVICE, _BUCKET_SERVICES), (STREAM, _BUCKET_STREAMS))
        for subject in subjects
    ]


def bucket_imports(bucket: str, prefix: str, source: str) -> list[Document]:
    """Return the imports of a bucket of the account `source`; its API is reached below `prefix`."""
    found = []
    for bucket_export in bucket_exports(bucket):
        subject = str(bucket_export["subject"])
        local = f"{prefix}.{subject.removeprefix(_API)}" if bucket_export["type"] == SERVICE else subject
        found.append(
            {
                "name": bucket_export["name"],
                "subject": subject,
                "account": source,
                "local_subject": local,
                "type": bucket_export["type"],
            }
        )
    return found


# -- mappings


def mappings_of(account: ManagedAccount) -> dict[str, list[Document]]:
    return dict(sorted((account.nats.get("mappings") or {}).items()))


def add_mapping(account: ManagedAccount, source: str, target: str, weight: int, cluster: str = "") -> None:
    """Add a destination to the mapping of a subject; raises ConflictError."""
    held = mappings_of(account).get(source) or []
    if any(one.get("subject") == target and (one.get("cluster") or "") == cluster for one in held):
        raise ConflictError(f"mapping {source} -> {target} already exists")
    added = {"subject": target, "weight": weight, "cluster": cluster}
    set_mapping(account, source, [*held, {key: value for key, value in added.items() if value}])


def set_mapping(account: ManagedAccount, source: str, destinations: Sequence[Document]) -> None:
    account.nats["mappings"] = {**(account.nats.get("mappings") or {}), source: list(destinations)}


def remove_mapping(account: ManagedAccount, source: str) -> None:
    """Remove the mapping of a subject; raises EntityNotFoundError."""
    held = mappings_of(account)
    if source not in held:
        raise EntityNotFoundError("mapping", source, list(held), f"account {account.name}")
    put(account.nats, "mappings", {key: value for key, value in held.items() if key != source} or None)


def read_mappings(document: Any, origin: str) -> dict[str, list[Document]]:
    """Return the mappings of a file: an object of lists of `subject`, `weight` and `cluster`; raises UsageError."""
    if not isinstance(document, Mapping) or not document:
        raise UsageError(f"{origin}: expected an object with a list of destinations for each subject")
    mappings: dict[str, list[Document]] = {}
    for source, destinations in document.items():
        if not isinstance(source, str) or not isinstance(destinations, list) or not destinations:
            raise UsageError(f"{origin}: {source}: expected a list of destinations")
        mappings[source] = [_destination(destination, f"{origin}: {source}") for destination in destinations]
    return mappings


def _destination(entry: Any, origin: str) -> Document:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{origin}: expected an object with subject, weight and cluster")
    fields = {str(key).lower(): value for key, value in entry.items()}
    unknown = sorted(fields.keys() - {"subject", "weight", "cluster"})
    if unknown:
        raise UsageError(f"{origin}: unknown key {unknown[0]}")
    subject, weight, cluster = fields.get("subject"), fields.get("weight", 100), fields.get("cluster") or ""
    if not isinstance(subject, str) or not subject:
        raise UsageError(f"{origin}: subject is missing")
    check_weight(weight, origin)
    if not isinstance(cluster, str):
        raise UsageError(f"{origin}: cluster is no text")
    return {key: value for key, value in (("subject", subject), ("weight", weight), ("cluster", cluster)) if value}


def check_weight(weight: Any, origin: str) -> None:
    """Raise UsageError for a weight that is no percentage."""
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= 100:
        raise UsageError(f"{origin}: expected a weight of 1 to 100, not {weight!r}")


# -- scopes

CONNECTION_TYPES: Final = {
    "nats": "STANDARD", "ws": "WEBSOCKET", "leaf": "LEAFNODE", "wsleaf": "LEAFNODE_WS", "mqtt": "MQTT",
}  # fmt: skip
"""Kinds of connections, and their names in claims."""


def new_scope(role: str, description: str, template: Document, rules: Mapping[str, Iterable[str]]) -> Document:
    """Return a scope without limits except `template`'s; `rules` are subjects by `pub-allow` etc.

    Raises UsageError for rules that nats-server would refuse.
    """
    permissions: Document = {"pub": {}, "sub": {}}
    for name, subjects in rules.items():
        direction, _, rule = name.partition("-")
        put(permissions[direction], rule, list(subjects))
    scope = {"role": role, "template": {**permissions, "subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}}
    for key, value in template.items():
        put(scope["template"], key, value)  # type: ignore[arg-type]  # the template is an object
    put(scope, "description", description)
    wrong = faults({"name": role, "nats": {**scope["template"], "type": "user"}})  # type: ignore[dict-item]
    if wrong:
        raise UsageError(f"role {role}: {wrong[0]}")
    return scope
