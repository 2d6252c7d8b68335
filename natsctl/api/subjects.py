"""Subject grammar and matching, for text and bytes alike, and the prefixes of JetStream."""

from __future__ import annotations

from natsctl.hints import AnyStr, Final

API_PREFIX: Final = "$JS.API"
ACK_PREFIX: Final = "$JS.ACK"
FC_PREFIX: Final = "$JS.FC"
SNAPSHOT_ACK_PREFIX: Final = "$JS.SNAPSHOT.ACK"
SNAPSHOT_RESTORE_PREFIX: Final = "$JS.SNAPSHOT.RESTORE"
ADVISORY_PREFIX: Final = "$JS.EVENT.ADVISORY"
METRIC_PREFIX: Final = "$JS.EVENT.METRIC"
LEGACY_NEXT_PREFIX: Final = "$JS.NEXT"
"""The 2020 spelling of `$JS.API.CONSUMER.MSG.NEXT`."""

MAX_NAME_BYTES: Final = 255
"""Longest stream, consumer or template name, in UTF-8 (docs/compatibility.md#api-requests)."""

_NAME_FORBIDDEN: Final = frozenset(" \t\r\n\f.*>\\/")
_SUBJECT_FORBIDDEN: Final = frozenset(" \t\r\n\f\0")
LONG_SUBJECT: Final = 1024
"""Length of subjects that are searched for each forbidden character: that is faster."""
_SUBJECT_FORBIDDEN_BYTES: Final = frozenset(b" \t\r\n\f\0")


def domain_prefix(domain: str) -> str:
    """Return the API prefix of a domain, or the plain one when `domain` is empty."""
    return f"$JS.{domain}.API" if domain else API_PREFIX


def is_asset_name(name: str) -> bool:
    """Return whether `name` is one token without wildcards, blanks or slashes, however long."""
    return bool(name) and _NAME_FORBIDDEN.isdisjoint(name)


def is_valid_name(name: str) -> bool:
    """Return whether `name` can name a stream, consumer or template."""
    return is_asset_name(name) and not is_too_long(name) and "\0" not in name


def is_too_long(name: str) -> bool:
    """Return whether `name` has more than `MAX_NAME_BYTES`; invalid UTF-8 counts, and is not refused here."""
    return len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES


def _marks(subject: AnyStr) -> tuple[AnyStr, AnyStr, AnyStr]:
    if isinstance(subject, str):
        return ".", "*", ">"
    return b".", b"*", b">"


def is_valid_subject(subject: AnyStr) -> bool:
    """Return whether a configuration may name `subject`: no blanks, no NUL, and valid tokens."""
    if not isinstance(subject, str):
        free = _SUBJECT_FORBIDDEN_BYTES.isdisjoint(subject)
    elif len(subject) < LONG_SUBJECT:
        free = _SUBJECT_FORBIDDEN.isdisjoint(subject)
    else:
        free = not any(each in subject for each in _SUBJECT_FORBIDDEN)
    return free and has_valid_tokens(subject)


def has_valid_tokens(subject: AnyStr) -> bool:
    """Return whether `subject` can be subscribed to: no token is empty, and none but the last is `>`."""
    dot, _, gt = _marks(subject)
    padded = dot + subject + dot
    return dot + dot not in padded and padded.find(dot + gt + dot, 0, -1) < 0


def subject_fault(subject: str) -> str:
    """Return why a configuration or a subscription cannot name `subject`, "" if it can."""
    if not subject:
        return "invalid subject '': it is empty"
    if not _SUBJECT_FORBIDDEN.isdisjoint(subject):
        return f"invalid subject {subject!r}: it contains blanks"
    if "" in subject.split("."):
        return f"invalid subject {subject!r}: it has an empty token"
    if not has_valid_tokens(subject):
        return f"invalid subject {subject!r}: > may only be its last token"
    return ""


def has_wildcard(subject: AnyStr) -> bool:
    """Return whether a token of `subject` is `*` or its last token is `>`."""
    dot, star, gt = _marks(subject)
    if star not in subject and gt not in subject:
        return False
    padded = dot + subject + dot
    return dot + star + dot in padded or padded.endswith(dot + gt + dot)


def is_literal(subject: AnyStr) -> bool:
    """Return whether `subject` has no wildcard tokens (`foo*` is literal)."""
    return not has_wildcard(subject)


def matches(pattern: AnyStr, subject: AnyStr) -> bool:
    """Return whether a message on `subject` reaches a subscription on `pattern`; `subject` is literal."""
    if pattern == subject:
        return True
    dot, star, gt = _marks(pattern)
    want, have = pattern.split(dot), subject.split(dot, pattern.count(dot) + 1)
    if want[-1] == gt:
        if len(have) < len(want):
            return False
        want.pop()
    elif len(want) != len(have):
        return False
    return all(w in (star, h) for w, h in zip(want, have, strict=False))


def overlaps(a: AnyStr, b: AnyStr) -> bool:
    """Return whether some literal subject matches both patterns."""
    if a == b:
        return True
    dot, star, gt = _marks(a)
    left, right = a.split(dot, b.count(dot) + 1), b.split(dot, a.count(dot) + 1)
    return tokens_overlap(left, right, star, gt)


def tokens_overlap(left: list[AnyStr], right: list[AnyStr], star: AnyStr, gt: AnyStr) -> bool:
    """Return whether some literal subject matches two patterns, given their tokens and the wildcards."""
    for x, y in zip(left, right, strict=False):
        if gt in (x, y):
            return True
        if x != y and star not in (x, y):
            return False
    return len(left) == len(right)


def is_subset(a: AnyStr, b: AnyStr) -> bool:
    """Return whether every literal subject matching pattern `a` also matches pattern `b`."""
    if a == b:
        return True
    dot, star, gt = _marks(a)
    inner, outer = a.split(dot, b.count(dot) + 1), b.split(dot)
    for index, want in enumerate(outer):
        if want == gt:
            return len(inner) > index
        if index >= len(inner) or inner[index] == gt:
            return False
        if want not in (star, inner[index]):
            return False
    return len(inner) == len(outer)
