"""Compares what documents want with what there is, and says what has to happen. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from natsctl.api.config.consumer_update import check_update as check_consumer_update
from natsctl.api.config.stream_update import check_update as check_stream_update
from natsctl.api.stream import StreamConfig
from natsctl.plan import labels
from natsctl.plan.asset import AssetKey
from natsctl.plan.change import Action, Change, Plan
from natsctl.plan.compare import differences
from natsctl.plan.needs import with_needs
from natsctl.plan.settle import ConfigRefused, Surroundings, kept, settled, settled_consumer, settled_stream
from natsctl.plan.wanted import DocumentSet, Wanted
from natsctl.plan.world import Live, World


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan may do."""

    prune: bool = False
    """Remove what is labelled as this owner's and no document describes."""
    allow_replace: bool = False
    """Remove and make anew what cannot be changed in place."""
    keep_messages: bool = False
    """Carry the messages of a replaced stream over, by a backup and a restore."""
    adopt: bool = False
    """Take over what another owner has, and label what has no owner."""


@dataclass(slots=True)
class _Making:
    """A plan on its way: what it is made from, and the changes so far."""

    wanted: DocumentSet
    world: World
    options: PlanOptions
    changes: dict[AssetKey, Change] = field(default_factory=dict)
    unchanged: int = 0
    notes: list[str] = field(default_factory=list)
    streams: dict[str, StreamConfig | None] = field(default_factory=dict)

    @property
    def around(self) -> Surroundings:
        """What configurations are held against."""
        return Surroundings(self.stream, self.world.limits)

    def stream(self, name: str) -> StreamConfig | None:
        """A stream as it will be, or is where no document describes it."""
        if name not in self.streams:
            self.streams[name] = self._stream(AssetKey(name))
        return self.streams[name]

    def _stream(self, key: AssetKey) -> StreamConfig | None:
        one, live = self.wanted.wanted.get(key), self.world.assets.get(key)
        config = one.config if one else live.config if live else None
        if config is None:
            return None
        try:
            return settled_stream(key, config, Surroundings(limits=self.world.limits))
        except ConfigRefused:
            return StreamConfig(name=key.stream)


def make_plan(wanted: DocumentSet, world: World, options: PlanOptions = PlanOptions()) -> Plan:
    """What makes the account be as documents say."""
    making = _Making(wanted, world, options, notes=list(wanted.notes))
    for streams_first in (False, True):
        for key, one in wanted.wanted.items():
            if bool(key.consumer) is streams_first:
                _settle_on(making, key, one)
    if options.prune:
        for key, live in world.assets.items():
            if key not in wanted.wanted and labels.owner_of(live.config) == wanted.owner:
                _remove(making, live)
    return _plan(making)


def make_destruction(wanted: DocumentSet, world: World, options: PlanOptions = PlanOptions()) -> Plan:
    """What removes all that documents describe, and with `prune` all else of their owner."""
    making = _Making(wanted, world, options, notes=list(wanted.notes))
    for key, live in world.assets.items():
        if key in wanted.wanted or (options.prune and labels.owner_of(live.config) == wanted.owner):
            _remove(making, live)
    return _plan(making)


def _plan(making: _Making) -> Plan:
    changes = with_needs(making.changes, making.world)
    return Plan(
        owner=making.wanted.owner,
        server=dict(making.world.server),
        changes=changes,
        unchanged=making.unchanged,
        keep_messages=making.options.keep_messages,
        notes=making.notes,
    )


def _settle_on(making: _Making, key: AssetKey, one: Wanted) -> None:
    """Decide what becomes of an asset that a document describes."""
    live = making.world.assets.get(key)
    above = making.changes.get(key.origin) if key.consumer else None
    if live is not None and above is not None and above.action is Action.REPLACE:
        live = None  # it goes with its stream
    config = labels.labelled(one.config, making.wanted.owner, one.protect)
    change = Change(
        action=Action.CREATE,
        kind=str(one.kind),
        stream=key.stream,
        consumer=key.consumer,
        config=config,
        place=str(one.place),
    )
    try:
        new = settled(key, one.config, making.around)
    except ConfigRefused as refused:
        change.refused = refused.text
        change.action = Action.UPDATE if live else Action.CREATE
        making.changes[key] = change
        return
    if live is None:
        making.changes[key] = change
        return
    if one.create_only:
        making.unchanged += 1
        return
    _compare(making, change, one, live, new)
    if change.action is Action.NONE:
        making.unchanged += 1
    else:
        making.changes[key] = change


def _compare(making: _Making, change: Change, one: Wanted, live: Live, new: dict[str, Any]) -> None:
    """Turn a creation into what an asset that exists needs."""
    old = kept(live.key, labels.without_server_made(live.config))
    owner, protected = labels.owner_of(old), labels.is_protected(old)
    change.before = labels.without_server_made(live.config)
    change.differences = differences(labels.stripped(old), new)
    if protected is not one.protect:
        change.differences += differences(_protection(protected), _protection(one.protect))
    if making.options.adopt and owner != making.wanted.owner:
        change.differences += differences(_ownership(owner), _ownership(making.wanted.owner))
    if not change.differences:
        change.action = Action.NONE
        return
    reason = _why_not_in_place(making, live, new)
    change.action = Action.REPLACE if reason else Action.UPDATE
    if owner and owner != making.wanted.owner and not making.options.adopt:
        _refuse(change, f"it belongs to {owner}", "take it over with --adopt, or leave it out of the documents")
    elif reason:
        _hold(change, live)
        if protected:
            _refuse(change, f"{reason}, and it is protected", "apply it with `protect: false` first")
        elif not making.options.allow_replace:
            _refuse(change, reason, "allow it to be removed and made anew with --allow-replace")


def _ownership(owner: str) -> dict[str, Any]:
    return {"metadata": {labels.OWNER: owner}}


def _protection(protect: bool) -> dict[str, Any]:
    return {"metadata": {labels.PROTECT: "true"} if protect else {}}


def _why_not_in_place(making: _Making, live: Live, new: dict[str, Any]) -> str:
    """Why the server would not change an asset in place, "" where it would."""
    try:
        if live.key.consumer:
            before = settled_consumer(live.key, live.config, making.around)
            after = settled_consumer(live.key, new, making.around)
            refusal = check_consumer_update(before, after, bool(live.info.get("push_bound")))
        else:
            alone = Surroundings(limits=making.world.limits)
            refusal = check_stream_update(
                settled_stream(live.key, live.config, alone), settled_stream(live.key, new, making.around)
            )
    except ConfigRefused:
        return ""
    return refusal.description if refusal else ""


def _remove(making: _Making, live: Live) -> None:
    """Decide to remove an asset that exists."""
    key = live.key
    above = making.changes.get(key.origin) if key.consumer else None
    if above is not None and above.action is Action.DELETE:
        return  # it goes with its stream
    before = labels.without_server_made(live.config)
    change = Change(action=Action.DELETE, kind=str(key.kind), stream=key.stream, consumer=key.consumer, before=before)
    _hold(change, live)
    owner = labels.owner_of(before)
    if labels.is_protected(before):
        _refuse(change, "it is protected", "apply it with `protect: false` first")
    elif owner and owner != making.wanted.owner and not making.options.adopt:
        _refuse(change, f"it belongs to {owner}", "take it over with --adopt, or leave it out of the documents")
    making.changes[key] = change


def _refuse(change: Change, reason: str, hint: str) -> None:
    change.refused, change.hint = reason, hint


def _hold(change: Change, live: Live) -> None:
    """Tell what is lost with an asset."""
    state = live.info.get("state") or {}
    change.messages, change.bytes = int(state.get("messages") or 0), int(state.get("bytes") or 0)
