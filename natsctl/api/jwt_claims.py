"""Claims of JWTs as typed values; attributes are JSON keys. Source: nats-server, package jwt version 2."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from natsctl.api.codec import BYTES_PER_COST
from natsctl.api.jwt_token import JwtError, verifying_claims
from natsctl.api.subject_index import Steps, finish

NO_LIMIT = -1


class Struct(msgspec.Struct, kw_only=True, frozen=True):
    """A JSON object; a missing key is zero or empty, an unknown one ignored."""


class ClaimsData(Struct, frozen=True):
    """Fields of every JWT: issuer, subject, and its times in seconds since the epoch."""

    aud: str = ""
    exp: int = 0
    jti: str = ""
    iat: int = 0
    iss: str = ""
    name: str = ""
    nbf: int = 0
    sub: str = ""


class Permission(Struct, frozen=True):
    """Subjects that are allowed and denied for one direction; None is a list that is missing, unlike an empty one."""

    allow: list[str] | None = None
    deny: list[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it restricts nothing: neither list has an entry."""
        return not self.allow and not self.deny


class ResponsePermission(Struct, frozen=True):
    """Permission to answer requests: up to `max` replies each, within `ttl` nanoseconds."""

    max: int = 0
    ttl: int = 0


class Permissions(Struct, frozen=True):
    """Rules for both directions."""

    pub: Permission = Permission()
    sub: Permission = Permission()
    resp: ResponsePermission | None = None


class TimeRange(Struct, frozen=True):
    """A part of each day; both ends are written as in `15:04:05`."""

    start: str = ""
    end: str = ""


class UserLimits(Permissions, frozen=True):
    """Rules and limits of a user, also as the template of a scoped signing key."""

    src: list[str] | str | None = None
    """Networks that may connect: a list of CIDRs, or one string of them separated by commas."""
    times: list[TimeRange] | None = None
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] | None = None

    @property
    def networks(self) -> list[str]:
        """The CIDRs that may connect; empty: any."""
        if self.src is None or isinstance(self.src, list):
            return self.src or []
        return [part.strip().lower() for part in self.src.split(",")]


class UserBody(UserLimits, frozen=True):
    """Claims of a user's JWT except the times."""

    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class UserClaims(ClaimsData, frozen=True):
    """A user's JWT."""

    nats: UserBody = UserBody()

    @property
    def account(self) -> str:
        """The account's public key, even if one of its signing keys issued the JWT."""
        return self.nats.issuer_account or self.iss


class ServiceLatency(Struct, frozen=True):
    """Subject for the latency of a service, and the percentage of requests that are measured."""

    sampling: int | str = 0
    results: str = ""


class Export(Struct, frozen=True):
    """Export: subjects that other accounts may import."""

    name: str = ""
    subject: str = ""
    type: Literal["stream", "service", ""] = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    service_latency: ServiceLatency | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class Import(Struct, frozen=True):
    """Import from another account.

    `local_subject` is the subject in this account, and then `subject` is the exporter's. JWTs without it use `to`: for
    a stream a prefix of `subject` in this account, for a service the exporter's subject, and `subject` is here.
    """

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: Literal["stream", "service", ""] = ""
    share: bool = False
    allow_trace: bool = False


class JetStreamLimits(Struct, frozen=True):
    """Limits of an account's JetStream in all, or in one tier."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class AccountLimits(JetStreamLimits, frozen=True):
    """Limits of an account, set by its operator."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamLimits] = {}


class WeightedMapping(Struct, frozen=True):
    """One destination; `weight` is in percent, 0 means 100."""

    subject: str
    weight: int = 0
    cluster: str = ""


class Template(UserLimits, frozen=True):
    """Rules for the users of a scoped signing key; a missing limit means no limit, not 0."""

    subs: int = NO_LIMIT
    data: int = NO_LIMIT
    payload: int = NO_LIMIT


class UserScope(Struct, frozen=True):
    """A signing key with a template for its users' permissions."""

    kind: Literal["user_scope"]
    key: str = ""
    role: str = ""
    template: Template = Template()
    description: str = ""


class ExternalAuthorization(Struct, frozen=True):
    """Auth callout: users that authenticate others, accounts that they may assign, key to encrypt requests with."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class MsgTrace(Struct, frozen=True):
    """Destination of reports about messages with a sampled `traceparent`, and the percentage that is traced."""

    dest: str = ""
    sampling: int = 0


class AccountBody(Struct, frozen=True):
    """Claims of an account's JWT except the times."""

    imports: list[Import] = []
    exports: list[Export] = []
    limits: AccountLimits = AccountLimits()
    signing_keys: list[str | UserScope] = []
    revocations: dict[str, int] = {}
    default_permissions: Permissions = Permissions()
    mappings: dict[str, list[WeightedMapping]] = {}
    authorization: ExternalAuthorization = ExternalAuthorization()
    trace: MsgTrace | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class AccountClaims(ClaimsData, frozen=True):
    """An account's JWT."""

    nats: AccountBody = AccountBody()

    def signers(self) -> dict[str, UserScope | None]:
        """Return the account's signing keys, each with its scope or None."""
        keys = self.nats.signing_keys
        return {key: None for key in keys if isinstance(key, str)} | {
            scope.key: scope for scope in keys if isinstance(scope, UserScope)
        }

    def revokes(self, claims: UserClaims) -> bool:
        """Return whether a user's JWT was issued no later than the revocation of that user, or of all users."""
        return is_revoked(self.nats.revocations, claims)


class ActivationBody(Struct, frozen=True):
    """Permission to import one subject."""

    subject: str = ""
    kind: Literal["stream", "service", ""] = ""
    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class ActivationClaims(ClaimsData, frozen=True):
    """An activation token: the permission for the account `sub` to import one subject."""

    nats: ActivationBody = ActivationBody()


class OperatorBody(Struct, frozen=True):
    """Claims of an operator's JWT except the times."""

    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: list[str] = []
    type: str = ""
    version: int = 0


class OperatorClaims(ClaimsData, frozen=True):
    """An operator's JWT."""

    nats: OperatorBody = OperatorBody()


class AuthorizationResponseBody(Struct, frozen=True):
    """Claims of a callout's response except the times: a user's JWT, or the reason of a refusal."""

    jwt: str = ""
    error: str = ""
    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class AuthorizationResponseClaims(ClaimsData, frozen=True):
    """The response of a service that was asked about a client, for one server (`aud`) and one request (`sub`)."""

    nats: AuthorizationResponseBody = AuthorizationResponseBody()


AnyClaims = TypeVar(
    "AnyClaims", OperatorClaims, AccountClaims, UserClaims, ActivationClaims, AuthorizationResponseClaims
)

_KINDS: dict[type[Any], str] = {
    OperatorClaims: "operator", AccountClaims: "account", UserClaims: "user", ActivationClaims: "activation",
    AuthorizationResponseClaims: "authorization_response",
}  # fmt: skip


def decode(token: str, kind: type[AnyClaims]) -> AnyClaims:
    """Run all steps of `decoding`."""
    return finish(decoding(token, kind))


def decoding(token: str, kind: type[AnyClaims]) -> Steps[AnyClaims]:
    """Return the claims of a JWT of that kind after checking its signature; raises JwtError."""
    found = yield from verifying_claims(token, _KINDS[kind], kind)
    yield len(token) // BYTES_PER_COST
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise JwtError(str(error)) from None


def is_revoked(revocations: dict[str, int], claims: ClaimsData) -> bool:
    """Return whether claims were issued no later than the revocation of their subject, or of every subject (`*`)."""
    return any(revocations[key] >= claims.iat for key in (claims.sub, "*") if key in revocations)
