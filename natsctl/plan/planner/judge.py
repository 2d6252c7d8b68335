"""What becomes of one asset that a document describes: compared with what there is, by the server's own rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from natsctl.api.config.consumer_update import check_update as check_consumer_update
from natsctl.api.config.stream_config import copy, settle
from natsctl.api.config.stream_draft import Draft
from natsctl.api.config.stream_update import check_update as check_stream_update
from natsctl.api.stream import StreamConfig
from natsctl.api.subjects import overlaps
from natsctl.plan import labels
from natsctl.plan.asset import AssetKey
from natsctl.plan.change import Action, Change, Difference
from natsctl.plan.planner.compare import differences, without_passed_pause
from natsctl.plan.planner.levels import Abilities
from natsctl.plan.planner.losses import losses
from natsctl.plan.planner.needs import LIMITED
from natsctl.plan.planner.plain import Plain
from natsctl.plan.planner.removal import TAKE_OVER, UNPROTECT, hold
from natsctl.plan.planner.settle import (
    ConfigRefused,
    Surroundings,
    fields_of,
    kept,
    settled_anyway,
    settled_consumer,
    settled_stream,
    without_nulls,
)
from natsctl.plan.wanted import DocumentSet, Wanted
from natsctl.plan.world import Live, World

Config = dict[str, Any]


class Judge:
    """Compares the assets of one set of documents with one account."""

    def __init__(
        self, wanted: DocumentSet, world: World, *, allow_replace: bool, adopt: bool, keep_messages: bool = False
    ) -> None:
        self.wanted, self.world = wanted, world
        self.allow_replace, self.adopt, self.keep_messages = allow_replace, adopt, keep_messages
        self.able = Abilities.of(world.server)
        self.alone = Surroundings(limits=world.limits, windows_for_sources=self.able.windows_for_sources)
        self.around = Surroundings(self.stream, world.limits, self.able.windows_for_sources)
        self._streams: dict[str, StreamConfig | None] = {}
        self._consumers: dict[str, list[AssetKey]] = defaultdict(list)
        self._plain = Plain(world.limits, self._raw_stream)

    def stream(self, name: str) -> StreamConfig | None:
        """A stream of the account as it will be, or as it is where no document describes it."""
        if name not in self._streams:
            key = AssetKey(name)
            one, live = self.wanted.wanted.get(key), self.world.assets.get(key)
            stays = live is not None and (one is None or one.create_only)
            config = live.config if live is not None and stays else one.config if one else None
            self._streams[name] = None if config is None else self._settled_or_plain(key, config)
        return self._streams[name]

    def _settled_or_plain(self, key: AssetKey, config: Config) -> StreamConfig:
        try:
            return settled_stream(key, without_nulls(config), self.alone)
        except ConfigRefused:
            return StreamConfig(name=key.stream)

    def change(self, one: Wanted, above: Change | None) -> Change | None:
        """What has to happen to an asset, None for nothing; `above` is what happens to the stream of a consumer."""
        live = self.world.assets.get(one.key)
        anew = above is not None and above.action is Action.REPLACE
        config = labels.without_server_made(one.config)
        if live is not None and not anew and (one.create_only or self._is_plainly_so(live, config, one)):
            return None
        change = self._creation(one, config)
        try:
            new, refusal = settled_anyway(one.key, config, self.around)
        except ConfigRefused as refused:
            return self._refused(change, live, refused.text)
        new = without_passed_pause(new, self.world.now_ns)
        if refusal is not None:
            return self._refused_unless_so(change, one, live, new, refusal.description)
        if live is None:
            return self._checked_creation(change)
        if anew:
            return self._made_anew(change, one, live, new)
        return self._comparison(change, one, live, new)

    def _is_plainly_so(self, live: Live, config: Config, one: Wanted) -> bool:
        """Whether nothing has to happen, as far as that is seen without settling anything."""
        if self.adopt or not self.able.keeps_metadata:
            return False
        has = live.info.get("config") or {}
        return labels.is_protected(has) is one.protect and self._plain.is_so(live.key, has, config)

    def _raw_stream(self, name: str) -> Config | None:
        one, live = self.wanted.wanted.get(AssetKey(name)), self.world.assets.get(AssetKey(name))
        return one.config if one else live.config if live else None

    def _creation(self, one: Wanted, config: Config) -> Change:
        keeps = self.able.keeps_metadata
        sent = labels.labelled(config, self.wanted.owner, one.protect) if keeps else labels.stripped(config)
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

    def _refused(self, change: Change, live: Live | None, reason: str, hint: str = "") -> Change:
        change.refused, change.hint = reason, hint
        if live is not None:
            change.action, change.before = Action.UPDATE, labels.without_server_made(live.config)
        return change

    def _refused_unless_so(
        self, change: Change, one: Wanted, live: Live | None, new: Config, reason: str
    ) -> Change | None:
        """Refuse what this version's server refuses, unless one of another version has it just so already."""
        if live is not None:
            self._differ(change, one, live, new)
            if not change.differences:
                return None
        return self._refused(change, live, reason)

    def _checked_creation(self, change: Change) -> Change:
        """Refuse to make what can not be made here."""
        key, config = change.key, change.config or {}
        if change.stream in self.world.unreadable:
            return self._refused(change, None, f"the server does not show it: {self.world.unreadable[change.stream]}")
        if key.consumer and key.origin not in self.wanted.wanted and key.origin not in self.world.assets:
            hint = f"describe the stream {key.stream} too"
            return self._refused(
                change, None, f"stream {key.stream} does not exist, and no document describes it", hint
            )
        if config.get("sealed"):
            hint = "leave `sealed` out until it is filled"
            return self._refused(change, None, "a stream can not be made sealed", hint)
        return self._able(change, None)

    def _able(self, change: Change, live: Live | None) -> Change:
        """Refuse what the server is too old for."""
        lacking = self.able.lacking(change.config or {}, bool(change.consumer))
        return self._refused(change, live, lacking, "leave it out, or use a newer server") if lacking else change

    def _made_anew(self, change: Change, one: Wanted, live: Live, new: Config) -> Change:
        """The creation of a consumer that goes with its stream, which is replaced."""
        self._differ(change, one, live, new)
        change.before = labels.without_server_made(live.config)
        how = "comes back" if self.keep_messages else "is made anew"
        change.notes.append(f"it goes with {live.key.stream}, and {how}")
        return change

    def _differ(self, change: Change, one: Wanted, live: Live, new: Config) -> Config:
        """Tell how an asset differs; return what it is, in the words of a settled configuration."""
        old = without_passed_pause(kept(live.key, live.config), self.world.now_ns)
        old = labels.without_server_made(old)
        unknown = old.keys() - new.keys() - fields_of(live.key)
        known = {name: value for name, value in old.items() if name not in unknown}
        change.differences = differences(labels.stripped(known), new)
        change.differences += self._label_differences(one, old, labels.owner_of(old))
        change.config = (change.config or {}) | {name: old[name] for name in unknown}
        return old

    def _comparison(self, change: Change, one: Wanted, live: Live, new: Config) -> Change | None:
        """What an asset that exists needs, None for nothing."""
        old = self._differ(change, one, live, new)
        if not change.differences:
            return None
        change.before = labels.without_server_made(live.config)
        if live.key.consumer:  # said aloud, as it is sent before its stream has the limits that it follows
            limited = {one.path: one.new for one in change.differences if one.path in LIMITED and one.new}
            change.config = (change.config or {}) | limited
        elif new.get("sealed"):  # said aloud, as a sealed stream refuses to have them taken back
            change.config = (change.config or {}) | {"deny_delete": True, "deny_purge": True}
        change.action = Action.UPDATE
        if self._able(change, live).refused:
            return change
        reason = self._why_not_in_place(live, new)
        change.action = Action.REPLACE if reason else Action.UPDATE
        if reason:
            hold(change, live)
        else:
            change.notes += losses(change, live, new, self.world.now_ns)
            change.notes += self._unmatched(change, new)
        return self._permitted(change, live, old, reason)

    def _unmatched(self, change: Change, new: Config) -> list[str]:
        """Consumers that will get nothing new, as a stream gives up the subjects which they filter."""
        if change.consumer or not any(one.path == "subjects" for one in change.differences):
            return []
        subjects = new.get("subjects") or ()
        left = [name for name, filters in self._filters(change.stream) if not _any_overlap(filters, subjects)]
        return [f"it will have nothing for what these consumers filter: {', '.join(left)}"] if left else []

    def _filters(self, stream: str) -> Iterator[tuple[str, list[str]]]:
        """The consumers of a stream that filter, as they will be."""
        if not self._consumers:
            for key in dict.fromkeys([*self.world.assets, *self.wanted.wanted]):
                self._consumers[key.stream].append(key)
        for key in (key for key in self._consumers[stream] if key.consumer):
            one, live = self.wanted.wanted.get(key), self.world.assets.get(key)
            config = one.config if one else live.config if live else {}
            filters = [*(config.get("filter_subjects") or ()), config.get("filter_subject")]
            if kept_filters := [str(subject) for subject in filters if subject]:
                yield key.consumer, kept_filters

    def _label_differences(self, one: Wanted, old: Config, owner: str) -> list[Difference]:
        if not self.able.keeps_metadata:
            return []
        said: dict[str, str] = {}
        wanted: dict[str, str] = {}
        if labels.is_protected(old) is not one.protect:
            (said if one.protect is False else wanted)[labels.PROTECT] = "true"
        if self.adopt and owner != self.wanted.owner:
            wanted[labels.OWNER] = self.wanted.owner
            said |= {labels.OWNER: owner} if owner else {}
        return differences({"metadata": said}, {"metadata": wanted})

    def _permitted(self, change: Change, live: Live, old: Config, reason: str) -> Change:
        """Refuse what the owner, the protection or the options do not allow."""
        owner = labels.owner_of(old)
        if owner and owner != self.wanted.owner and not self.adopt:
            change.refused, change.hint = f"it belongs to {owner}", TAKE_OVER
        elif reason and labels.is_protected(old):
            change.refused, change.hint = f"{reason}, and it is protected", UNPROTECT
        elif reason and not self.allow_replace:
            change.refused = reason
            kept_too = "; --keep-messages carries its messages over" if change.messages else ""
            change.hint = f"--allow-replace removes it and makes it anew{kept_too}"
        elif reason:
            change.notes.append(reason)
        return change

    def _why_not_in_place(self, live: Live, new: Config) -> str:
        """Why the server would not change an asset in place, "" where it would."""
        try:
            if live.key.consumer:
                before = settled_consumer(live.key, without_nulls(live.config), self.around)
                after = settled_consumer(live.key, new, self.around)
                if bool(before.durable_name) is not bool(after.durable_name):
                    return "a consumer is made durable, or not, for good"
                refusal = check_consumer_update(before, after, bool(live.info.get("push_bound")))
            else:
                was = settled_stream(live.key, without_nulls(live.config), self.alone)
                will = settled_stream(live.key, new, self.around)
                refusal = check_stream_update(was, will) or settle(Draft(config=copy(will)))
        except ConfigRefused:
            return ""
        return refusal.description if refusal else ""


def _any_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(overlaps(one, other) for one in some for other in others)
