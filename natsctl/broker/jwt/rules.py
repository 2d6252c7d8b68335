"""Permissions of JWTs as permissions of the broker."""

from __future__ import annotations

from typing import Final

from natsctl.broker.auth.permissions import RESPONSE_EXPIRES_NS, ResponseRule, SubjectRules
from natsctl.broker.auth.permissions import Permissions as BrokerPermissions
from natsctl.broker.jwt.claims import Permission, Permissions, ResponsePermission

DEFAULT_RESPONSES: Final = 1
"""Replies to one message where a JWT names none. Source: nats-server, DEFAULT_ALLOW_RESPONSE_MAX_MSGS."""


def permissions_of(rules: Permissions) -> BrokerPermissions | None:
    """Return what a JWT's rules mean; None where it has none.

    Permission to respond removes the permission to publish on subjects without a rule.
    """
    if rules.resp is None and rules.pub == rules.sub == Permission():
        return None
    publish = _subjects(rules.pub)
    if rules.resp is not None and publish.allow is None:
        publish = SubjectRules((), publish.deny)
    return BrokerPermissions(publish, _subjects(rules.sub), _responses(rules.resp))


def _subjects(rules: Permission) -> SubjectRules:
    return SubjectRules(tuple(rules.allow) or None, tuple(rules.deny))


def _responses(rule: ResponsePermission | None) -> ResponseRule | None:
    if rule is None:
        return None
    return ResponseRule(rule.max or DEFAULT_RESPONSES, rule.ttl or RESPONSE_EXPIRES_NS)
