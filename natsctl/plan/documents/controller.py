"""Manifests of the Kubernetes controller (nats-io/nack), `apiVersion: jetstream.nats.io/…`, read as it reads them.

Its empty texts and zeros mean "not given", and a stream without `storage` lives in memory, as its CRD says. The CRD's
default for `ackWait`, one nanosecond, is not taken over: it would have every message delivered again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from natsctl.api.documents import did_you_mean
from natsctl.plan.asset import Kind
from natsctl.plan.documents.assets import CREATE_ONLY, PROTECT, Read, read_consumer, read_stream
from natsctl.plan.documents.buckets import read_bucket
from natsctl.plan.documents.controller_fields import (
    CONNECTION,
    CONSUMER,
    DELIVER_POLICIES,
    KEY_VALUE,
    LIFE,
    OBJECT_STORE,
    STREAM,
    Field,
)
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.lined import Listed, Mapped, Spot

GROUP: Final = "jetstream.nats.io/"
KINDS: Final[dict[str, tuple[Kind, Read, dict[str, Field]]]] = {
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


def read_manifest(spot: Spot, found: Found, read: Callable[[Spot], Iterator[Spot]]) -> Iterator[Spot]:
    """Add the assets of a Kubernetes resource; `read` takes the items of a List, and returns their includes."""
    version, kind = str(spot.value.get("apiVersion")), str(spot.value.get("kind"))
    items = spot.at("items")
    if kind == "List" and isinstance(items.value, Listed):
        for index in range(len(items.value)):
            yield from read(items.at(index))
    elif not version.startswith(GROUP):
        found.note(spot, f"{version} {kind} is passed over: it is none of {GROUP}*")
    elif kind in PASSED_OVER:
        found.note(spot, f"{kind} is passed over: {PASSED_OVER[kind]}")
    elif kind not in KINDS:
        known = did_you_mean(kind, KINDS)
        found.fault(spot.at("kind"), f"expected {', '.join(KINDS)}, got {kind}{known}")
    else:
        _resource(spot, kind, found)


def _resource(spot: Spot, kind: str, found: Found) -> None:
    spec = spot.at("spec")
    if not isinstance(spec.value, Mapped):
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
    for key, to in zip(LIFE, (PROTECT, CREATE_ONLY), strict=True):
        if spec.value.get(key) is not None:
            made.put(to, spec.value[key], spec.value.lines[key], (key,))
    reader(spec.holding(made), asset, found)


def _made(spot: Spot, fields: dict[str, Field], found: Found) -> Mapped:
    """Return the object in the fields of a configuration, each key with its line and its original name."""
    made = Mapped(spot.value.line)
    for key, value in spot.value.items():
        field, line = fields.get(key), spot.value.lines[key]
        if field is None:
            found.fault(spot.at(key), f"unknown key{did_you_mean(key, (*fields, *CONNECTION, *LIFE))}")
            continue
        if _is_absent(value):
            continue
        into = made
        for step in field.to[:-1]:
            if step not in into:
                into.put(step, Mapped(line), line, ())
            into = into[step]
        into.put(field.to[-1], _value(spot.at(key), field, found), line, (key,))
    return made


def _is_absent(value: Any) -> bool:
    """Return whether the controller treats a value as absent."""
    return value is None or (not value and not isinstance(value, bool | Mapped | Listed))


def _value(spot: Spot, field: Field, found: Found) -> Any:
    value = spot.value
    if field.to == ("deliver_policy",) and isinstance(value, str):
        return DELIVER_POLICIES.get(value, value)
    if field.below is None:
        return value
    if isinstance(value, Mapped):
        return _made(spot, field.below, found)
    if not isinstance(value, Listed):
        return value
    made = Listed(value.line)
    made.lines = value.lines
    made.extend(_value(spot.at(index), field, found) for index in range(len(value)))
    return made
