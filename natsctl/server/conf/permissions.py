"""Permissions in nats.conf: what a user may publish and subscribe to, and whether it may answer."""

from __future__ import annotations

from natsctl.api.subjects import is_valid_subject
from natsctl.api.syntax import go_quote
from natsctl.broker.auth.permissions import Permissions, ResponseRule, SubjectRules
from natsctl.server.conf.syntax import Block, Item
from natsctl.server.conf.values import block_of, duration_text_of, number_of


def permissions_of(item: Item) -> Permissions:
    """Return the permissions that a block describes; raises ConfError."""
    if not isinstance(item.value, dict):
        raise item.fault("Expected permissions to be a map/struct")
    publish, subscribe = SubjectRules(), SubjectRules()
    responses: ResponseRule | None = None
    for key, value in item.value.items():
        match key.lower():
            case "pub" | "publish" | "import":
                publish = _rules(value, queues=False)
            case "sub" | "subscribe" | "export":
                subscribe = _rules(value, queues=True)
            case "allow_responses" | "publish_allow_responses":
                responses = _responses(value)
            case _:
                _refuse_unknown(item.value, key, value, "parsing permissions")
    return Permissions(publish, subscribe, responses)


def _rules(item: Item, *, queues: bool) -> SubjectRules:
    """Return the rules of one direction: a subject, a list of them, or what is allowed and denied."""
    if not isinstance(item.value, dict):
        return SubjectRules(_subjects(item, queues=queues) or None)
    found: dict[str, tuple[str, ...]] = {}
    for key, value in item.value.items():
        if key.lower() in ("allow", "deny"):
            found[key.lower()] = _subjects(value, queues=queues)
        elif key not in item.value.variables:
            raise value.fault(
                f"Unknown field name {go_quote(key)} parsing subject permissions, only 'allow' or 'deny' are permitted"
            )
    return SubjectRules(found.get("allow") or None, found.get("deny", ()))


def _subjects(item: Item, *, queues: bool) -> tuple[str, ...]:
    if not isinstance(item.value, (str, list)):
        raise item.fault("Expected subject permissions to be a subject, or array of subjects")
    entries = item.value if isinstance(item.value, list) else [item]
    return tuple(_subject(entry, queues=queues) for entry in entries)


def _subject(item: Item, *, queues: bool) -> str:
    """Return a subject, or `subject queue` where that is meant; raises ConfError."""
    if not isinstance(item.value, str):
        raise item.fault("Subject in permissions array cannot be cast to string")
    text = item.value
    if is_valid_subject(text):
        return text
    fields = text.split()
    if not queues or len(fields) != 2:
        raise item.fault(f"subject {go_quote(text)} is not a valid subject")
    for field, name in zip(fields, ("subject", "queue"), strict=True):
        if not is_valid_subject(field):
            raise item.fault(f"{name} {go_quote(field)} is not a valid {name}")
    return text


def _responses(item: Item) -> ResponseRule | None:
    if isinstance(item.value, bool):
        return ResponseRule() if item.value else None
    if not isinstance(item.value, dict):
        raise item.fault("error parsing response permissions, expected a boolean or a map")
    usual = ResponseRule()
    most, expires_ns = usual.max_msgs, usual.expires_ns
    for key, value in block_of(item).items():
        match key.lower():
            case "max" | "max_msgs" | "max_messages" | "max_responses":
                most = number_of(value) or most
            case "expires" | "expiration" | "ttl":
                expires_ns = _expiry(value) or expires_ns
            case _:
                _refuse_unknown(item.value, key, value, "parsing permissions")
    return ResponseRule(most, expires_ns)


def _expiry(item: Item) -> int:
    """Return nanoseconds; below zero: never."""
    if not isinstance(item.value, str):
        raise item.fault("error parsing expires, not a duration string")
    return round(duration_text_of(item, "expires") * 1e9)


def _refuse_unknown(block: Block, key: str, value: Item, where: str) -> None:
    if key not in block.variables:
        raise value.fault(f"Unknown field {go_quote(key)} {where}")
