"""Random claims, written as JSON says them: what users may do is the same as in nats-server.

Builders of JWTs leave out lists that are empty, and so hide the difference between a missing list and an empty one.
Here every key of permissions, limits and templates is missing, null, empty or full, drawn by a seed.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.support import tiers
from tests.support.operators import Key, Operator, OperatorAccount, UserLogin, login, make_jwt, without_keys

ACCOUNTS: Final = 12
"""Accounts with limits, default permissions and a template of their own."""
MISSING: Final = object()
AT_ONCE: Final = ([b"-ERR 'Authorization Violation'"], [b"-ERR 'maximum subscriptions exceeded'"])
"""Our answers to the login of a user whose JWT has a negative end, or that may have no subscription at all.

nats-server lets both in, and closes them within 20 ms; meanwhile they may meet another limit.
"""
EXPIRED: Final = b"-ERR 'User Authentication Expired'"
LATER: Final = (AT_ONCE[1][0], b"-ERR 'Maximum Payload Violation'")
SUBJECTS: Final = ("a.x", "a.y", "b", "a.*", "a.>", ">", "*", "a.x q", "{{name()}}", "{{tag(t)}}.x", "{{tag(none)}}")
PROBES: Final = (
    b"PUB a.x 0\r\n\r\n", b"PUB a.y 2\r\nhi\r\n", b"PUB b 0\r\n\r\n", b"PUB alice 0\r\n\r\n", b"PUB red.x 0\r\n\r\n",
    b"SUB a.x 1\r\n", b"SUB a.* 2\r\n", b"SUB b q 3\r\n", b"SUB > 4\r\n", b"SUB alice 5\r\n", b"SUB a.x q 6\r\n",
    b"PUB a.x 9\r\n123456789\r\n",
)  # fmt: skip


class Chance:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def subjects(self) -> list[str]:
        return self.random.sample(SUBJECTS, self.random.randint(1, 3))

    def permission(self) -> Any:
        if self.random.random() < 0.3:
            return self.one(MISSING, None, {})
        kinds = (MISSING, None, [], [], self.subjects(), self.subjects())
        return present(allow=self.one(*kinds), deny=self.one(*kinds))

    def rules(self) -> dict[str, Any]:
        """Permissions and limits of a user or a template."""
        rare = self.random.random() < 0.25
        return present(
            pub=self.permission(),
            sub=self.permission(),
            resp=self.one(MISSING, MISSING, MISSING, None, {}, {"max": self.one(-2, -1, 0, 1)}, {"max": 1, "ttl": -1}),
            subs=self.one(-1, -1, -1, MISSING, None, -2, 0, 1, 4, 1 << 40, -(1 << 40)),
            payload=self.one(-1, -1, -1, MISSING, None, -2, 0, 1, 4, 1 << 40, -(1 << 40)),
            data=self.one(-1, MISSING, -2, 0),
            src=self.one(MISSING, None, [], ["127.0.0.0/8"], ["10.0.0.0/8"], "127.0.0.1/32") if rare else MISSING,
            times=self.one(MISSING, None, []) if rare else MISSING,
            allowed_connection_types=self.one(MISSING, None, [], ["STANDARD"], ["FUTURE"]) if rare else MISSING,
        )


def present(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not MISSING}


class Estate:
    """An operator's accounts and users, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.operator = Operator(random.Random(seed))
        chance = Chance(f"accounts {seed}")
        self.accounts: list[tuple[OperatorAccount, Key]] = []
        for number in range(ACCOUNTS):
            scoped = self.operator._new_key("account")
            limits = {key: chance.one(-1, -1, -1, -2, 1, 4) for key in ("subs", "payload")}
            nats = present(default_permissions=chance.one(MISSING, None, {}, chance.rules(), chance.rules()))
            if isinstance(nats.get("default_permissions"), dict):
                kept = ("pub", "sub", "resp")
                nats["default_permissions"] = {k: v for k, v in nats["default_permissions"].items() if k in kept}
            template = {"kind": "user_scope", "key": scoped.public, "role": "r", "template": chance.rules()}
            account = self.operator.account(f"A{number}", limits=limits, signing_keys=[template], **nats)
            self.accounts.append((account, scoped))

    def user(self, seed: str) -> UserLogin:
        """A user of an account's own key, or of its scoped one, mostly without rules of its own."""
        chance = Chance(seed)
        account, scoped = chance.one(*self.accounts)
        key = self.operator._new_key("user")
        times = present(name="alice", exp=chance.one(MISSING, MISSING, MISSING, 0, -1))
        if chance.random.random() < 0.4:
            rules = {"issuer_account": account.public, "tags": chance.one([], ["t:red"], ["t:red", "t:blue"])}
            rules |= chance.one({}, {}, chance.rules(), {"pub": {"allow": []}}, {"sub": {"deny": []}}, {"times": []})
            return UserLogin(key, make_jwt("user", key.public, scoped, times, **rules))
        return UserLogin(key, make_jwt("user", key.public, account.key, times, **chance.rules()))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Estate, dict[Kind, str]]]:
    estate, folder = Estate(32), tmp_path_factory.mktemp("claims")
    (folder / "nats.conf").write_text(estate.operator.conf("authorization { timeout: 30 }"))
    config = ("-c", str(folder / "nats.conf"))
    with (
        ServerProcess(folder / "ours", "natsctl", *config) as ours,
        ServerProcess(folder / "theirs", "reference", *config) as theirs,
    ):
        yield estate, {"natsctl": ours.url, "reference": theirs.url}


def told(url: str, user: UserLogin) -> list[list[bytes]]:
    """What a server says to a user's login and to each probe, up to the end of the connection."""
    visitor = login(url, user)
    lines = [[without_keys(line) for line in visitor.said]]
    for probe in PROBES:
        if not visitor.open:
            break
        lines.append([without_keys(line) for line in visitor.say(probe) if not line.startswith((b"MSG", b"HMSG"))])
    visitor.close()
    return lines


def are_same(ours: list[list[bytes]], theirs: list[list[bytes]]) -> bool:
    """Whether the answers are equal, or the user is closed at once here and a little later there."""
    said = [line for answer in theirs for line in answer]
    early = [line for answer in theirs[:6] for line in answer]  # before the first SUB
    later = EXPIRED in said or any(line in LATER for line in early)
    return ours == theirs or (ours[0] in AT_ONCE and later)


@pytest.mark.reference
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", tiers.seeds(2, 20))
def test_random_claims_allow_the_same(servers: tuple[Estate, dict[Kind, str]], batch: int) -> None:
    estate, urls = servers
    differing = {}
    for number in range(50):
        user = estate.user(f"{batch} {number}")
        ours, theirs = told(urls["natsctl"], user), told(urls["reference"], user)
        if not are_same(ours, theirs):
            differing[number] = (ours, theirs)
    assert differing == {}
