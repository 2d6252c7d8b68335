"""Templates of scoped signing keys."""

import msgspec
import pytest

from natsctl.api.jwt_claims import AccountBody, AccountClaims, Permission, Template, UserBody, UserClaims
from natsctl.api.jwt_token import JwtError
from natsctl.api.subject_index import finish
from natsctl.broker.jwt.user_grant import MAX_EXPANSIONS, fill

USER = UserClaims(
    sub="UKEY", name="alice", nats=UserBody(tags=["team:red", "team:blue", "dept:x"], issuer_account="AKEY")
)
ACCOUNT = AccountClaims(sub="AKEY", name="acme", nats=AccountBody(tags=["plan:gold"]))


def allowed(*subjects: str, user: UserClaims = USER) -> Permission:
    return finish(fill(Template(pub=Permission(allow=list(subjects))), user, ACCOUNT)).pub


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("a.{{name()}}", ["a.alice"]),
        ("a.{{ NAME() }}.{{subject()}}", ["a.alice.UKEY"]),
        ("{{account-name()}}.{{account-subject()}}", ["acme.AKEY"]),
        ("t.{{tag(team)}}", ["t.red", "t.blue"]),
        ("{{tag(team)}}.{{tag(dept)}}", ["red.x", "blue.x"]),
        ("{{tag(dept)}}.{{tag(team)}}", ["x.red", "x.blue"]),
        ("p.{{account-tag(plan)}}", ["p.gold"]),
        ("{{tag(team)}}-{{name()}}", ["red-alice", "blue-alice"]),
    ],
)
def test_fields_are_filled(text: str, subjects: list[str]) -> None:
    assert allowed(text).allow == subjects


def test_subject_that_becomes_invalid_is_dropped() -> None:
    nameless = msgspec.structs.replace(USER, name="")
    assert allowed("a.{{name()}}.b", "c", user=nameless).allow == ["c"]
    assert allowed("a.{{tag(none)}}", "c").allow == ["c"]


def test_nothing_left_of_what_is_allowed_denies_everything() -> None:
    assert allowed("a.{{tag(none)}}") == Permission(allow=[], deny=[">"])
    assert allowed() == Permission(allow=[])


def test_denied_subject_that_becomes_invalid_refuses_the_user() -> None:
    for subject in ("a.{{tag(none)}}", "a.{{name()}}."):
        with pytest.raises(JwtError):
            finish(fill(Template(sub=Permission(deny=[subject])), USER, ACCOUNT))


def test_unknown_field_refuses_the_user() -> None:
    with pytest.raises(JwtError, match="is not defined"):
        allowed("a.{{what()}}")


def test_expansions_are_bounded() -> None:
    many = msgspec.structs.replace(USER, nats=UserBody(tags=[f"t:{n}" for n in range(100)]))
    with pytest.raises(JwtError, match=f"template expansion exceeds limit: {MAX_EXPANSIONS}"):
        allowed("{{tag(t)}}.{{tag(t)}}", user=many)
    with pytest.raises(JwtError, match="template expansion exceeds limit"):
        allowed(*["{{tag(t)}}"] * 50, user=many)


def test_limits_of_the_template_stay() -> None:
    template = Template(subs=3, bearer_token=True, pub=Permission(allow=["{{name()}}"]))
    found = finish(fill(template, USER, ACCOUNT))
    assert (found.subs, found.bearer_token, found.pub.allow) == (3, True, ["alice"])
