"""Plans: changes and their differences, and a plan as a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import field

from natsctl.api.errors import ExitCode, NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.times import is_zero, parse_time
from natsctl.desired.assets import AssetKey, without_server_made
from natsctl.desired.live import LiveState


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    """Removed and created again, as the server does not change such a field in place."""
    DELETE = "delete"
    NONE = "none"


class Difference(Model, kw_only=True, omit_defaults=False):
    """One field that differs; `path` is `max_age` or `placement.tags`, absent values are null."""

    path: str
    old: Any = None
    new: Any = None


class Change(Model, kw_only=True, omit_defaults=False):
    """One step of a plan, in JSON as in a saved plan."""

    action: Action
    kind: str
    stream: str
    consumer: str = ""
    differences: list[Difference] = field(default_factory=list)
    config: dict[str, Any] | None = None
    """The whole configuration to send, ownership label included; null if the asset is removed."""
    before: dict[str, Any] | None = None
    """The configuration that the plan was made for, without server-written metadata; null if there is no asset."""
    needs: list[str] = field(default_factory=list)
    """Assets that must be changed first: `STREAM`, or `STREAM > CONSUMER`."""
    refused: str = ""
    """The reason why the change is not allowed; a plan with such a change is not applied."""
    hint: str = ""
    place: str = ""
    """The location in the documents."""
    takes_over: str | None = None
    """The owner, "" for none, of an asset that these documents would take over; null if it is theirs already."""
    messages: int = 0
    bytes: int = 0
    """The contents of an asset that is removed or replaced."""
    losses: list[str] = field(default_factory=list)
    """Losses through an update: messages, or progress of a consumer."""
    notes: list[str] = field(default_factory=list)
    """Further consequences; the losses are among them."""

    @property
    def key(self) -> AssetKey:
        return AssetKey(self.stream, self.consumer)


class Plan(Model, kw_only=True, omit_defaults=False):
    """All changes, in an order that works when done one by one; `unchanged` counts the other assets."""

    format: int = 1
    owner: str
    created: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    keep_messages: bool = False
    """Whether replaced streams get their messages and consumers back."""
    max_removals: int | None = None
    """Maximum number of removals that may be applied; null means no limit."""
    notes: list[str] = field(default_factory=list)

    @property
    def removals(self) -> int:
        """The number of removed assets, replacements that lose their messages included."""
        kept = self.keep_messages
        lost = [
            change for change in self.changes if change.action is Action.REPLACE and not (kept and not change.consumer)
        ]
        return len(lost) + sum(change.action is Action.DELETE for change in self.changes)

    @property
    def refused(self) -> list[Change]:
        return [change for change in self.changes if change.refused]


SETS: Final = frozenset(("subjects", "filter_subjects", "tags"))
"""Lists without a significant order."""
TIMES: Final = frozenset(("opt_start_time", "pause_until"))
SAMPLED: Final = "sample_freq"
OPEN: Final = frozenset(("", "metadata", "consumer_limits"))
"""Objects that are compared field by field even if one side lacks it: missing and empty mean the same."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return every field that differs: nested ones by dotted path, mirrors and sources by their stream.

    Absent fields and those at their zero value are the same, as on the wire.
    """
    return list(_objects("", old, new))


def _objects(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _values(f"{prefix}.{key}" if prefix else key, key, old.get(key), new.get(key))


def _values(path: str, key: str, old: Any, new: Any) -> Iterator[Difference]:
    if same(key, old, new):
        return
    if isinstance(old or {}, Mapping) and isinstance(new or {}, Mapping) and (path in OPEN or (old and new)):
        yield from _objects(path, old or {}, new or {})
    elif key == "sources" and _are_objects(old) and _are_objects(new):
        yield from _objects_by_name(path, old or [], new or [])
    else:
        yield Difference(path=path, old=old, new=new)


def _are_objects(value: Any) -> bool:
    """Return whether a value is a list of objects, or none; other values of newer servers are compared whole."""
    return not value or (isinstance(value, list) and all(isinstance(item, Mapping) for item in value))


def same(key: str, old: Any, new: Any) -> bool:
    if old == new or (not old and not new):
        return True
    if key in SETS and isinstance(old, list) and isinstance(new, list):
        return sorted(map(str, old)) == sorted(map(str, new))
    if key in TIMES:
        return moment(old) == moment(new)
    return key == SAMPLED and sampled(old) == sampled(new)


def sampled(text: Any) -> Any:
    """Return the percentage of sampled acks: `100` equals `100%`, and an empty value equals `0%`."""
    number = text.removesuffix("%") if isinstance(text, str) else text
    return int(number) if isinstance(number, str) and number.isdecimal() else number or 0


def moment(text: Any) -> int | str | None:
    """Return a time in ns since the epoch; a value that is no time unchanged, None for none."""
    if not isinstance(text, str) or is_zero(text):
        return None
    try:
        return parse_time(text)
    except ValueError:
        return text


def without_passed_pause(config: dict[str, Any], now_ns: int) -> dict[str, Any]:
    until = moment(config.get("pause_until"))
    if until is None or (isinstance(until, int) and until <= now_ns):
        return {name: value for name, value in config.items() if name != "pause_until"}
    return config


def _objects_by_name(path: str, old: list[Any], new: list[Any]) -> Iterator[Difference]:
    """Return the differences between lists of sources, matched by stream name."""
    before = _by_name([source for source in old if source not in new])
    after = _by_name([source for source in new if source not in old])
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _values(f"{path}[{name}]", "", before.get(name), after.get(name))


def _by_name(sources: list[Any]) -> dict[str, Any]:
    """Return sources by name; several of one stream are distinguished by their filters, then by their order."""
    named: dict[str, Any] = {}
    names = [str(source.get("name")) for source in sources]
    for name, source in zip(names, sources, strict=True):
        label = name
        if names.count(name) > 1:
            external = (source.get("external") or {}).get("api", "")
            label = ":".join(part for part in (name, external, source.get("filter_subject", "")) if part)
        number = 1
        while label in named:
            number += 1
            label = f"{label.partition('#')[0]}#{number}"
        named[label] = source
    return named


FORMAT = 1
"""The format that this version writes, and the latest that it reads."""
_HASH = "hash"
_SIGNS = frozenset({"format", "changes", _HASH})
"""Members that identify a document as a saved plan."""


class SavedPlan(Plan, kw_only=True, omit_defaults=False):
    """A plan as it is saved; `hash` covers all other members."""

    hash: str = ""


class PlanChangedError(NatsctlError):
    """The account has changed since the plan was saved; `faults` lists the changes."""

    exit_code = ExitCode.CONFLICT
    headline = "nothing was changed: the account differs from the plan's state"

    def __init__(self, changed: Sequence[str]) -> None:
        self.faults = list(changed)
        text = "\n".join([f"{self.headline}:", *self.faults])
        super().__init__(text, hint="make a new plan with natsctl plan --out")


def saved_document(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = {**msgspec.to_builtins(plan), "format": FORMAT}
    document.pop(_HASH, None)
    return {**document, _HASH: _hash_of(document)}


def encode_plan(plan: Plan) -> bytes:
    return json.dumps(saved_document(plan), indent=2, ensure_ascii=False).encode() + b"\n"


def is_saved_plan(text: bytes) -> bool:
    """Return whether a file's content looks like a saved plan, whole or not, rather than like a document."""
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return isinstance(document, dict) and document.keys() >= _SIGNS


def decode_plan(text: bytes, origin: str) -> Plan:
    """Return the plan in a file's content.

    Raises UsageError if it is not a plan, has a later format, or was edited.
    """
    try:
        document = json.loads(text)
    except ValueError as failure:
        raise UsageError(f"{origin} is no saved plan: {failure}", hint=_MAKE_ANEW) from failure
    if not isinstance(document, dict) or not document.keys() >= _SIGNS:
        raise UsageError(f"{origin} is no saved plan", hint="natsctl plan --out FILE writes one")
    said = document["format"]
    if not isinstance(said, int) or said > FORMAT:
        raise UsageError(
            f"{origin} is a plan of format {said}, this natsctl reads up to {FORMAT}",
            hint="apply it with the natsctl that made it, or a newer one",
        )
    if document.pop(_HASH) != _hash_of(document):
        raise UsageError(f"{origin} is not as it was written: its hash is another", hint=_MAKE_ANEW)
    try:
        return msgspec.convert(document, Plan)
    except msgspec.ValidationError as failure:
        raise UsageError(f"{origin}: {failure}", hint=_MAKE_ANEW) from failure


_MAKE_ANEW = "make a new one with natsctl plan --out; a plan is not meant to be edited"


def _hash_of(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def changed_since(plan: Plan, live_state: LiveState) -> list[str]:
    """Return the differences of the account from the time of the plan, a sentence for each asset and field."""
    changed: list[str] = []
    for change in plan.changes:
        if change.action is not Action.NONE:
            changed += _changed(change, live_state)
    return changed


def _changed(change: Change, live_state: LiveState) -> list[str]:
    live = live_state.assets.get(change.key)
    if change.before is None:
        return [] if live is None else [f"{change.key} exists now"]
    if live is None:
        return [f"{change.key} does not exist any more"]
    found = differences(change.before, without_server_made(live.config))
    return [f"{change.key}: {one.path} was {_shown(one.old)}, it is {_shown(one.new)} now" for one in found]


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
