"""The text of a JWT: what is taken, and what is not."""

import itertools
from typing import Any

import pytest

from natsctl.api.jwt_claims import AccountClaims, ActivationClaims, OperatorClaims, UserClaims, decode
from natsctl.api.jwt_token import MAX_TOKEN_BYTES, JwtError
from tests.support.operators import Key, activation, base64url, encode_jwt, make_jwt

OPERATOR, ACCOUNT, OTHER, USER = Key("operator"), Key("account"), Key("account"), Key("user")


def user(**nats: Any) -> str:
    return make_jwt("user", USER.public, ACCOUNT, {"name": "alice", "exp": 5}, **nats)


def test_claims_of_every_kind_are_read() -> None:
    assert decode(user(pub={"allow": ["a.>"]}, tags=["x:y"]), UserClaims).nats.pub.allow == ["a.>"]
    account = make_jwt("account", ACCOUNT.public, OPERATOR, limits={"conn": 7}, signing_keys=[OTHER.public])
    assert decode(account, AccountClaims).nats.limits.conn == 7
    assert decode(account, AccountClaims).signers() == {OTHER.public: None}
    operator = make_jwt("operator", OPERATOR.public, OPERATOR, system_account=ACCOUNT.public)
    assert decode(operator, OperatorClaims).nats.system_account == ACCOUNT.public
    token = activation(ACCOUNT, OTHER.public, "a.b", "service", exp=9)
    assert decode(token, ActivationClaims).nats.kind == "service"


def test_nulls_stand_for_nothing() -> None:
    assert decode(user(pub=None, resp=None, src=None), UserClaims).nats.networks == []


def test_limits_that_a_user_does_not_name_are_zero_but_none_in_a_template() -> None:
    assert decode(user(), UserClaims).nats.subs == 0
    scope = {"kind": "user_scope", "key": OTHER.public, "template": {"bearer_token": True}}
    account = decode(make_jwt("account", ACCOUNT.public, OPERATOR, signing_keys=[scope]), AccountClaims)
    found = account.signers()[OTHER.public]
    assert found is not None and found.template.subs == -1 and found.template.bearer_token


@pytest.mark.parametrize("header", [{"typ": "jwt", "alg": "ed25519"}, {"typ": "JWT", "alg": "ED25519-NKEY"}])
def test_header_is_taken_whatever_its_case(header: dict[str, str]) -> None:
    claims = {"sub": USER.public, "nats": {"type": "user", "version": 2}}
    assert decode(encode_jwt(claims, ACCOUNT, header), UserClaims).sub == USER.public


def version_1(claims: dict[str, Any], signer: Key) -> str:
    """Return a JWT of version 1, whose signature is of the second part alone."""
    text = encode_jwt(claims, signer, {"typ": "jwt", "alg": "ed25519"})
    head, body, _ = text.split(".")
    return f"{head}.{body}.{base64url(signer.sign(body.encode()))}"


def test_version_1_is_read_into_the_places_of_version_2() -> None:
    said = {"sub": USER.public, "type": "user", "tags": ["t"], "issuer_account": OTHER.public, "nats": {"subs": 3}}
    claims = decode(version_1(said, ACCOUNT), UserClaims)
    assert (claims.nats.subs, claims.nats.payload, claims.nats.tags) == (3, -1, ["t"])
    assert claims.account == OTHER.public
    token = {"sub": OTHER.public, "type": "activation", "nats": {"subject": "a", "type": "stream"}}
    assert decode(version_1(token, ACCOUNT), ActivationClaims).nats.kind == "stream"
    account = {"sub": ACCOUNT.public, "type": "account", "nats": {"limits": {"conn": 2, "disk_storage": 5}}}
    limits = decode(version_1(account, OPERATOR), AccountClaims).nats.limits
    assert (limits.conn, limits.disk_storage) == (2, 0)


def signed(nats: dict[str, Any], header: dict[str, str] | None = None, **claims: Any) -> str:
    return encode_jwt({"sub": USER.public, "nats": nats, **claims}, ACCOUNT, header)


HEAD, BODY, SIGNATURE = user().split(".")
OTHER_BODY = base64url(b'{"sub":"x","iss":"%b","nats":{"type":"user","version":2}}' % ACCOUNT.public.encode())
FORGED = "claim failed V2 signature verification"
V2 = {"type": "user", "version": 2}


@pytest.mark.parametrize(
    ("token", "kind", "text"),
    [
        (signed(V2, {"typ": "JWS", "alg": "ed25519"}), UserClaims, "not supported type"),
        (signed(V2, {"typ": "JWT", "alg": "none"}), UserClaims, "algorithm"),
        (signed({}, type="user"), UserClaims, "claim failed V1 signature verification"),
        (signed({**V2, "version": 0}), UserClaims, "version"),
        (signed({**V2, "version": 3}), UserClaims, "version"),
        (f"{HEAD}.{OTHER_BODY}.{SIGNATURE}", UserClaims, FORGED),
        (f"{HEAD}.{BODY}.{SIGNATURE[:-4]}AAAA", UserClaims, FORGED),
        (f"{HEAD}.{BODY}.", UserClaims, FORGED),
        (make_jwt("user", USER.public, OPERATOR), UserClaims, r"unable to validate expected prefixes - \[account\]"),
        (make_jwt("operator", OPERATOR.public, ACCOUNT), OperatorClaims, "expected prefixes"),
        (user(), AccountClaims, "not account claim"),
        (user(subs="many"), UserClaims, ""),
        (user(pub=[]), UserClaims, ""),
        (user(tags="x"), UserClaims, ""),
        (user(times=[{"start": 5}]), UserClaims, ""),
        (".".join((HEAD, base64url(b'{"nats":' + b"[" * 100_000), "AA")), UserClaims, ""),
        ("x" * (MAX_TOKEN_BYTES + 1), UserClaims, "token too large"),
        *((text, UserClaims, "") for text in ("", ".", "a.b", "a.b.c", "..", "eyJ.é.x", "=.=.=", "e30.e30.e30")),
        *((text, UserClaims, "") for text in ("W10.W10.W10", "a.b.c.d", "\0.\0.\0")),
    ],
    ids=itertools.count(),  # the tokens differ in every process
)
def test_what_is_no_valid_jwt_is_refused(token: str, kind: type, text: str) -> None:
    with pytest.raises(JwtError, match=text or None):
        decode(token, kind)


def test_faults_do_not_tell_the_jwt() -> None:
    token = user(subs="many")
    with pytest.raises(JwtError) as fault:
        decode(token, UserClaims)
    assert token.split(".")[1] not in str(fault.value)
