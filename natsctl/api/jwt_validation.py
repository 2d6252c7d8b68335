"""Validation of verified claims, and of a user's allowed times and addresses.

Faults have the texts of nats-server's jwt package; tools show them to the user who pushes an account. Its
checks of subjects are laxer than the server's. A push with an impossible subject mapping is refused; at a start such a
mapping is left out.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import Final
from urllib.parse import urlsplit

from natsctl.api.jwt_claims import (
    AccountBody,
    AccountClaims,
    ActivationClaims,
    AuthorizationResponseClaims,
    ClaimsData,
    Export,
    ExternalAuthorization,
    Import,
    OperatorClaims,
    Permissions,
    ServiceLatency,
    TimeRange,
    UserClaims,
    UserScope,
    WeightedMapping,
)
from natsctl.api.jwt_claims import decode as decode_claims
from natsctl.api.jwt_token import JwtError, is_public
from natsctl.api.subject_index import Steps, SubjectIndex
from natsctl.api.subject_transform import TransformError, checking_mapping
from natsctl.api.subjects import is_valid_subject
from natsctl.api.times import time_zone
from natsctl.api.units import SECOND

_REFERENCE: Final = re.compile(r"\$(-?\d+)\Z")


def subject_faults(subject: str) -> Iterator[str]:
    """Yield the faults of a subject."""
    if not subject:
        yield "subject cannot be empty"
        return
    if " " in subject:
        yield f'subject "{subject}" cannot have spaces'
    if subject[0] == "." or subject[-1] == ".":
        yield f'subject "{subject}" cannot start or end with a `.`'
    if ".." in subject:
        yield f'subject "{subject}" cannot contain consecutive `.`'


def has_wildcards(subject: str) -> bool:
    """Return whether a subject is a pattern."""
    tokens = subject.split(".")
    return tokens[-1] == ">" or "*" in tokens


def contains(wide: str, narrow: str) -> bool:
    """Return whether every subject that `narrow` matches is matched by `wide`."""
    outer, inner = wide.split("."), narrow.split(".")
    if len(inner) < len(outer) or (len(inner) > len(outer) and outer[-1] != ">"):
        return False
    for index, token in enumerate(outer):
        if token == ">" and index == len(outer) - 1:
            return True
        if token not in ("*", inner[index]):
            return False
    return True


class Containers:
    """Subjects, to find the ones that contain another one in the sense of `contains`."""

    def __init__(self) -> None:
        self._index: SubjectIndex[int] = SubjectIndex()
        self.subjects: list[str] = []
        self.compared = 0
        """Subjects that `related` has compared: its cost."""

    def add(self, subject: str) -> None:
        """Add one more."""
        self._index.add(subject.encode(), len(self.subjects))
        self.subjects.append(subject)

    def of(self, narrow: str) -> list[int]:
        """Return the places of the subjects that contain one, in order."""
        # For `contains` a final `>` is an ordinary token, contained in `*`.
        tokens = ("\0" if token == ">" else token for token in narrow.split("."))
        return sorted(self._index.covering(".".join(tokens).encode()))

    def related(self, subject: str) -> list[int]:
        """Return the places of the subjects that contain one or are contained in it, in order."""
        found = {*self.of(subject), *self._index.overlapping(subject.encode())}
        others = self.subjects
        self.compared += len(found)
        return [at for at in sorted(found) if contains(others[at], subject) or contains(subject, others[at])]


def without_references(renaming: str) -> str:
    """Return the pattern of a renaming: `$1` and the like match any token."""
    return ".".join("*" if _REFERENCE.match(token) else token for token in renaming.split("."))


def renaming_faults(renaming: str, subject: str) -> Iterator[str]:
    """Yield the faults of the local name of an imported subject."""
    yield from subject_faults(renaming)
    if not subject:
        yield "subject cannot be empty"
    if (renaming.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        yield "both, renaming subject and subject, need to end or not end in >"
    wildcards, used = subject.split(".").count("*"), 0
    for token in renaming.split("."):
        reference = _REFERENCE.match(token)
        if reference and int(reference[1]) > wildcards:
            yield f'Reference ${token} in "{renaming}" reference * in "{subject}" that do not exist'
        else:
            used += token == "*" or reference is not None
    if used != wildcards:
        yield "subject does not contain enough * or reference wildcards $[0-9]"


def finding_mapping_fault(source: str, destinations: Sequence[WeightedMapping]) -> Steps[str]:
    """Return the fault of one mapping, or "".

    A source has no functions, because it is also a destination: of the messages that the weights leave.
    """
    if not is_valid_subject(source.encode()) or "{{" in source or without_references(source) != source:
        return f'mapping "{source}": invalid subject'
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for to in destinations:
        if to.subject in seen:
            return f'mapping "{source}": duplicate entry for "{to.subject}"'
        seen.add(to.subject)
        totals[to.cluster] = totals.get(to.cluster, 0) + (to.weight or 100)
        if not 0 <= to.weight <= 100 or totals[to.cluster] > 100:
            return f'mapping "{source}": total weight needs to be <= 100'
        try:
            yield from checking_mapping(source, to.subject)
        except TransformError as bad:
            return f'mapping "{source}" -> "{to.subject}": {bad}'
    return ""


_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\Z")


def clock_time(text: str) -> time | None:
    """Return a time of day such as `15:04:05`, None if it is invalid; fractions of a second are dropped."""
    match = _CLOCK.match(text)
    try:
        return time(int(match[1]), int(match[2]), int(match[3])) if match else None
    except ValueError:
        return None


def may_connect_for_ns(times: list[TimeRange], location: str, now_ns: int) -> int | None:
    """Return how long a user may stay connected in nanoseconds: 0 without limit, None if it may not connect now.

    The ranges are times of day in the time zone `location` (if empty: the local one). A range that ends before
    it starts spans midnight.
    """
    if not times:
        return 0
    place = time_zone(location) if location else None
    now = datetime.fromtimestamp(now_ns // SECOND, place).astimezone(place)
    now += timedelta(microseconds=now_ns % SECOND // 1000)
    longest: timedelta | None = None
    for one in times:
        start, end = clock_time(one.start), clock_time(one.end)
        if start is None or end is None:
            return None
        left = _time_left(now, start, end)
        if left is not None and (longest is None or left > longest):
            longest = left
    return None if longest is None else round(longest.total_seconds() * SECOND)


def _time_left(now: datetime, start_of: time, end_of: time) -> timedelta | None:
    """Return the time until a daily range ends, None outside of it."""
    today, place = now.date(), now.tzinfo
    start, end = datetime.combine(today, start_of, place), datetime.combine(today, end_of, place)
    if start < now < end or (start > end > now):
        return end - now
    tomorrow = end + timedelta(days=1)
    return tomorrow - now if start > end and start < now < tomorrow else None


def is_inside(host: str, networks: list[str]) -> bool:
    """Return whether an address is in one of the networks; True without networks."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(host)
        inside = [address in ipaddress.ip_network(network, strict=False) for network in networks]
    except ValueError:
        return False
    return any(inside)


NO_LIMIT: Final = -1
MAX_INFO_CHARS: Final = 8 * 1024
_SERVICE_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+\Z")
_RESPONSES: Final = frozenset({"", "Singleton", "Stream", "Chunked"})


def time_faults(claims: ClaimsData, now_s: int) -> Iterator[str]:
    """Yield the faults of the times of claims."""
    if claims.exp and claims.exp < now_s:  # nats-server lets a negative time in, and out again at once
        yield "claim is expired"
    if claims.nbf > now_s:
        yield "claim is not yet valid"


def operator_faults(claims: OperatorClaims) -> Iterator[str]:
    """Yield the faults of an operator's claims, except times."""
    url = claims.nats.account_server_url
    if url and not urlsplit(url).scheme:
        yield f'account server url "{url}" requires a protocol'
    yield from (fault for url in claims.nats.operator_service_urls if (fault := _service_url_fault(url)))
    yield from (
        f"{key} is not an operator public key" for key in claims.nats.signing_keys if not is_public(key, "operator")
    )
    system = claims.nats.system_account
    if system and not is_public(system, "account"):
        yield f"{system} is not an account public key"
    if claims.nats.assert_server_version and not _VERSION.match(claims.nats.assert_server_version):
        yield "assert server version error: asserted server version must be of the form <major>.<minor>.<update>"


def _service_url_fault(text: str) -> str:
    """Return the fault of an operator's server URL, or ""."""
    try:
        url = urlsplit(text)
    except ValueError as failure:
        return f'error parsing operator service url "{text.rpartition("@")[2]}": {failure}'
    if url.username is not None:
        return f'operator service url "{url.scheme}://{url.netloc.rpartition("@")[2]}" - credentials are not supported'
    if url.path:
        return f'operator service url "{text}" - paths are not supported'
    if text and url.scheme not in _SERVICE_SCHEMES:
        return f"operator service url \"{text}\" - protocol not supported (only 'nats', 'tls', 'ws', 'wss' only)"
    return ""


def user_faults(claims: UserClaims) -> Iterator[str]:
    """Yield the faults of a user's claims, except times."""
    return filter(None, user_checks(claims))


def user_checks(claims: UserClaims) -> Iterator[str]:
    """Yield the same, and "" after every few items."""
    body = claims.nats
    yield from _permission_faults(body)
    for network in body.networks:
        try:
            ipaddress.ip_interface(network if "/" in network else "")
        except ValueError:
            yield f'invalid cidr "{network}" in user src limits'
    for times in body.times or ():
        for name, text in (("start", times.start), ("end", times.end)):
            if not text:
                yield f"time ranges {name} must contain {'a start' if name == 'start' else 'an end'}"
            elif clock_time(text) is None:
                yield f'{name} in time range is invalid "{text}"'
    if body.times_location and time_zone(body.times_location) is None:
        yield f"could not parse iana time zone by name: unknown time zone {body.times_location}"
    if body.issuer_account and not is_public(body.issuer_account, "account"):
        yield "account_id is not an account public key"


def response_faults(claims: AuthorizationResponseClaims) -> Iterator[str]:
    """Yield the faults of an authentication callout's response, except times."""
    body = claims.nats
    if not is_public(claims.sub, "user"):
        yield "Subject must be a user public key"
    if not is_public(claims.aud, "server"):
        yield "Audience must be a server public key"
    if not body.error and not body.jwt:
        yield "Error or Jwt is required"
    if body.error and body.jwt:
        yield "Only Error or Jwt can be set"
    if body.issuer_account and not is_public(body.issuer_account, "account"):
        yield "issuer_account is not an account public key"


def activation_faults(claims: ActivationClaims) -> Iterator[str]:
    """Yield the faults of an activation token, except times."""
    if not claims.nats.kind:
        yield 'invalid import type: "unknown"'
    yield from subject_faults(claims.nats.subject)
    if claims.nats.issuer_account and not is_public(claims.nats.issuer_account, "account"):
        yield "account_id is not an account public key"


CHECKED_AT_ONCE: Final = 16
"""Exports, imports, mappings or keys that are checked between two pauses of `account_checks`."""
COMPARED_AT_ONCE: Final = 1024
"""Pairs of imports that are compared between two pauses."""
MAX_FAULTS: Final = 100
"""Faults of an account that are reported; long texts count more than once."""
FAULT_CHARS: Final = 1024


def account_faults(claims: AccountClaims) -> Iterator[str]:
    """Yield the faults of an account's claims, except times."""
    return filter(None, account_checks(claims))


def account_checks(claims: AccountClaims) -> Iterator[str]:
    """Yield the same, and "" after every few items, for callers that let others have their turn."""
    reported = 0
    for fault in _account_checks(claims):
        yield fault
        reported += 1 + len(fault) // FAULT_CHARS if fault else 0
        if reported >= MAX_FAULTS:
            return


def _account_checks(claims: AccountClaims) -> Iterator[str]:
    body = claims.nats
    yield from _imports_faults(body.imports, claims.sub)
    yield from _exports_faults(body.exports)
    if body.limits.tiered_limits and "" in body.limits.tiered_limits:
        yield 'Tiered JetStream Limits can not contain a blank "" tier name'
    yield from _permission_faults(body.default_permissions)
    yield from _mapping_faults(body)
    yield from _authorization_faults(body.authorization)
    yield from _share_faults(body)
    for number, key in enumerate(body.signing_keys, 1):
        yield from _pause(number)
        if isinstance(key, UserScope) and not is_public(key.key, "account"):
            yield f"{key.key} is not an account public key"
        elif isinstance(key, str) and not is_public(key, "account"):
            yield f'"{key}" is not a valid account signing key'
    yield from _info_faults(body.description, body.info_url)
    if body.cluster_traffic not in ("", "system", "owner"):
        yield f'unknown cluster traffic option: "{body.cluster_traffic}"'


def _share_faults(body: AccountBody) -> Iterator[str]:
    """Yield the limits on imports and exports that an account exceeds."""
    limits = body.limits
    if limits.imports != NO_LIMIT and len(body.imports) > limits.imports:
        yield "the account contains more imports than allowed by the operator"
    if limits.exports == NO_LIMIT:
        return
    if len(body.exports) > limits.exports:
        yield "the account contains more exports than allowed by the operator"
    if not limits.wildcards and any(has_wildcards(export.subject) for export in body.exports):
        yield "the account contains wildcard exports that are not allowed by the operator"


def _permission_faults(rules: Permissions) -> Iterator[str]:
    for direction in (rules.sub, rules.pub):
        for number, subject in enumerate((*(direction.allow or ()), *(direction.deny or ())), 1):
            yield from _pause(number)
            yield from _rule_faults(subject, queue=direction is rules.sub)


def _rule_faults(rule: str, *, queue: bool) -> Iterator[str]:
    parts = rule.split(" ")
    if len(parts) > 2:
        yield f'Permission Subject "{rule}" contains too many spaces'
        return
    for part in parts:
        yield from subject_faults(part)
    if len(parts) == 2 and not queue:
        yield f'Permission Subject "{rule}" is not allowed to contain queue'


def _mapping_faults(body: AccountBody) -> Iterator[str]:
    for number, (source, destinations) in enumerate(body.mappings.items(), 1):
        yield from _pause(number)
        yield from subject_faults(source)
        totals: dict[str, int] = {}
        for destination in destinations:
            yield from subject_faults(destination.subject)
            weight = destination.weight or 100
            if weight > 100:
                yield f'Mapping "{source}" has a weight {weight} that exceeds 100'
            totals[destination.cluster] = totals.get(destination.cluster, 0) + weight
        for cluster, total in totals.items():
            if total > 100:
                place = f' in cluster "{cluster}"' if cluster else ""
                yield f'Mapping "{source}"{place} exceeds 100% among all of it\'s weighted to mappings'


def _authorization_faults(external: ExternalAuthorization) -> Iterator[str]:
    if external.allowed_accounts and not external.auth_users:
        yield "External authorization cannot have accounts without users specified"
    for number, key in enumerate(external.auth_users, 1):
        yield from _pause(number)
        if not is_public(key, "user"):
            yield f'AuthUser "{key}" is not a valid user public key'
    for number, account in enumerate(external.allowed_accounts, 1):
        yield from _pause(number)
        if account == "*" and len(external.allowed_accounts) > 1:
            yield 'AllowedAccounts can only be a list of accounts or "*"'
        elif account != "*" and not is_public(account, "account"):
            yield f'Account "{account}" is not a valid account public key'
    if external.xkey and not is_public(external.xkey, "curve"):
        yield f'XKey "{external.xkey}" is not a valid public xkey'


def _pause(number: int) -> tuple[str, ...]:
    return () if number % CHECKED_AT_ONCE else ("",)


def _exports_faults(exports: Sequence[Export]) -> Iterator[str]:
    for number, export in enumerate(exports, 1):
        yield from _export_faults(export)
        yield from _pause(number)
    for kind in ("service", "stream"):
        subjects = [export.subject for export in exports if (export.type == "service") == (kind == "service")]
        times, inside = Counter(subjects), dict[str, str]()
        different = Containers()
        for number, subject in enumerate(times, 1):
            different.add(subject)
            yield from _pause(number)
        for number, subject in enumerate(subjects, 1):
            for at in different.of(subject):
                wider = different.subjects[at]
                if wider != subject or times[subject] > 1:
                    inside.setdefault(wider, subject)
            yield from _pause(number)
        yield from (f'{kind} export subject "{wide}" already exports "{narrow}"' for wide, narrow in inside.items())


def _export_faults(export: Export) -> Iterator[str]:
    service = export.type == "service"
    if not export.type:
        yield 'invalid export type: "unknown"'
    if service and export.response_type not in _RESPONSES:
        yield f'invalid response type for service: "{export.response_type}"'
    if export.type == "stream" and export.response_type:
        yield f'invalid response type for stream: "{export.response_type}"'
    if export.type == "stream" and export.allow_trace:
        yield "AllowTrace only valid for service export"
    if export.service_latency is not None:
        if not service:
            yield "latency tracking only permitted for services"
        yield from _latency_faults(export.service_latency)
    if export.response_threshold < 0:
        yield "negative response threshold is invalid"
    if export.response_threshold > 0 and not service:
        yield "response threshold only valid for services"
    yield from subject_faults(export.subject)
    yield from _position_faults(export.subject, export.account_token_position)
    yield from _info_faults(export.description, export.info_url)


def _latency_faults(latency: ServiceLatency) -> Iterator[str]:
    if isinstance(latency.sampling, str):
        if latency.sampling.lower() != "headers":
            yield "sampling percentage needs to be between 1-100"
    elif not 0 <= latency.sampling <= 100:
        yield "sampling percentage needs to be between 1-100"
    yield from subject_faults(latency.results)
    if has_wildcards(latency.results):
        yield "results subject can not contain wildcards"


def _position_faults(subject: str, position: int) -> Iterator[str]:
    tokens = subject.split(".")
    if position <= 0:
        return
    if not has_wildcards(subject):
        yield f"Account Token Position can only be used with wildcard subjects: {subject}"
    elif position > len(tokens):
        yield f"Account Token Position {position} exceeds length of subject '{subject}'"
    elif tokens[position - 1] != "*":
        token = tokens[position - 1]
        yield f"Account Token Position {position} matches '{token}' but must match a * in: {subject}"


def _imports_faults(imports: Sequence[Import], account: str) -> Iterator[str]:
    asked: dict[str, Containers] = {}
    for number, item in enumerate(imports, 1):
        yield from _pause(number)
        if item.type == "service":
            own = item.to or without_references(item.local_subject) or item.subject
            others = asked.setdefault(item.account, Containers())
            for other in (others.subjects[at] for at in others.related(own)):
                if other == own:
                    yield f'overlapping subject namespace for "{own}" in account "{item.account}"'
                else:
                    yield f'overlapping subject namespace for "{own}" and "{other}" in same account "{item.account}"'
            others.add(own)
            if others.compared > COMPARED_AT_ONCE:
                others.compared = 0
                yield ""
        yield from import_faults(item, account)


def import_faults(item: Import, account: str) -> Iterator[str]:
    """Yield the faults of an import of `account`, including its activation token, except times."""
    service = item.type == "service"
    if not item.type:
        yield 'invalid import type: "unknown"'
    if service and item.allow_trace:
        yield "AllowTrace only valid for stream import"
    if not item.account:
        yield "account to import from is not specified"
    yield from subject_faults(item.subject)
    if item.local_subject:
        yield from renaming_faults(item.local_subject, item.subject)
        if item.to:
            yield "Local Subject replaces To"
    if item.share and not service:
        yield f'sharing information (for latency tracking) is only valid for services: "{item.subject}"'
    if item.token:
        yield from _token_faults(item, account)


def _token_faults(item: Import, account: str) -> Iterator[str]:
    try:
        token = decode_claims(item.token, ActivationClaims)
    except JwtError:
        yield f'import "{item.subject}" contains an invalid activation token'
        return
    if item.account not in (token.iss, token.nats.issuer_account):
        yield f'activation token doesn\'t match account for import "{item.subject}"'
    if token.sub != account:
        yield f'activation token doesn\'t match account it is being included in, "{item.subject}"'
    if token.nats.kind != item.type:
        yield f"mismatch between token import type {token.nats.kind} and type of import {item.type}"
    yield from activation_faults(token)
    subject = item.to if item.type == "service" and item.to else item.subject
    if not contains(token.nats.subject, subject):
        yield f'activation token import subject "{token.nats.subject}" doesn\'t match import "{item.subject}"'


def _info_faults(description: str, url: str) -> Iterator[str]:
    if len(description) > MAX_INFO_CHARS:
        yield "Description is too long"
    if len(url) > MAX_INFO_CHARS:
        yield "Info URL is too long"
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname and parts.scheme)
    except ValueError:
        named = False
    if url and not named:
        yield "error parsing info url: no hostname or scheme"
