"""Authentication result of a user's verified JWT: the checks in nats-server's order, and the permissions.

The rules of a scoped signing key are templates: facts about the user replace `{{…}}`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Final

import msgspec

from natsctl.api.jwt_claims import (
    AccountClaims,
    Permission,
    Permissions,
    ResponsePermission,
    Template,
    UserBody,
    UserClaims,
    UserLimits,
)
from natsctl.api.jwt_token import JwtError, ProxyRequiredError, decode_base64url, has_signed
from natsctl.api.jwt_validation import is_inside, may_connect_for_ns
from natsctl.api.subject_index import Steps
from natsctl.api.subjects import is_valid_subject
from natsctl.api.units import SECOND
from natsctl.broker.auth.credentials import Credentials, Grant
from natsctl.broker.auth.permissions import RESPONSE_EXPIRES_NS, ResponseRule, SubjectRules
from natsctl.broker.auth.permissions import SubjectPermissions as BrokerPermissions
from natsctl.broker.auth.static_auth import CONNECTION_TYPES
from natsctl.broker.imports.account_config import limit_of
from natsctl.broker.jwt.account_registry import ActiveAccount

DEFAULT_RESPONSES: Final = 1
"""Default number of replies to one message. Source: nats-server, DEFAULT_ALLOW_RESPONSE_MAX_MSGS."""


def permissions_of(rules: Permissions) -> BrokerPermissions | None:
    """Return the meaning of a JWT's rules, or None without rules.

    Permission to respond removes the permission to publish on subjects without a rule. An empty list of allowed
    subjects next to denied ones allows nothing to be published; for subscriptions it is no list. Source:
    buildPermissionsFromJwt and setPermissions of nats-server.
    """
    if rules.resp is None and rules.pub.is_empty and rules.sub.is_empty:
        return None
    publish = _subjects(rules.pub)
    if rules.resp is not None and publish.allow is None:
        publish = SubjectRules((), publish.deny)
    return BrokerPermissions(publish, _subjects(rules.sub), _responses(rules.resp))


def _subjects(rules: Permission) -> SubjectRules:
    if rules.is_empty or rules.allow is None:
        return SubjectRules(None, tuple(rules.deny or ()))
    return SubjectRules(tuple(rules.allow), tuple(rules.deny or ()))


def _responses(rule: ResponsePermission | None) -> ResponseRule | None:
    if rule is None:
        return None
    return ResponseRule(rule.max or DEFAULT_RESPONSES, rule.ttl or RESPONSE_EXPIRES_NS)


MAX_EXPANSIONS: Final = 4096
"""Subjects that the templates of one list may become. Source: nats-server, maxPermTemplateSubjectExpansions."""

_FIELD: Final = re.compile(r"\{{2}([^}]+)\}{2}")
_TAG: Final = re.compile(r"(account-)?tag\((.*)\)\Z", re.IGNORECASE | re.DOTALL)
_NOWHERE: Final = " "
"""Placeholder for a tag that the user does not have: no subject with it is valid."""


def fill(template: Template, user: UserClaims, account: AccountClaims) -> Steps[Template]:
    """Return the rules that a template means for one user, itself if they are the same for all; raises JwtError.

    An allowed subject that becomes invalid is dropped; a denied one makes the server refuse the user. If nothing
    allowed is left of a list that had something, everything is denied.
    """
    lists = (template.pub.allow, template.pub.deny, template.sub.allow, template.sub.deny)
    if not any("{{" in subject for subjects in lists for subject in subjects or ()):
        return template
    fields = _Fields(user, account)
    pub = yield from fields.fill(template.pub)
    sub = yield from fields.fill(template.sub)
    return msgspec.structs.replace(template, pub=pub, sub=sub)


class _Fields:
    def __init__(self, user: UserClaims, account: AccountClaims) -> None:
        self._values = {
            "name()": user.name,
            "subject()": user.sub,
            "account-name()": account.name,
            "account-subject()": user.nats.issuer_account,
        }
        self._tags = user.nats.tags
        self._account_tags = account.nats.tags

    def fill(self, rules: Permission) -> Steps[Permission]:
        allow = yield from self._expand(rules.allow, strict=False)
        deny = yield from self._expand(rules.deny, strict=True)
        if rules.allow and not allow and ">" not in (deny or ()):
            deny = [*(deny or ()), ">"]
        return Permission(allow=allow, deny=deny)

    def _expand(self, subjects: list[str] | None, *, strict: bool) -> Steps[list[str] | None]:
        if subjects is None or not any("{{" in subject and _FIELD.search(subject) for subject in subjects):
            return subjects
        found: list[str] = []
        for subject in subjects:
            for one in self._subjects(subject, MAX_EXPANSIONS - len(found), strict):
                yield 1
                if is_valid_subject(one.encode()):
                    found.append(one)
                elif strict:
                    raise JwtError("generated invalid subject")
        return found

    def _subjects(self, subject: str, most: int, strict: bool) -> Iterator[str]:
        """Return the subjects that one with fields becomes: one for each combination of tags."""
        texts = [field.group() for field in _FIELD.finditer(subject)]
        values = [self._values_of(text[2:-2].strip(), subject, strict) for text in texts]
        if prod(map(len, values)) > most and any(_TAG.match(text[2:-2].strip()) for text in texts):
            raise JwtError(f"template expansion exceeds limit: {MAX_EXPANSIONS}")
        return (_replaced(subject, texts, chosen) for chosen in product(*values))

    def _values_of(self, field: str, subject: str, strict: bool) -> list[str]:
        if field.lower() in self._values:
            return [self._values[field.lower()]]
        tag = _TAG.match(field)
        if tag is None:
            raise JwtError(f'template operation in "{subject}": "{field}" is not defined')
        head = tag[2].lower() + ":"
        tags = self._account_tags if tag[1] else self._tags
        values = [one[len(head) :] for one in tags if one.startswith(head)]
        if not values and strict:
            raise JwtError(f'generated invalid subject "{subject}": "{tag[2]}" is not defined')
        return values or [_NOWHERE]


def _replaced(subject: str, texts: list[str], values: tuple[str, ...]) -> str:
    for text, value in zip(texts, values, strict=True):
        subject = subject.replace(text, value)
    return subject


def rules_of(user: UserClaims, held: ActiveAccount) -> Steps[UserLimits]:
    """Return the rules that a user is under: its own, or those of the signing key's template. Raises JwtError."""
    if user.iss not in held.signers:
        raise JwtError("User JWT issuer is not known")
    scope = held.signers[user.iss]
    if scope is None:
        return user.nats
    if not is_bare(user):
        raise JwtError("scoped users require no permissions or limits set")
    return (yield from fill(scope.template, user, held.claims))


def is_bare(user: UserClaims) -> bool:
    """Return whether a user has no rules of its own, as required for users of a scoped signing key."""
    body = user.nats
    return body == UserBody(issuer_account=body.issuer_account, tags=body.tags, type=body.type, version=body.version)


def permissions_under(rules: UserLimits, user: UserClaims, held: ActiveAccount) -> BrokerPermissions | None:
    """Return the permissions of a user under some rules, or the account's default permissions if they have no entries.

    Users share equal permissions and their index.
    """
    scope = held.signers.get(user.iss)
    own = _shared(user.iss, rules, held) if scope is not None and rules is scope.template else permissions_of(rules)
    return own or _shared("", held.claims.nats.default_permissions, held)


def _shared(key: str, rules: Permissions, held: ActiveAccount) -> BrokerPermissions | None:
    if key not in held.permissions:
        held.permissions[key] = permissions_of(rules)
    return held.permissions[key]


def grant_of(user: UserClaims, held: ActiveAccount, credentials: Credentials, token: str) -> Steps[Grant]:
    """Return the grant of a connection with the JWT `token`; raises JwtError if it is refused."""
    rules = yield from rules_of(user, held)
    if held.expired:
        raise JwtError("Account JWT has expired")
    if rules.bearer_token and held.claims.nats.limits.disallow_bearer:
        raise JwtError("Account does not allow bearer tokens")
    if rules.proxy_required and not credentials.proxy:
        raise ProxyRequiredError
    _check_connection_type(rules, credentials.connection_type)
    if not rules.bearer_token:
        _check_signature(user.sub, credentials)
    if held.claims.revokes(user):
        raise JwtError("User authentication revoked")
    if not is_inside(credentials.host, rules.networks):
        raise JwtError(f"Bad src Ip {credentials.host}")
    stay_ns = may_connect_for_ns(rules.times or [], rules.times_location, credentials.now_ns)
    if stay_ns is None:
        raise JwtError("Outside connect times")
    return Grant(
        user=user.sub,
        account=held.name,
        permissions=permissions_under(rules, user, held),
        expires_ns=end_ns(user, credentials.now_ns, stay_ns),
        max_subscriptions=limit_of(rules.subs),
        max_payload=limit_of(rules.payload),
        issuer=user.iss if user.nats.issuer_account else held.name,
        jwt=token,
        name_tag=user.name,
        tags=tuple(user.nats.tags),
    )


LAST_NS: Final = 1 << 62
"""The latest end of a connection, in the year 2116: a JWT may name times that no clock shows."""


def end_ns(user: UserClaims, now_ns: int, stay_ns: int) -> int:
    """Return when a connection is to be closed, wall clock: its JWT expires, or its hours end; 0: never."""
    ends = [user.exp * SECOND] if user.exp else []
    ends += [now_ns + stay_ns] if stay_ns else []
    return min([*ends, LAST_NS]) if ends else 0


def known_types(named: Iterable[str]) -> frozenset[str]:
    """Return the connection types of a JWT that this version has."""
    return frozenset(name.upper() for name in named) & CONNECTION_TYPES


def _check_connection_type(rules: UserLimits, kind: str) -> None:
    """Skip unknown types, unless there are no others: then other kinds of clients are meant."""
    if rules.allowed_connection_types and kind not in known_types(rules.allowed_connection_types):
        raise JwtError("Connection type not allowed")


def _check_signature(key: str, credentials: Credentials) -> None:
    text = credentials.options.sig
    if not text:
        raise JwtError("Signature missing")
    if not has_signed(key, credentials.nonce, _signature(text)):
        raise JwtError("Signature not verified")


def _signature(text: str) -> bytes:
    """Return a signature of base 64 for URLs without padding, or else the usual one with."""
    try:
        return decode_base64url(text)
    except JwtError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise JwtError("Signature not valid base64") from None
