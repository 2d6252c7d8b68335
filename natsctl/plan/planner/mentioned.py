"""What an asset shall be: what it is, with the fields that a document mentions.

A field that no document mentions is left as it is, and null asks for its default. Metadata and the limits for consumers
are merged key by key; other objects and lists are replaced as a whole. Two exceptions keep documents short: a field
that excludes a mentioned one is dropped with it, and a field that a server has filled in by itself gives way where it
would keep a server from accepting the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from natsctl.client.asset_config import CREATED, new_stream
from natsctl.plan import labels
from natsctl.plan.asset import Kind
from natsctl.plan.planner.compare import same
from natsctl.plan.planner.needs import LIMITED
from natsctl.plan.planner.settle import ConfigRefusedError, Surroundings, settled
from natsctl.plan.wanted import DocumentSet, Wanted

Config = dict[str, Any]

BAGS: Final = ("metadata", "consumer_limits")
"""Objects whose keys are independent of each other."""
EXCLUDES: Final[dict[str, tuple[str, ...]]] = {
    "filter_subject": ("filter_subjects",),
    "filter_subjects": ("filter_subject",),
    "mirror": ("subjects", "sources"),
    "deliver_policy": ("opt_start_seq", "opt_start_time"),
}
"""Fields with those that a server refuses beside them."""
_NAMES: Final = frozenset(("name", "durable_name"))
_FOLLOWING: Final = frozenset(("duplicate_window", *LIMITED))
"""Fields that are lowered with a limit of another field, even where their value was chosen."""
SEALING: Final = ("sealed", "max_age", "discard", "deny_delete", "deny_purge", "allow_rollup_hdrs")
"""Fields that cannot change any more once a stream is sealed."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A configuration without labels, and its fields that are compared with the live asset."""

    config: Config
    compared: frozenset[str]


def created(one: Wanted) -> Merged:
    """Return the configuration with which a missing asset is created."""
    config = labels.without_server_made(one.config)
    if one.kind is Kind.STREAM:
        config = new_stream(config)
    return Merged(config, frozenset(config))


def as_created(documents: DocumentSet) -> DocumentSet:
    """Return the same documents with the whole configurations that a creation sends."""
    wanted = {key: replace(one, config=created(one).config) for key, one in documents.wanted.items()}
    return replace(documents, wanted=wanted)


def merged(one: Wanted, has: Mapping[str, Any]) -> Merged:
    """Return the desired configuration of an asset that exists as `has`."""
    config = labels.stripped(labels.without_server_made(has))
    compared = set(one.mentioned)
    for name in one.nulls - one.at_creation:
        config.pop(name, None)
        if name in CREATED and not one.key.consumer:
            config[name] = CREATED[name]
    for name, value in labels.without_server_made(one.config).items():
        if name in one.at_creation:
            continue
        config[name] = _bag(one, name, config.get(name), value) if name in BAGS else value
    for name in {null.partition(".")[0] for null in one.nulls - one.at_creation if "." in null} - one.config.keys():
        config[name] = _bag(one, name, config.get(name), {})
    for name in compared & EXCLUDES.keys():
        for other in EXCLUDES[name] if one.config.get(name) else ():
            if other not in one.mentioned and config.pop(other, None) is not None:
                compared.add(other)
    return Merged(config, frozenset(name.partition(".")[0] for name in compared))


def _bag(one: Wanted, name: str, has: Any, value: Any) -> Any:
    """Return an object with the keys that a document mentions, and the other live ones."""
    if not isinstance(value, Mapping) or not isinstance(has or {}, Mapping):
        return value
    has = has or {}
    dropped = {null.partition(".")[2] for null in one.nulls if null.startswith(f"{name}.")}
    ignored = {key for key in value if f"{name}.{key}" in one.at_creation}
    rest = {key: old for key, old in has.items() if key not in dropped}
    return rest | {key: new for key, new in value.items() if key not in ignored}


def attempted(one: Wanted, has: Mapping[str, Any], around: Surroundings) -> Iterator[Merged]:
    """Return the configurations to try in turn for a live asset, until a server would accept one.

    A server refuses some of its own defaults beside new values: a window of duplicates that is longer than messages are
    kept, or the limit of waiting pulls of a consumer that is to push. So the second is without these, and the third
    without values that follow other limits, unless a document mentions them.
    """
    found = merged(one, has)
    yield found
    unmentioned = {name for name in found.config if name not in found.compared and name not in _NAMES and has.get(name)}
    filled = _filled(one, {name: value for name, value in has.items() if name not in unmentioned}, around)
    by_server = {name for name in unmentioned if same(name, has[name], filled.get(name))}
    yield _without(found, by_server)
    yield _without(found, by_server | (unmentioned & _FOLLOWING))


def _filled(one: Wanted, bare: Config, around: Surroundings) -> Config:
    """Return the configuration as a server would keep it, or that of an empty one where it refuses it."""
    for part in (bare, {name: bare[name] for name in _NAMES & bare.keys()}):
        try:
            return settled(one.key, part, around)
        except ConfigRefusedError:
            continue
    return {}


def _without(found: Merged, dropped: Set[str]) -> Merged:
    config = {name: value for name, value in found.config.items() if name not in dropped}
    return replace(found, config=config, compared=found.compared | dropped)


def is_plainly_so(one: Wanted, has: Mapping[str, Any]) -> bool:
    """Return whether all that a document mentions is live exactly as written.

    Most assets are, most of the time; for the others the normalised configurations are compared.
    """
    if one.nulls:
        return False
    for name, value in one.config.items():
        if name in one.at_creation or name == "name":
            continue
        if name in BAGS and isinstance(value, Mapping):
            there = has.get(name) or {}
            if not isinstance(there, Mapping) or any(there.get(key) != new for key, new in value.items()):
                return False
        elif has.get(name) != value and not same(name, has.get(name), value):
            return False
    return not any(has.get(other) for name in EXCLUDES.keys() & one.config.keys() for other in EXCLUDES[name])


def held_by_seal(one: Wanted, has: Mapping[str, Any]) -> list[str]:
    """Return the fields that a document would change, and that a sealed stream keeps for good."""
    if not has.get("sealed") or one.key.consumer or one.config.get("sealed"):
        return []
    own = one.kind is Kind.STREAM
    wanted = {name: one.config[name] for name in SEALING if name in one.config and name not in one.at_creation}
    return [
        name for name, value in wanted.items() if not same(name, has.get(name), value) and (own or name == "max_age")
    ]
