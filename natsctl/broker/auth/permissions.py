"""Permissions of a user, and of a session with the replies that it may answer.

Theory of operation. Deny wins; with an allow list, everything else is denied. The index of a user's patterns
is shared by its sessions; a login waits until a very large index is made (`SubjectPermissions.prepare`). Publish
permissions are looked up in a bounded cache, because clients use few subjects often. A subscription may be wider than a
deny rule: it is accepted, and each message is checked on delivery. One that is wider than the allow list is refused,
except `>` if `*` is allowed: nats-server accepts that completely, here it gets the subjects of `*`. With a response
rule, the reply subjects of delivered messages are noted, and each may be published to so often and so long. The check
on delivery is in broker/subscription.py."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from natsctl.api.subject_index import PatternSet, Steps, finish
from natsctl.api.subjects import has_wildcard, is_subset
from natsctl.api.times import Clock

FEW_RULES: Final = 512
"""Patterns of a user that are indexed at once: about a millisecond."""
RESPONSE_EXPIRES_NS: Final = 120 * 1_000_000_000
"""Default time within which a reply may be answered. Source: nats-server, DEFAULT_ALLOW_RESPONSE_EXPIRATION."""


class SubjectRules(msgspec.Struct, frozen=True):
    """Patterns for one direction; for subscriptions also `subject queue`, both with wildcards.

    `deny` wins over `allow`; without `allow` everything that is not denied is allowed.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponseRule(msgspec.Struct, frozen=True):
    """Leave to publish to the reply subjects of messages that were received; -1 in `max_msgs` is any number."""

    max_msgs: int = 1
    expires_ns: int = RESPONSE_EXPIRES_NS


class SubjectPermissions(msgspec.Struct, frozen=True, dict=True):
    publish: SubjectRules = msgspec.field(default_factory=SubjectRules)
    subscribe: SubjectRules = msgspec.field(default_factory=SubjectRules)
    responses: ResponseRule | None = None

    @cached_property
    def index(self) -> PermissionIndex:
        """The index of the rules, shared by the sessions of a user."""
        index = PermissionIndex()
        finish(index.fill(self))
        return index

    @property
    def needs_steps(self) -> bool:
        """Return whether the index is still to be made, and that takes so long that it is to be done in steps."""
        rules = (self.publish, self.subscribe)
        return (
            "index" not in self.__dict__ and sum(len(rule.allow or ()) + len(rule.deny) for rule in rules) > FEW_RULES
        )

    def prepare(self) -> Steps[None]:
        if self.needs_steps:
            index = PermissionIndex()
            yield from index.fill(self)
            self.__dict__["index"] = index


def permissions_json(permissions: SubjectPermissions) -> dict[str, object]:
    """Return a user's permissions as reported to it, keys in nats-server's order."""
    shown: dict[str, object] = {"publish": _rules_json(permissions.publish)}
    shown["subscribe"] = _rules_json(permissions.subscribe)
    if permissions.responses is not None:
        shown["responses"] = {"max": permissions.responses.max_msgs, "ttl": permissions.responses.expires_ns}
    return shown


def _rules_json(rules: SubjectRules) -> dict[str, list[str]]:
    lists = {"allow": rules.allow, "deny": rules.deny}
    return {name: list(subjects) for name, subjects in lists.items() if subjects}


MAX_CACHED: Final = 512
"""Maximum cached answers; then the cache is cleared. Source: nats-server, maxPermCacheSize is 128."""
MAX_REPLIES: Final = 16384
"""Reply subjects that one session may answer at once; then the oldest are forgotten."""
FORGOTTEN_AT_ONCE: Final = 64
"""Old replies that are forgotten when another is recorded: some microseconds."""


class Patterns:
    """Subject patterns, some of them for a queue group only."""

    __slots__ = ("_groups", "_literals", "_queued", "_wild")

    def __init__(self) -> None:
        self._literals, self._wild, self._queued = PatternSet(), PatternSet(), PatternSet()
        self._groups: dict[bytes, list[bytes]] = {}

    def fill(self, texts: Iterable[str]) -> Steps[None]:
        """Set the patterns of an empty set."""
        literals, wild = list[bytes](), list[bytes]()
        for text in texts:
            fields = text.encode().split()
            subject = fields[0] if fields else b""
            if len(fields) > 1:
                self._groups.setdefault(subject, []).append(fields[1])
            elif subject:
                (wild if has_wildcard(subject) else literals).append(subject)
            yield 1
        yield from self._literals.fill(literals)
        yield from self._wild.fill(wild)
        yield from self._queued.fill(self._groups)

    def match(self, subject: bytes) -> bool:
        """Return whether a pattern without a queue group matches `subject`; wildcards in it are plain text."""
        return self._literals.match(subject) or self._wild.match(subject)

    def groups(self, subject: bytes) -> list[bytes]:
        return [queue for pattern in self._queued.matching(subject) for queue in self._groups[pattern]]

    def cover(self, subject: bytes) -> bool:
        """Return whether one pattern matches everything that `subject` does."""
        return self.match(subject) and (
            not subject.endswith(b">") or self._wild.cover(subject) or self._queued.cover(subject)
        )

    def meet(self, subject: bytes, queued: bool) -> bool:
        """Return whether some subject matches both `subject` and a pattern; patterns of groups count if `queued`."""
        return self._literals.meet(subject) or self._wild.meet(subject) or (queued and self._queued.meet(subject))


class Replies:
    """The reply subjects that a session has received and may publish to."""

    __slots__ = ("_clock", "_replies", "_rule")

    def __init__(self, rule: ResponseRule, clock: Clock) -> None:
        self._rule = rule
        self._clock = clock
        self._replies: OrderedDict[bytes, list[int]] = OrderedDict()
        """Reply to (when it was noted, how often it was answered), oldest first."""

    def note(self, reply: bytes) -> None:
        """Allow publishing to `reply` as often and as long as the rule says."""
        now, replies = self._clock.monotonic_ns(), self._replies
        replies.pop(reply, None)
        replies[reply] = [now, 0]
        for _ in range(FORGOTTEN_AT_ONCE):
            if len(replies) <= MAX_REPLIES and not self._is_old(next(iter(replies.values())), now):
                break
            replies.popitem(last=False)

    def use(self, subject: bytes) -> bool:
        """Count one answer on `subject` and return whether it was allowed."""
        reply = self._replies.get(subject)
        if reply is None:
            return False
        reply[1] += 1
        is_old = self._is_old(reply, self._clock.monotonic_ns())
        if is_old or 0 < self._rule.max_msgs <= reply[1]:
            del self._replies[subject]
        return not is_old

    def _is_old(self, reply: list[int], now: int) -> bool:
        return 0 < self._rule.expires_ns < now - reply[0]


class PermissionIndex:
    """The patterns of a user's permissions, to look subjects up."""

    __slots__ = ("deny_publish", "deny_subscribe", "publish", "subscribe")

    def __init__(self) -> None:
        self.publish: Patterns | None = None
        self.deny_publish = Patterns()
        self.subscribe: Patterns | None = None
        self.deny_subscribe: Patterns | None = None

    def fill(self, permissions: SubjectPermissions) -> Steps[None]:
        publish, subscribe = permissions.publish, permissions.subscribe
        # With allow_responses and no list, nothing but responses may be published. An empty subscribe list is no list.
        allow = () if permissions.responses is not None and publish.allow is None else publish.allow
        if allow is not None:
            self.publish = Patterns()
            yield from self.publish.fill(pattern for pattern in allow if " " not in pattern)
        yield from self.deny_publish.fill(pattern.split()[0] for pattern in publish.deny if pattern.split())
        if subscribe.allow:
            self.subscribe = Patterns()
            yield from self.subscribe.fill(subscribe.allow)
        if subscribe.deny:
            self.deny_subscribe = Patterns()
            yield from self.deny_subscribe.fill(subscribe.deny)


class SessionPermissions:
    __slots__ = ("_deny_publish", "_deny_subscribe", "_filtered", "_publish", "_published", "_subscribe", "replies")

    def __init__(self, permissions: SubjectPermissions, clock: Clock) -> None:
        index, responses = permissions.index, permissions.responses
        self._publish, self._deny_publish = index.publish, index.deny_publish
        self._subscribe, self._deny_subscribe = index.subscribe, index.deny_subscribe
        self.replies = Replies(responses, clock) if responses is not None else None
        self._published: dict[bytes, bool] = {}
        self._filtered: dict[tuple[bytes, bytes, bool], bool] = {}

    def may_publish(self, subject: bytes) -> bool:
        """Return whether a message may go to `subject`; an answer that is allowed is counted."""
        known = self._published.get(subject)
        if known is None:
            if len(self._published) >= MAX_CACHED:
                self._published.clear()
            known = self._published[subject] = self._publish_allowed(subject)
        return known or (self.replies is not None and self.replies.use(subject))

    def _publish_allowed(self, subject: bytes) -> bool:
        if b"" in subject.split(b"."):
            return self._publish is None  # no pattern matches it
        if self._publish is not None and not self._publish.match(subject):
            return False
        return not self._deny_publish.match(subject)

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Return whether a subscription is accepted; one that is wider than a deny rule is accepted and filtered."""
        return self._allowed(subject, queue) and not self._denied(subject, queue)

    def _allowed(self, subject: bytes, queue: bytes) -> bool:
        if self._subscribe is None:
            return True
        if b"" in subject.split(b"."):
            return False
        groups = self._subscribe.groups(subject) if queue else []
        return _is_one_of(queue, groups) if groups else self._subscribe.match(subject)

    def _denied(self, subject: bytes, queue: bytes) -> bool:
        deny = self._deny_subscribe
        if deny is None or b"" in subject.split(b"."):
            return False
        return deny.match(subject) or (bool(queue) and _is_one_of(queue, deny.groups(subject)))

    def is_wider(self, subject: bytes) -> bool:
        """Return whether an accepted subscription may match subjects that are not allowed."""
        return self._subscribe is not None and has_wildcard(subject) and not self._subscribe.cover(subject)

    def must_filter(self, subject: bytes, queue: bytes) -> bool:
        """Return whether messages for a subscription have to be looked at one by one."""
        if not has_wildcard(subject):
            return False
        deny = self._deny_subscribe
        return self.is_wider(subject) or (deny is not None and deny.meet(subject, bool(queue)))

    def lets_through(self, subject: bytes, queue: bytes, wider: bool) -> bool:
        """Return whether a message on `subject` may be delivered to a member of `queue`, or outside of groups."""
        key = (subject, queue, wider)
        known = self._filtered.get(key)
        if known is None:
            if len(self._filtered) >= MAX_CACHED:
                self._filtered.clear()
            known = not self._denied(subject, queue) and (not wider or self._allowed(subject, queue))
            self._filtered[key] = known
        return known

    def note_reply(self, reply: bytes) -> None:
        """Allow a response on the reply of a delivered message, where publishing to it is not allowed anyway."""
        if self.replies is not None and not self.may_publish(reply):
            self.replies.note(reply)


def _is_one_of(queue: bytes, groups: list[bytes]) -> bool:
    """Return whether a queue group matches a rule's groups, possibly with wildcards."""
    return any(queue == group or (has_wildcard(group) and is_subset(queue, group)) for group in groups)
