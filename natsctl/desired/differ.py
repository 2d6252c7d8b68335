"""Comparison of one asset with its document by the server's rules.

A document mentions some fields; `merged` puts these onto the live configuration. Both are then normalised as the server
would, and the differences of the compared fields make a `Change`, or its refusal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from natsctl.api.consumer_config import check_update as check_consumer_update
from natsctl.api.stream import StreamConfig
from natsctl.api.stream_config import check_update as check_stream_update
from natsctl.api.stream_config import copy, settle
from natsctl.api.stream_rules import Draft
from natsctl.api.subjects import overlaps
from natsctl.api.update_losses import Loss, consumer_losses, stream_losses
from natsctl.client.asset_config import CREATED, OWNER, PROTECT, new_stream
from natsctl.desired.assets import (
    AssetKey,
    DesiredAsset,
    DocumentSet,
    Kind,
    creator_of,
    is_protected,
    owner_of,
    with_labels,
    without_labels,
    without_server_made,
)
from natsctl.desired.dependencies import LIMITED
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.plan import Action, Change, Difference, differences, same, without_passed_pause
from natsctl.desired.server_defaults import (
    ConfigRefusedError,
    ServerContext,
    ServerFeatures,
    kept,
    normalised,
    normalised_consumer,
    normalised_leniently,
    normalised_stream,
    without_nulls,
)

UNPROTECT = "apply it with `protect: false` first"
NOT_CREATED = "natsctl did not create it"
TAKE_OVER = "take it over with --adopt, or leave it out of the documents"


def removal_of(live: LiveAsset) -> Change:
    key = live.key
    change = Change(
        action=Action.DELETE,
        kind=str(key.kind),
        stream=key.stream,
        consumer=key.consumer,
        before=without_server_made(live.config),
    )
    record_contents(change, live)
    return change


def record_contents(change: Change, live: LiveAsset) -> None:
    """Set the messages and bytes that are lost if the asset is removed."""
    state = live.info.get("state") or {}
    change.messages, change.bytes = int(state.get("messages") or 0), int(state.get("bytes") or 0)


def refuse_removal(change: Change, live: LiveAsset, owner: str, adopt: bool) -> None:
    """Refuse a change that would remove an asset which is protected or belongs to another owner."""
    config, of = live.config, owner_of(live.config)
    what = "it" if live.key == change.key else str(live.key)
    if is_protected(config):
        change.refused, change.hint = f"{what} is protected", UNPROTECT
    elif of and of != owner and not adopt:
        change.refused, change.hint = f"{what} belongs to {of}", TAKE_OVER


Config = dict[str, Any]

BAGS: Final = ("metadata", "consumer_limits")
"""Objects that are compared key by key."""
EXCLUDES: Final[dict[str, tuple[str, ...]]] = {
    "filter_subject": ("filter_subjects",),
    "filter_subjects": ("filter_subject",),
    "mirror": ("subjects", "sources"),
    "deliver_policy": ("opt_start_seq", "opt_start_time"),
}
"""Fields, each with the fields that a server refuses together with it."""
_NAMES: Final = frozenset(("name", "durable_name"))
_FOLLOWING: Final = frozenset(("duplicate_window", *LIMITED))
"""Fields that have to be lowered when the limit that another field sets is."""
SEALING: Final = ("sealed", "max_age", "discard", "deny_delete", "deny_purge", "allow_rollup_hdrs")
"""Fields that cannot change any more once a stream is sealed."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A desired configuration without labels, and the fields to compare with the live asset."""

    config: Config
    compared: frozenset[str]


def created(one: DesiredAsset) -> Merged:
    config = without_server_made(one.config)
    if one.kind is Kind.STREAM:
        config = new_stream(config)
    return Merged(config, frozenset(config))


def as_created(documents: DocumentSet) -> DocumentSet:
    """Return the documents with the complete configurations that a creation sends."""
    wanted = {key: replace(one, config=created(one).config) for key, one in documents.wanted.items()}
    return replace(documents, wanted=wanted)


def merged(one: DesiredAsset, has: Mapping[str, Any]) -> Merged:
    """Return the desired configuration of an asset; `has` is the live one."""
    config = without_labels(without_server_made(has))
    compared = set(one.mentioned)
    for name in one.nulls - one.at_creation:
        config.pop(name, None)
        if name in CREATED and not one.key.consumer:
            config[name] = CREATED[name]
    for name, value in without_server_made(one.config).items():
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


def _bag(one: DesiredAsset, name: str, has: Any, value: Any) -> Any:
    """Return an object with the keys that a document mentions, and the other keys as they are live."""
    if not isinstance(value, Mapping) or not isinstance(has or {}, Mapping):
        return value
    has = has or {}
    dropped = {null.partition(".")[2] for null in one.nulls if null.startswith(f"{name}.")}
    ignored = {key for key in value if f"{name}.{key}" in one.at_creation}
    rest = {key: old for key, old in has.items() if key not in dropped}
    return rest | {key: new for key, new in value.items() if key not in ignored}


def attempted(one: DesiredAsset, has: Mapping[str, Any], around: ServerContext) -> Iterator[Merged]:
    """Return the configurations to try in turn for a live asset, until a server would accept one.

    A server refuses some of its own defaults together with new values: a duplicate window above the new `max_age`, or
    `max_waiting` of a consumer that becomes a push consumer. So the second one lacks the server's defaults, and the
    third also the values that follow other limits, unless a document mentions them.
    """
    found = merged(one, has)
    yield found
    unmentioned = {name for name in found.config if name not in found.compared and name not in _NAMES and has.get(name)}
    filled = _filled(one, {name: value for name, value in has.items() if name not in unmentioned}, around)
    by_server = {name for name in unmentioned if same(name, has[name], filled.get(name))}
    yield _without(found, by_server)
    yield _without(found, by_server | (unmentioned & _FOLLOWING))


def _filled(one: DesiredAsset, bare: Config, around: ServerContext) -> Config:
    """Return the configuration as a server would normalise it, or only the name if it would refuse it."""
    for part in (bare, {name: bare[name] for name in _NAMES & bare.keys()}):
        try:
            return normalised(one.key, part, around)
        except ConfigRefusedError:
            continue
    return {}


def _without(found: Merged, dropped: Set[str]) -> Merged:
    config = {name: value for name, value in found.config.items() if name not in dropped}
    return replace(found, config=config, compared=found.compared | dropped)


def is_literally_equal(one: DesiredAsset, has: Mapping[str, Any]) -> bool:
    """Return whether every field that a document mentions has this very value in the live configuration.

    This is the quick check for most assets; for the others the normalised configurations are compared.
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


def held_by_seal(one: DesiredAsset, has: Mapping[str, Any]) -> list[str]:
    """Return the fields that a document would change although the stream is sealed."""
    if not has.get("sealed") or one.key.consumer or one.config.get("sealed"):
        return []
    own = one.kind is Kind.STREAM
    wanted = {name: one.config[name] for name in SEALING if name in one.config and name not in one.at_creation}
    return [
        name for name, value in wanted.items() if not same(name, has.get(name), value) and (own or name == "max_age")
    ]


class Differ:
    """Comparison of the assets of one set of documents with one account."""

    def __init__(
        self,
        wanted: DocumentSet,
        live_state: LiveState,
        *,
        allow_replace: bool,
        adopt: bool,
        keep_messages: bool = False,
    ) -> None:
        self.wanted, self.live_state = wanted, live_state
        self.allow_replace, self.adopt, self.keep_messages = allow_replace, adopt, keep_messages
        self.able = ServerFeatures.of(live_state.server)
        self.alone = ServerContext(limits=live_state.limits, windows_for_sources=self.able.windows_for_sources)
        self.around = ServerContext(self.stream, live_state.limits, self.able.windows_for_sources)
        self._streams: dict[str, StreamConfig | None] = {}
        self._will: dict[AssetKey, Config | None] = {}
        self._consumers: dict[str, list[AssetKey]] = defaultdict(list)

    def stream(self, name: str) -> StreamConfig | None:
        """Return a stream as it will be, or as it is if no document describes it."""
        if name not in self._streams:
            key = AssetKey(name)
            config = self.future(key)
            self._streams[name] = None if config is None else self._settled_or_plain(key, config)
        return self._streams[name]

    def future(self, key: AssetKey) -> Config | None:
        """Return the future configuration of an asset, None if it neither exists nor is described."""
        if key not in self._will:
            one, live = self.wanted.wanted.get(key), self.live_state.assets.get(key)
            if live is None:
                self._will[key] = created(one).config if one else None
            else:
                left = one is None or one.create_only
                self._will[key] = live.config if one is None or left else merged(one, live.config).config
        return self._will[key]

    def _settled_or_plain(self, key: AssetKey, config: Config) -> StreamConfig:
        try:
            return normalised_stream(key, without_nulls(config), self.alone)
        except ConfigRefusedError:
            return StreamConfig(name=key.stream)

    def change(self, one: DesiredAsset, above: Change | None) -> Change | None:
        """Return the change that an asset needs, None for none; `above` is the change of a consumer's stream."""
        live = self.live_state.assets.get(one.key)
        anew = above is not None and above.action is Action.REPLACE
        if live is not None and not anew and (one.create_only or self._is_unchanged(live, one)):
            return None
        attempts = [created(one)] if live is None else attempted(one, live.config, self.around)
        for attempt in attempts:
            change = self._creation(one, attempt.config)
            try:
                new, refusal = normalised_leniently(one.key, attempt.config, self.around)
            except ConfigRefusedError as refused:
                return self._refused(change, live, refused.text)
            if refusal is None:
                break
        new = without_passed_pause(new, self.live_state.now_ns)
        if refusal is not None:
            return self._refused_unless_equal(change, one, live, new, attempt, refusal.description)
        if live is None:
            return self._checked_creation(change)
        if anew:
            return self._recreation(change, one, live, new, attempt)
        return self._comparison(change, one, live, new, attempt)

    def _is_unchanged(self, live: LiveAsset, one: DesiredAsset) -> bool:
        """Return True if it is known without normalising that no change is needed."""
        if self.adopt or not self.able.keeps_metadata:
            return False
        if one.key.consumer and (self.future(one.key.origin) or {}).get("consumer_limits"):
            return False  # the limits of its stream may lower its values
        has = live.info.get("config") or {}
        return is_protected(has) is one.protect and is_literally_equal(one, has)

    def _creation(self, one: DesiredAsset, config: Config) -> Change:
        keeps = self.able.keeps_metadata
        live = self.live_state.assets.get(one.key)
        creator = self.wanted.owner if live is None else creator_of(live.config)
        sent = with_labels(config, self.wanted.owner, one.protect, creator) if keeps else without_labels(config)
        if not one.key.consumer:
            sent = {"name": one.key.stream} | sent
        return Change(
            action=Action.CREATE,
            kind=str(one.kind),
            stream=one.key.stream,
            consumer=one.key.consumer,
            config=sent,
            place=str(one.place),
        )

    def _refused(self, change: Change, live: LiveAsset | None, reason: str, hint: str = "") -> Change:
        change.refused, change.hint = reason, hint
        if live is not None:
            change.action, change.before = Action.UPDATE, without_server_made(live.config)
        return change

    def _refused_unless_equal(
        self, change: Change, one: DesiredAsset, live: LiveAsset | None, new: Config, wanted: Merged, reason: str
    ) -> Change | None:
        """Refuse what this server would refuse, unless it is the live configuration, made by another server version."""
        if live is not None:
            self._differ(change, one, live, new, wanted)
            if not change.differences:
                return None
        return self._refused(change, live, reason)

    def _checked_creation(self, change: Change) -> Change:
        """Return the creation, refused if it cannot succeed on this account."""
        key, config = change.key, change.config or {}
        if change.stream in self.live_state.unreadable:
            return self._refused(
                change, None, f"the server does not show it: {self.live_state.unreadable[change.stream]}"
            )
        if key.consumer and key.origin not in self.wanted.wanted and key.origin not in self.live_state.assets:
            hint = f"describe the stream {key.stream} too"
            return self._refused(
                change, None, f"stream {key.stream} does not exist, and no document describes it", hint
            )
        if config.get("sealed"):
            hint = "leave `sealed` out until it is filled"
            return self._refused(change, None, "a stream cannot be made sealed", hint)
        return self._able(change, None)

    def _able(self, change: Change, live: LiveAsset | None) -> Change:
        """Return the change, refused if the server is too old for one of its fields."""
        lacking = self.able.lacking(change.config or {}, bool(change.consumer))
        return self._refused(change, live, lacking, "leave it out, or use a newer server") if lacking else change

    def _recreation(self, change: Change, one: DesiredAsset, live: LiveAsset, new: Config, wanted: Merged) -> Change:
        """Return the creation of a consumer that is lost with its replaced stream."""
        self._is_foreign(change, self._differ(change, one, live, new, wanted))
        change.before = without_server_made(live.config)
        how = "comes back" if self.keep_messages else "is recreated"
        change.notes.append(f"it goes with {live.key.stream}, and {how}")
        return change

    def _differ(self, change: Change, one: DesiredAsset, live: LiveAsset, new: Config, wanted: Merged) -> Config:
        """Record the differences of an asset in the compared fields; return its live configuration, normalised."""
        old = without_passed_pause(kept(live.key, live.config), self.live_state.now_ns)
        old = without_server_made(old)
        was = {name: value for name, value in without_labels(old).items() if name in wanted.compared}
        will = {name: value for name, value in new.items() if name in wanted.compared}
        change.differences = differences(was, will)
        change.differences += self._label_differences(one, old, owner_of(old))
        return old

    def _comparison(
        self, change: Change, one: DesiredAsset, live: LiveAsset, new: Config, wanted: Merged
    ) -> Change | None:
        old = self._differ(change, one, live, new, wanted)
        if held := held_by_seal(one, live.config):
            hint = f"describe {live.key} with `sealed: true`, or list {', '.join(held)} under `ignore`"
            return self._refused(change, live, f"it is sealed for good, with {', '.join(held)}", hint)
        if not change.differences:
            return None
        change.before = without_server_made(live.config)
        if live.key.consumer:  # sent explicitly, because it is updated before the limits of its stream
            limited = {
                difference.path: difference.new
                for difference in change.differences
                if difference.path in LIMITED and difference.new
            }
            change.config = (change.config or {}) | limited
        elif new.get("sealed"):  # sent explicitly, because a sealed stream cannot lose them
            change.config = (change.config or {}) | {"deny_delete": True, "deny_purge": True}
        change.action = Action.UPDATE
        if self._able(change, live).refused:
            return change
        reason = self._replacement_reason(live, new)
        change.action = Action.REPLACE if reason else Action.UPDATE
        if reason:
            record_contents(change, live)
        else:
            change.losses = [loss.text for loss in self._losses(change, live, new)]
            change.notes += change.losses
            change.notes += self._unmatched(change, new)
        return self._permitted(change, live, old, reason)

    def _losses(self, change: Change, live: LiveAsset, new: Config) -> list[Loss]:
        if change.consumer:
            return consumer_losses(live.config, new, live.info)
        return stream_losses(live.config, new, live.info.get("state") or {}, self.live_state.now_ns)

    def _unmatched(self, change: Change, new: Config) -> list[str]:
        """Return a note about consumers with filters that no longer overlap their stream's subjects, if any."""
        if change.consumer or not any(difference.path == "subjects" for difference in change.differences):
            return []
        subjects = new.get("subjects") or ()
        left = [name for name, filters in self._filters(change.stream) if not _any_overlap(filters, subjects)]
        return [f"it will have nothing for what these consumers filter: {', '.join(left)}"] if left else []

    def _filters(self, stream: str) -> Iterator[tuple[str, list[str]]]:
        if not self._consumers:
            for key in dict.fromkeys([*self.live_state.assets, *self.wanted.wanted]):
                self._consumers[key.stream].append(key)
        for key in (key for key in self._consumers[stream] if key.consumer):
            config = self.future(key) or {}
            filters = [*(config.get("filter_subjects") or ()), config.get("filter_subject")]
            if kept_filters := [str(subject) for subject in filters if subject]:
                yield key.consumer, kept_filters

    def _label_differences(self, one: DesiredAsset, old: Config, owner: str) -> list[Difference]:
        if not self.able.keeps_metadata:
            return []
        live: dict[str, str] = {}
        wanted: dict[str, str] = {}
        if is_protected(old) is not one.protect:
            (live if one.protect is False else wanted)[PROTECT] = "true"
        if self.adopt and owner != self.wanted.owner:
            wanted[OWNER] = self.wanted.owner
            live |= {OWNER: owner} if owner else {}
        return differences({"metadata": live}, {"metadata": wanted})

    def _is_foreign(self, change: Change, old: Config) -> bool:
        """Record the owner of an asset that a change adopts, and refuse it without `adopt`; return True if refused."""
        owner = owner_of(old)
        if owner != self.wanted.owner and self.able.keeps_metadata:
            change.takes_over = owner
            if not self.adopt:
                change.refused, change.hint = f"it belongs to {owner}" if owner else NOT_CREATED, TAKE_OVER
        return bool(change.refused)

    def _permitted(self, change: Change, live: LiveAsset, old: Config, reason: str) -> Change:
        """Return the change, refused if the owner, the protection or the options do not allow it."""
        if self._is_foreign(change, old):
            pass
        elif reason and is_protected(old):
            change.refused, change.hint = f"{reason}, and it is protected", UNPROTECT
        elif reason and not self.allow_replace:
            change.refused = reason
            kept_too = "; --keep-messages carries its messages over" if change.messages else ""
            change.hint = f"--allow-replace removes and recreates it{kept_too}"
        elif reason:
            change.notes.append(reason)
        return change

    def _replacement_reason(self, live: LiveAsset, new: Config) -> str:
        """Return the server's reason to refuse the change in place, "" if it would accept it."""
        try:
            if live.key.consumer:
                before = normalised_consumer(live.key, without_nulls(live.config), self.around)
                after = normalised_consumer(live.key, new, self.around)
                if bool(before.durable_name) is not bool(after.durable_name):
                    return "a consumer is made durable, or not, for good"
                refusal = check_consumer_update(before, after, bool(live.info.get("push_bound")))
            else:
                was = normalised_stream(live.key, without_nulls(live.config), self.alone)
                will = normalised_stream(live.key, new, self.around)
                refusal = check_stream_update(was, will) or settle(Draft(config=copy(will)))
        except ConfigRefusedError:
            return ""
        return refusal.description if refusal else ""


def _any_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(overlaps(one, other) for one in some for other in others)
