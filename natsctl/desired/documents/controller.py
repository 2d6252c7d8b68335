"""Manifests of the Kubernetes controller (nats-io/nack), read as it reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from natsctl.api.documents import did_you_mean
from natsctl.api.locations import DocumentNode, LocatedDict, LocatedList
from natsctl.desired.assets import Kind
from natsctl.desired.documents.asset_documents import (
    CREATE_ONLY,
    PROTECT,
    Read,
    read_bucket,
    read_consumer,
    read_stream,
)
from natsctl.desired.documents.collector import Collector


class SpecField(NamedTuple):
    """The target of a field: a key, or one below another; `below` are the fields of an object, or of each of a list."""

    to: tuple[str, ...]
    below: dict[str, SpecField] | None = None


def _plain(same: str, **others: str) -> dict[str, SpecField]:
    """Return fields that keep their value: those with the same name in a configuration (in snake case), and others."""
    names = {name: re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in same.split()} | others
    return {name: SpecField((to,)) for name, to in names.items()}


_TRANSFORM: Final = _plain("dest", source="src")
_PLACEMENT: Final = _plain("cluster tags")
_REPUBLISH: Final = _plain("headersOnly", source="src", destination="dest")
_ORIGIN: Final = {
    **_plain("name optStartSeq optStartTime filterSubject"),
    "externalApiPrefix": SpecField(("external", "api")),
    "externalDeliverPrefix": SpecField(("external", "deliver")),
    "subjectTransforms": SpecField(("subject_transforms",), _TRANSFORM),
}
_ORIGINS: Final = {
    "placement": SpecField(("placement",), _PLACEMENT),
    "republish": SpecField(("republish",), _REPUBLISH),
    "mirror": SpecField(("mirror",), _ORIGIN),
    "sources": SpecField(("sources",), _ORIGIN),
}

STREAM: Final = {
    **_plain(
        "name description subjects retention maxConsumers maxMsgs maxMsgsPerSubject maxBytes maxAge "
        "maxMsgSize storage discard noAck duplicateWindow compression sealed denyDelete denyPurge "
        "allowDirect mirrorDirect allowMsgTtl subjectDeleteMarkerTtl allowMsgCounter allowMsgSchedules "
        "persistMode metadata",
        discardPerSubject="discard_new_per_subject",
        replicas="num_replicas",
        allowRollup="allow_rollup_hdrs",
        firstSequence="first_seq",
        allowAtomicPublish="allow_atomic",
    ),
    **_ORIGINS,
    "subjectTransform": SpecField(("subject_transform",), _TRANSFORM),
    "consumerLimits": SpecField(("consumer_limits",), _plain("inactiveThreshold maxAckPending")),
}
CONSUMER: Final = _plain(
    "durableName description deliverPolicy optStartSeq optStartTime deliverSubject deliverGroup "
    "ackPolicy ackWait maxDeliver backoff filterSubject filterSubjects replayPolicy sampleFreq "
    "maxWaiting rateLimitBps maxAckPending flowControl headersOnly inactiveThreshold pauseUntil "
    "priorityPolicy priorityGroups memStorage metadata",
    streamName="stream",
    heartbeatInterval="idle_heartbeat",
    maxRequestBatch="max_batch",
    maxRequestExpires="max_expires",
    maxRequestMaxBytes="max_bytes",
    pinnedTtl="priority_timeout",
    replicas="num_replicas",
)
_BUCKET: Final = _plain("bucket description ttl storage replicas compression", maxBytes="max_bucket_size")
OBJECT_STORE: Final = {**_BUCKET, **_plain("metadata"), "placement": _ORIGINS["placement"]}
KEY_VALUE: Final = {
    **_BUCKET,
    **_plain("maxValueSize history limitMarkerTtl"),
    **_ORIGINS,
}

CONNECTION: Final = ("account", "creds", "nkey", "servers", "tls", "tlsFirst", "jsDomain")
"""Fields for the controller's connection and login; natsctl has flags and contexts for them."""
LIFE: Final = ("preventDelete", "preventUpdate")
"""The changes that the controller may make to an existing asset."""
DELIVER_POLICIES: Final = {
    "byStartSequence": "by_start_sequence",
    "byStartTime": "by_start_time",
    "lastPerSubject": "last_per_subject",
}
"""Values that the controller spells differently."""


GROUP: Final = "jetstream.nats.io/"
KINDS: Final[dict[str, tuple[Kind, Read, dict[str, SpecField]]]] = {
    "Stream": (Kind.STREAM, read_stream, STREAM),
    "Consumer": (Kind.CONSUMER, read_consumer, CONSUMER),
    "KeyValue": (Kind.KEY_VALUE, read_bucket, KEY_VALUE),
    "ObjectStore": (Kind.OBJECT_STORE, read_bucket, OBJECT_STORE),
}
PASSED_OVER: Final = {
    "Account": "it says where the controller connects to; natsctl has --server and --context for that",
    "StreamTemplate": "servers have no stream templates any more",
}
REQUIRED: Final = {"Stream": "name", "Consumer": "durableName", "KeyValue": "bucket", "ObjectStore": "bucket"}


def read_manifest(
    node: DocumentNode, found: Collector, read: Callable[[DocumentNode], Iterator[DocumentNode]]
) -> Iterator[DocumentNode]:
    """Add the assets of a Kubernetes resource; `read` takes the items of a List, and returns their includes."""
    version, kind = str(node.value.get("apiVersion")), str(node.value.get("kind"))
    items = node.at("items")
    of = kind.removesuffix("List") if version.startswith(GROUP) else ""
    if isinstance(items.value, LocatedList) and (kind == "List" or (of != kind and of in (*KINDS, *PASSED_OVER))):
        for index in range(len(items.value)):
            yield from read(_item(items.at(index), version, of))
    elif not version.startswith(GROUP):
        found.note(node, f"{version} {kind} is skipped: it does not belong to {GROUP}*")
    elif kind in PASSED_OVER:
        found.note(node, f"{kind} is passed over: {PASSED_OVER[kind]}")
    elif kind not in KINDS:
        known = did_you_mean(kind, KINDS)
        found.fault(node.at("kind"), f"expected {', '.join(KINDS)}, got {kind}{known}")
    else:
        _resource(node, kind, found)


def _item(node: DocumentNode, version: str, kind: str) -> DocumentNode:
    """Return the item of a list; items of a `StreamList` may omit the kind, because the list implies it."""
    if not kind or not isinstance(node.value, LocatedDict) or "kind" in node.value:
        return node
    value = node.value.without("apiVersion")
    value.lines = dict(value.lines)
    value.put("apiVersion", version, node.line)
    value.put("kind", kind, node.line)
    return node.holding(value)


def _resource(node: DocumentNode, kind: str, found: Collector) -> None:
    spec = node.at("spec")
    if not isinstance(spec.value, LocatedDict):
        found.fault(spec, f"expected an object: the {kind}")
        return
    asset, reader, fields = KINDS[kind]
    if not spec.value.get(REQUIRED[kind]):
        found.fault(spec, f"a {kind} needs its {REQUIRED[kind]}")
        return
    passed = [key for key in CONNECTION if spec.value.get(key)]
    if passed:
        found.note(spec, f"{', '.join(passed)} passed over: natsctl connects as its flags or its context say")
    own = spec.value.without(*CONNECTION, *LIFE)
    made = _made(spec.holding(own), fields, found)
    if kind == "Stream" and "storage" not in made:
        found.note(spec, "no storage is given: memory, the controller's default")
        made.put("storage", "memory", spec.line)
    if kind == "Stream" and "allow_direct" not in made:
        made.put("allow_direct", False, spec.line)  # the controller's default; natsctl's is true
    if kind == "Consumer" and "ack_policy" not in made:
        found.note(spec, "no ackPolicy is given: none, the controller's default")
        made.put("ack_policy", "none", spec.line)
    for key, to in zip(LIFE, (PROTECT, CREATE_ONLY), strict=True):
        if spec.value.get(key) is not None:
            made.put(to, spec.value[key], spec.value.lines[key], (key,))
    reader(spec.holding(made), asset, found)


def _made(node: DocumentNode, fields: dict[str, SpecField], found: Collector) -> LocatedDict:
    """Return the object in the fields of a configuration, each key with its line and its original name."""
    made = LocatedDict(node.value.line)
    for key, value in node.value.items():
        field, line = fields.get(key), node.value.lines[key]
        if field is None:
            found.fault(node.at(key), f"unknown key{did_you_mean(key, (*fields, *CONNECTION, *LIFE))}")
            continue
        if value is None or (not value and not isinstance(value, bool | LocatedDict | LocatedList)):
            continue
        into = made
        for step in field.to[:-1]:
            if step not in into:
                into.put(step, LocatedDict(line), line, ())
            into = into[step]
        into.put(field.to[-1], _value(node.at(key), field, found), line, (key,))
    return made


def _value(node: DocumentNode, field: SpecField, found: Collector) -> Any:
    value = node.value
    if field.to == ("deliver_policy",) and isinstance(value, str):
        return DELIVER_POLICIES.get(value, value)
    if field.below is None:
        return value
    if isinstance(value, LocatedDict):
        return _made(node, field.below, found)
    if not isinstance(value, LocatedList):
        return value
    made = LocatedList(value.line)
    made.lines = value.lines
    made.extend(_value(node.at(index), field, found) for index in range(len(value)))
    return made
