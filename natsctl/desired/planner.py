"""Plans of sets of documents for accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from natsctl.api.errors import NotAuthorisedError
from natsctl.client.manager import Manager
from natsctl.client.requests import side_by_side
from natsctl.desired.assets import AssetKey, DocumentSet, creator_of, is_adopted, owner_of
from natsctl.desired.dependencies import is_beyond, needed_name, origins, refuse_clashes, subjects_taken, with_needs
from natsctl.desired.differ import NOT_CREATED, Differ, refuse_removal, removal_of
from natsctl.desired.live import REQUESTS_AT_ONCE, LiveAsset, LiveState, read_live_state
from natsctl.desired.plan import Action, Change, Plan
from natsctl.desired.server_defaults import FIELDS, capped_differences, read_caps, without_effect


@dataclass(frozen=True, slots=True)
class PlanOptions:
    prune: bool = False
    """Remove assets that are labelled as this owner's and that no document describes."""
    allow_replace: bool = False
    """Remove and create again assets that cannot be changed in place."""
    keep_messages: bool = False
    """Carry the messages of a replaced stream over, by a backup and a restore."""
    adopt: bool = False
    """Take over assets of other owners, and label those without an owner."""
    named: frozenset[str] = frozenset()
    """The names of assets that a destruction removes although natsctl did not create them."""
    max_removals: int | None = None
    """The number of removals above which nothing is done, None for `default_max_removals` of the account."""


DEFAULT = PlanOptions()
ALWAYS_REMOVABLE: Final = 10
"""Removals allowed in an account of any size; a tenth of its assets if that is more."""


def default_max_removals(assets: int) -> int:
    return max(ALWAYS_REMOVABLE, assets // 10)


def make_plan(wanted: DocumentSet, live_state: LiveState, options: PlanOptions = DEFAULT) -> Plan:
    judge = Differ(
        wanted,
        live_state,
        allow_replace=options.allow_replace,
        adopt=options.adopt,
        keep_messages=options.keep_messages,
    )
    changes: dict[AssetKey, Change] = {}
    for key in sorted(wanted.wanted, key=lambda key: bool(key.consumer)):
        change = judge.change(wanted.wanted[key], changes.get(key.origin) if key.consumer else None)
        if change is not None:
            changes[key] = change
    extra = [key for key in _of_owner(wanted, live_state) if key not in wanted.wanted] if wanted.is_owned else []
    notes = [*wanted.notes, *_without_effect(wanted, judge)]
    if options.prune:
        _remove(changes, extra, wanted, live_state, options)
        _refuse_to_remove_below_what_stays(changes, wanted)
    elif extra:
        names = ", ".join(str(key) for key in extra)
        notes.append(f"no document describes {names} (owner {wanted.owner}): --prune removes them")
    _note_what_goes_along(changes, wanted, live_state, options)
    _note_who_waits(changes, live_state, options)
    _note_who_is_fed(changes, live_state)
    _refuse_violated_limits(changes, live_state)
    refuse_clashes(changes, live_state)
    if options.keep_messages:
        _keep_messages(changes, live_state)
    unchanged = sum(key not in changes for key in wanted.wanted)
    return _plan(wanted, live_state, options, changes, unchanged, notes)


def _without_effect(wanted: DocumentSet, judge: Differ) -> Iterator[str]:
    """Yield a warning for mentioned settings without effect given those of the existing asset."""
    for key, one in wanted.wanted.items():
        if key in judge.live_state.assets and not one.create_only and FIELDS & one.mentioned:
            known = {reason for _, reason in without_effect(one, one.config)}
            found = [reason for _, reason in without_effect(one, judge.future(key) or {})]
            yield from (f"{one.place}: warning: {reason}" for reason in found if reason not in known)


def make_destruction(wanted: DocumentSet, live_state: LiveState, options: PlanOptions = DEFAULT) -> Plan:
    """Return the plan that removes all that documents describe, and with `prune` the rest of their owner's assets."""
    changes: dict[AssetKey, Change] = {}
    named = [key for key in live_state.assets if key in wanted.wanted]
    extra = [key for key in _of_owner(wanted, live_state) if key not in wanted.wanted] if options.prune else []
    kept = {
        key: live_state.assets[key]
        for key in named
        if is_adopted(live_state.assets[key].config)
        and not any(not names_of(one).isdisjoint(options.named) for one in (key, key.origin))
    }
    _remove(changes, [*(key for key in named if key not in kept), *extra], wanted, live_state, options)
    notes = [*wanted.notes, *_kept_notes(changes, kept)]
    _note_what_goes_along(changes, wanted, live_state, options)
    _note_who_is_fed(changes, live_state)
    return _plan(wanted, live_state, options, changes, 0, notes)


def _plan(
    wanted: DocumentSet,
    live_state: LiveState,
    options: PlanOptions,
    changes: dict[AssetKey, Change],
    unchanged: int,
    notes: list[str],
) -> Plan:
    ordered = with_needs(changes, live_state)
    return Plan(
        owner=wanted.owner,
        server=dict(live_state.server),
        changes=ordered,
        unchanged=unchanged,
        notes=notes,
        keep_messages=options.keep_messages,
        max_removals=default_max_removals(live_state.total) if options.max_removals is None else options.max_removals,
    )


def _of_owner(wanted: DocumentSet, live_state: LiveState) -> Iterator[AssetKey]:
    """Return the assets that an owner's documents have created and that still belong to that owner."""
    for key, live in live_state.assets.items():
        if owner_of(live.config) == creator_of(live.config) == wanted.owner:
            yield key


def names_of(key: AssetKey) -> frozenset[str]:
    """Return the names of an asset: `Stream A`, `A`, `KeyValue B`, `B`, `KV_B`, `A > CONSUMER`."""
    return frozenset((str(key), key.name, needed_name(key)))


def _kept_notes(changes: Mapping[AssetKey, Change], kept: Mapping[AssetKey, LiveAsset]) -> Iterator[str]:
    """Yield a note for each asset that stays, and refuse to remove the stream of a consumer that has to stay."""
    for key, live in kept.items():
        creator = creator_of(live.config)
        why = f"the documents of {creator} created it" if creator else NOT_CREATED
        above = changes.get(key.origin) if key.consumer else None
        if above is None:
            yield f'{key} stays, {why}: --remove "{key}" removes it'
        elif not above.refused:
            above.refused, above.hint = f"{key} would go with it, and {why}", f'--remove "{key}" allows that'


def _remove(
    changes: dict[AssetKey, Change],
    keys: list[AssetKey],
    wanted: DocumentSet,
    live_state: LiveState,
    options: PlanOptions,
) -> None:
    """Plan the removal of assets; consumers of a removed stream need no change of their own."""
    gone = {key.stream for key in keys if not key.consumer}
    gone |= {key.stream for key, change in changes.items() if not key.consumer and _is_lost(change, options)}
    for key in keys:
        if key.consumer and key.stream in gone:
            continue
        change = removal_of(live_state.assets[key])
        refuse_removal(change, live_state.assets[key], wanted.owner, options.adopt)
        changes[key] = change


def _note_what_goes_along(
    changes: dict[AssetKey, Change], wanted: DocumentSet, live_state: LiveState, options: PlanOptions
) -> None:
    """Note the consumers that go with their streams, and refuse to remove protected ones."""
    leaving = {
        key: change
        for key, change in changes.items()
        if not key.consumer and (change.action is Action.DELETE or _is_lost(change, options))
    }
    along: dict[AssetKey, list[str]] = {key: [] for key in leaving}
    for key, live in live_state.assets.items() if leaving else ():
        if not key.consumer or key.origin not in leaving:
            continue
        change = leaving[key.origin]
        if change.action is Action.REPLACE and key in wanted.wanted:
            continue  # it is created again
        along[key.origin].append(key.consumer)
        if not change.refused:
            refuse_removal(change, live, wanted.owner, options.adopt)
    for key, names in along.items():
        if names:
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            leaving[key].notes.append(f"its consumers go with it: {shown}")


def _note_who_waits(changes: dict[AssetKey, Change], live_state: LiveState, options: PlanOptions) -> None:
    """Note streams that continue to copy after the last message of a stream which starts again at its first."""
    emptied = {key.stream: change for key, change in changes.items() if not key.consumer and _is_lost(change, options)}
    copies: dict[str, list[str]] = {stream: [] for stream in emptied}
    for key, live in live_state.assets.items() if emptied else ():
        change = changes.get(key)
        stays = not key.consumer and (change is None or change.action is Action.UPDATE)
        for origin in copies.keys() & set(origins(live.config)) if stays else ():
            copies[origin].append(key.stream)
    for stream, names in copies.items():
        last = int((live_state.assets[AssetKey(stream)].info.get("state") or {}).get("last_seq") or 0)
        if names and last:
            emptied[stream].notes.append(
                f"it begins again at its first message, and {', '.join(names)} may skip its messages before message "
                f"{last + 1:,}: --keep-messages goes on where it was"
            )


def _note_who_is_fed(changes: dict[AssetKey, Change], live_state: LiveState) -> None:
    """Warn of streams that stay and receive nothing more, as the stream that they copy is removed."""
    removed = {
        key.stream: change for key, change in changes.items() if not key.consumer and change.action is Action.DELETE
    }
    fed: dict[str, list[str]] = {stream: [] for stream in removed}
    for key, live in live_state.assets.items() if removed else ():
        change = changes.get(key)
        if key.consumer or key.stream in removed:
            continue
        config = (change.config if change is not None else None) or live.config
        for origin in removed.keys() & set(origins(config)):
            fed[origin].append(key.stream)
    for stream, names in fed.items():
        if names:
            removed[stream].notes.append(f"warning: it feeds {', '.join(names)}; they will get no more messages")


def _refuse_to_remove_below_what_stays(changes: dict[AssetKey, Change], wanted: DocumentSet) -> None:
    """Refuse to remove a stream that no document describes, while documents describe consumers of it."""
    for key in wanted.wanted:
        change = changes.get(key.origin) if key.consumer else None
        if change is not None and change.action is Action.DELETE and not change.refused:
            change.refused = f"no document describes it, but {key} is described"
            change.hint = "describe the stream as well, or give its consumers an --owner of their own"


def _refuse_violated_limits(changes: dict[AssetKey, Change], live_state: LiveState) -> None:
    """Refuse limits for consumers that unchanged consumers exceed: the server would refuse them."""
    limiting = {
        key.stream: (change, change.config.get("consumer_limits") or {})
        for key, change in changes.items()
        if change.config and change.action is Action.UPDATE and not key.consumer and _limits_consumers(change)
    }
    beyond: dict[str, list[str]] = {stream: [] for stream in limiting}
    for key, live in live_state.assets.items() if limiting else ():
        stays = key.consumer and key.stream in limiting and key not in changes
        if stays and is_beyond(limiting[key.stream][1], live.config):
            beyond[key.stream].append(key.consumer)
    for stream, names in beyond.items():
        change = limiting[stream][0]
        if names and not change.refused:
            change.refused = f"change to limits violates consumers: {', '.join(names)}"
            change.hint = "change or remove them first"


def _limits_consumers(change: Change) -> bool:
    return any(difference.path.startswith("consumer_limits") for difference in change.differences)


def _is_lost(change: Change, options: PlanOptions) -> bool:
    """Return whether a stream is replaced by one without its messages and consumers."""
    return change.action is Action.REPLACE and not options.keep_messages


def _keep_messages(changes: dict[AssetKey, Change], live_state: LiveState) -> None:
    """Note streams that keep their messages, and refuse a first sequence above existing messages."""
    for key, change in changes.items():
        if change.action is not Action.REPLACE or change.consumer or not change.messages:
            continue
        first = int((live_state.assets[key].info.get("state") or {}).get("first_seq") or 0)
        begins = int((change.config or {}).get("first_seq") or 0)
        if begins > first and not change.refused:
            change.refused = f"first_seq {begins:,} is after its first message, {first:,}: messages could not be kept"
            change.hint = "leave first_seq as it is, or replace it without --keep-messages"
        change.notes.append("its messages are saved before and restored after")


async def plan_for(
    manager: Manager, documents: DocumentSet, options: PlanOptions = DEFAULT, *, whole: bool = False
) -> Plan:
    """Return the plan that makes the account match documents.

    With `whole` all of it is read, to find the owner's other assets.
    """
    named = None if whole or options.prune else streams_of(documents)
    live_state = await read_live_state(manager, named)
    plan = make_plan(documents, live_state, options)
    if named is not None and (others := await _rivals(manager, plan) - named):
        live_state = await read_live_state(manager, named | others)
        plan = make_plan(documents, live_state, options)
    if capped := capped_differences(documents, plan):
        caps = await read_caps(manager, capped, live_state)
        return (
            make_plan(documents, replace(live_state, limits={**live_state.limits, **caps}), options) if caps else plan
        )
    return plan


async def _rivals(manager: Manager, plan: Plan) -> set[str]:
    """Return the streams of the account that have subjects which the plan would have streams take."""

    async def ask(subject: str) -> list[str]:
        try:
            return list(await manager.stream_names(subject=subject))
        except NotAuthorisedError:
            return []  # a user who may only change streams of some names learns of an overlap from the server

    wanted = subjects_taken({change.key: change for change in plan.changes})
    return {name for names in await side_by_side(ask, sorted(wanted), REQUESTS_AT_ONCE) for name in names}


async def destruction_for(manager: Manager, documents: DocumentSet, options: PlanOptions = DEFAULT) -> Plan:
    """Return the plan that removes from the account what documents describe."""
    named = None if options.prune else streams_of(documents)
    return make_destruction(documents, await read_live_state(manager, named), options)


def streams_of(documents: DocumentSet) -> set[str]:
    """Return the streams that documents refer to: described, consumed, mirrored or sourced from."""
    streams = {key.stream for key in documents.wanted}
    for one in documents.wanted.values():
        if not one.key.consumer:
            streams.update(origins(one.config))
    return streams
