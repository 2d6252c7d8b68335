"""Rules of a scoped signing key, with what is known of the user in place of `{{…}}`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Final

import msgspec

from natsctl.api.subjects import is_valid_subject
from natsctl.broker.jwt.claims import AccountClaims, Permission, Template, UserClaims
from natsctl.broker.jwt.token import JwtError

MAX_EXPANSIONS: Final = 4096
"""Subjects that the templates of one list may become. Source: nats-server, maxPermTemplateSubjectExpansions."""

_FIELD: Final = re.compile(r"\{{2}([^}]+)\}{2}")
_TAG: Final = re.compile(r"(account-)?tag\((.*)\)\Z", re.IGNORECASE | re.DOTALL)
_NOWHERE: Final = " "
"""Stands for a tag that the user does not have: no subject with it is valid."""


def filled(template: Template, user: UserClaims, account: AccountClaims) -> Template:
    """Return the rules that a template means for one user; raises JwtError.

    An allowed subject that becomes invalid is dropped; a denied one makes the user be refused. Where nothing allowed is
    left of a list that had something, everything is denied.
    """
    fields = _Fields(user, account)
    return msgspec.structs.replace(template, pub=fields.fill(template.pub), sub=fields.fill(template.sub))


class _Fields:
    """Facts about one user."""

    def __init__(self, user: UserClaims, account: AccountClaims) -> None:
        self._values = {
            "name()": user.name,
            "subject()": user.sub,
            "account-name()": account.name,
            "account-subject()": user.nats.issuer_account,
        }
        self._tags = user.nats.tags
        self._account_tags = account.nats.tags

    def fill(self, rules: Permission) -> Permission:
        allow, deny = self._expand(rules.allow, strict=False), self._expand(rules.deny, strict=True)
        if rules.allow and not allow and ">" not in deny:
            deny = [*deny, ">"]
        return Permission(allow=allow, deny=deny)

    def _expand(self, subjects: list[str], *, strict: bool) -> list[str]:
        if not any(_FIELD.search(subject) for subject in subjects):
            return subjects
        found: list[str] = []
        for subject in subjects:
            for one in self._subjects(subject, MAX_EXPANSIONS - len(found), strict):
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
