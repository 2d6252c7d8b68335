"""JetStream of accounts comes, goes and changes its limits while the server runs, and is used from other accounts."""

from typing import Any

from msgspec.structs import replace

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import AccountConfig, ServiceExport, ServiceImport
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.machine import Machine, Wire

NONE = AccountConfig("A"), AccountConfig("B")
USERS = tuple(User(name, name, name.upper()) for name in "ab")


def tenant(limits: AccountLimits | None = UNLIMITED) -> tuple[AccountConfig, AccountConfig]:
    return AccountConfig("A", limits, exports=(ServiceExport("$JS.API.>"), ServiceExport("s.>"))), AccountConfig("B")


def importing(share: bool = False) -> tuple[AccountConfig, AccountConfig]:
    imports = (ServiceImport("A", "$JS.API.>", share=share), ServiceImport("A", "s.>"))
    return tenant()[0], AccountConfig("B", imports=imports)


class Tenants:
    def __init__(self, *configs: AccountConfig, machine: Machine | None = None) -> None:
        options = BrokerOptions(auth=StaticAuthenticator(users=USERS))
        self.machine = machine or Machine(options=JetStreamOptions(accounts={}), broker_options=options)
        self.machine.broker.configure(configs)
        self.a, self.b = (self.machine.connect(user=name, **{"pass": name}) for name in "ab")

    def configure(self, *configs: AccountConfig) -> None:
        self.machine.broker.configure(configs)
        self.machine.settle()


def code(client: Wire, verb: str, body: Any = b"") -> int:
    answer = client.request(f"$JS.API.{verb}", body)
    return int(answer.get("error", {}).get("err_code", 0))


def make(client: Wire, name: str = "S", **config: Any) -> int:
    return code(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})


def test_an_account_has_jetstream_as_soon_as_it_is_configured() -> None:
    tenants = Tenants(*NONE)
    assert (make(tenants.a), make(tenants.b)) == (10039, 10039)
    tenants.configure(*tenant())
    assert (make(tenants.a), make(tenants.b)) == (0, 10039)
    tenants.configure(*NONE)
    assert make(tenants.a) == 10039


def test_what_is_stored_is_taken_over_when_jetstream_is_switched_on_again() -> None:
    tenants = Tenants(*tenant())
    make(tenants.a)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    assert code(tenants.a, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config}) == 0
    tenants.a.publish("s.1", b"x")
    tenants.configure(*NONE)
    tenants.a.publish("s.1", b"lost")
    assert code(tenants.a, "STREAM.INFO.S") == 10039
    tenants.configure(*tenant())
    assert tenants.a.request("$JS.API.STREAM.INFO.S")["state"]["messages"] == 1
    tenants.a.publish("s.1", b"y")
    sid = tenants.a.subscribe("in")
    tenants.a.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"2", "in")
    tenants.machine.settle()
    assert [message.payload for message in tenants.a.take(sid)] == [b"x", b"y"]


def test_limits_change_while_streams_stay() -> None:
    tenants = Tenants(*tenant())
    assert make(tenants.a) == 0
    tenants.configure(*tenant(replace(UNLIMITED, max_streams=1)))
    assert (make(tenants.a, "T"), code(tenants.a, "STREAM.INFO.S")) == (10027, 0)
    tenants.configure(*tenant(replace(UNLIMITED, max_streams=2)))
    assert make(tenants.a, "T") == 0


def test_an_engine_may_be_told_who_has_jetstream() -> None:
    tenants = Tenants(*NONE)
    engine = tenants.machine.engine
    engine.set_accounts({"A": UNLIMITED})
    assert (make(tenants.a), make(tenants.b)) == (0, 10039)
    engine.set_accounts(None)
    assert (make(tenants.b), sorted(engine.accounts)) == (0, ["$G", "A", "B"])
    engine.set_accounts({})
    assert (make(tenants.a), sorted(engine.accounts)) == (10039, [])


def test_an_account_that_is_gone_leaves_its_streams_on_the_disk() -> None:
    tenants = Tenants(*tenant())
    make(tenants.a)
    tenants.configure(AccountConfig("B"))
    assert sorted(tenants.machine.engine.accounts) == []
    assert list(tenants.machine.store.streams) == ["A/S"]


def test_who_imports_the_api_is_not_refused_besides() -> None:
    tenants = Tenants(*NONE)
    tenants.configure(*importing())
    assert make(tenants.b) == 0
    assert tenants.a.request("$JS.API.STREAM.INFO.S")["config"]["name"] == "S"
    tenants.configure(*tenant())
    assert code(tenants.b, "STREAM.INFO.S") == 10039


def test_a_publisher_of_another_account_is_acknowledged() -> None:
    tenants = Tenants(*importing())
    make(tenants.b)
    assert tenants.b.request("s.1", b"x") == {"stream": "S", "seq": 1}
    assert tenants.machine.broker.accounts["A"].imports.owed == 0


def audited(share: bool) -> dict[str, Any]:
    tenants = Tenants(*importing(share))
    sid = tenants.a.subscribe("$JS.EVENT.ADVISORY.API")
    tenants.b.request("$JS.API.INFO")
    make(tenants.b)
    client: dict[str, Any] = tenants.a.take(sid)[-1].json()["client"]
    return client


def test_advisories_tell_what_the_importing_account_shares() -> None:
    assert set(audited(share=False)) - {"rtt"} == {"acc", "svc", "server"}
    shared = audited(share=True)
    assert (shared["acc"], shared["svc"], shared["user"], shared["kind"]) == ("B", "A", "b", "Client")


def test_a_request_of_another_account_that_waits_ends_with_its_interest() -> None:
    tenants = Tenants(*importing())
    make(tenants.b)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    assert code(tenants.b, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config}) == 0
    sid = tenants.b.subscribe("in")
    tenants.b.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch": 5, "expires": 5000000000}', "in")
    assert tenants.a.request("$JS.API.CONSUMER.INFO.S.C")["num_waiting"] == 1
    tenants.b.unsubscribe(sid)
    tenants.a.publish("s.1", b"x")
    info = tenants.a.request("$JS.API.CONSUMER.INFO.S.C")
    assert (info["num_waiting"], info["num_pending"], info["num_ack_pending"]) == (0, 1, 0)


def test_a_fast_batch_through_a_service_of_another_account_is_one() -> None:
    tenants = Tenants(*importing())
    assert make(tenants.a, allow_batched=True) == 0
    sid = tenants.b.subscribe("in.f.>")
    for place, op in ((1, 0), (2, 1), (3, 2)):
        tenants.b.publish("s.1", b"x", f"in.f.2.fail.{place}.{op}.$FI")
    tenants.machine.settle()
    told = [message.json() for message in tenants.b.take(sid)]
    assert told[0] == {"type": "ack", "seq": 0, "msgs": 2}
    assert told[-1] == {"stream": "S", "seq": 3, "batch": "f", "count": 3}
    answer = tenants.a.request("$JS.API.STREAM.MSG.GET.S", {"seq": 3})
    assert "hdrs" not in answer["message"]


def test_the_tiers_of_an_account_are_told_and_all_of_one_node_is_of_the_first() -> None:
    first, third = replace(UNLIMITED, max_storage=5000), replace(UNLIMITED, max_storage=9)
    config = AccountConfig("A", first, jetstream_tiers=(("R1", first), ("R3", third)))
    tenants = Tenants(config, NONE[1])
    make(tenants.a, max_bytes=1000)
    told = tenants.a.request("$JS.API.INFO")
    assert (told["streams"], told["reserved_storage"], told["limits"]["max_storage"]) == (1, 1000, 0)
    assert [(name, tier["streams"], tier["limits"]["max_storage"]) for name, tier in told["tiers"].items()] == [
        ("R1", 1, 5000),
        ("R3", 0, 9),
    ]
    tenants.configure(*tenant())
    assert "tiers" not in tenants.a.request("$JS.API.INFO")
