"""What a user may publish and subscribe to, as an operator writes it; permit.py holds a session to it."""

from __future__ import annotations

from typing import Final

import msgspec

RESPONSE_EXPIRES_NS: Final = 120 * 1_000_000_000
"""Default time within which a reply may be answered. Source: nats-server, DEFAULT_ALLOW_RESPONSE_EXPIRATION."""


class SubjectRules(msgspec.Struct, frozen=True):
    """Patterns for one direction; those of subscriptions may be `subject queue`, both with wildcards.

    `deny` wins over `allow`; where `allow` is None everything that is not denied is allowed.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponseRule(msgspec.Struct, frozen=True):
    """Leave to publish to the reply subjects of messages that were received; -1 in `max_msgs` is any number."""

    max_msgs: int = 1
    expires_ns: int = RESPONSE_EXPIRES_NS


class Permissions(msgspec.Struct, frozen=True):
    """All rules of one user."""

    publish: SubjectRules = msgspec.field(default_factory=SubjectRules)
    subscribe: SubjectRules = msgspec.field(default_factory=SubjectRules)
    responses: ResponseRule | None = None


def permissions_json(permissions: Permissions) -> dict[str, object]:
    """Return a user's permissions as reported to it, keys in nats-server's order."""
    shown: dict[str, object] = {"publish": _rules_json(permissions.publish)}
    shown["subscribe"] = _rules_json(permissions.subscribe)
    if permissions.responses is not None:
        shown["responses"] = {"max": permissions.responses.max_msgs, "ttl": permissions.responses.expires_ns}
    return shown


def _rules_json(rules: SubjectRules) -> dict[str, list[str]]:
    lists = {"allow": rules.allow, "deny": rules.deny}
    return {name: list(subjects) for name, subjects in lists.items() if subjects}
