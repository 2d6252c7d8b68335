"""Accounts that come to life, and what the broker is told about them."""

from collections.abc import Callable
from typing import Any

import pytest

from natsctl.api.jwt_token import JwtError
from natsctl.api.subject_index import finish
from natsctl.broker.imports.account_config import AccountConfig, ServiceImport, StreamImport
from natsctl.broker.jwt.account_registry import MemoryResolver
from tests.support.operators import NO_JETSTREAM_LIMITS, Key, Operator, OperatorAccount, activation, make_jwt

START_S = 1_700_000_000
Operate = Callable[..., Any]
EXPORT = {"name": "e", "subject": "e.>", "type": "stream"}


def wake(town: Any, account: OperatorAccount) -> AccountConfig:
    config: AccountConfig = finish(town.auth.book.look_up(account.public, town.clock.now_ns())).config
    return config


def config_of(town: Any, account: OperatorAccount) -> AccountConfig:
    config: AccountConfig = town.broker.accounts[account.public].config
    return config


def importing(exporter: OperatorAccount, **more: Any) -> dict[str, Any]:
    return {"name": "i", "subject": "e.x", "account": exporter.public, "type": "stream", **more}


def test_accounts_that_import_from_each_other_come_to_life(operator: Operator, operate: Operate) -> None:
    one, two = operator.account("1", exports=[EXPORT]), operator.account("2", exports=[EXPORT])
    one.nats["imports"], two.nats["imports"] = [importing(two)], [importing(one)]
    town = operate(operator)
    wake(town, one)
    assert config_of(town, one).imports and config_of(town, two).imports


def test_import_waits_for_its_exporter(operator: Operator, operate: Operate) -> None:
    importer = operator.account("I")
    exporter = Operator().account("E", exports=[EXPORT])
    importer.nats["imports"] = [importing(exporter)]
    town = operate(operator)
    assert wake(town, importer).imports == ()
    town.resolver._preload[exporter.public] = exporter.jwt(operator.key)
    wake(town, exporter)
    assert config_of(town, importer).imports == (StreamImport(exporter.public, "e.x"),)


def test_private_export_needs_a_good_token(operator: Operator, operate: Operate) -> None:
    exporter = operator.account("E", exports=[{**EXPORT, "token_req": True}])
    importer = operator.account("I")
    signing = Key("account")
    exporter.nats["signing_keys"] = [signing.public]
    me, it = importer.public, exporter.key
    by_signer = activation(signing, me, "e.>", "stream")
    issued = {
        "": False,
        activation(it, me, "e.>", "stream"): True,
        activation(it, me, "e.x", "stream", exp=START_S + 5): True,
        activation(it, me, "e.x", "stream", exp=START_S - 5): False,
        activation(it, me, "e.x", "stream", nbf=START_S + 5): False,
        activation(it, me, "e.y", "stream"): False,
        activation(it, me, "e.>", "service"): False,
        activation(it, exporter.public, "e.>", "stream"): False,
        activation(Key("account"), me, "e.>", "stream"): False,
        by_signer: False,
        "eyJ.no.token": False,
    }
    for token, good in issued.items():
        importer.nats["imports"] = [importing(exporter, **({"token": token} if token else {}))]
        town = operate(operator)
        try:
            found = wake(town, importer).imports
        except JwtError:  # a token that does not fit makes the whole account invalid
            found = ()
        assert bool(found) is good, token


def test_token_of_a_signing_key_names_its_account(operator: Operator, operate: Operate) -> None:
    exporter = operator.account("E", exports=[{**EXPORT, "token_req": True}])
    importer = operator.account("I")
    signing = Key("account")
    claims = {"sub": importer.public}
    token = make_activation(signing, exporter, claims)
    importer.nats["imports"] = [importing(exporter, token=token)]
    assert wake(operate(operator), importer).imports == ()
    exporter.nats["signing_keys"] = [signing.public]
    assert wake(operate(operator), importer).imports != ()


def make_activation(signer: Key, exporter: OperatorAccount, claims: dict[str, Any]) -> str:
    return make_jwt("activation", claims["sub"], signer, subject="e.>", kind="stream", issuer_account=exporter.public)


def test_token_is_worth_nothing_once_it_expires(operator: Operator, operate: Operate) -> None:
    exporter = operator.account("E", exports=[{**EXPORT, "token_req": True}])
    importer = operator.account("I")
    token = activation(exporter.key, importer.public, "e.>", "stream", exp=START_S + 10)
    importer.nats["imports"] = [importing(exporter, token=token)]
    town = operate(operator)
    assert wake(town, importer).imports
    town.wait(9)
    assert config_of(town, importer).imports
    town.wait(1)
    assert config_of(town, importer).imports == ()


@pytest.mark.parametrize("whom", ["importer", "*"])
def test_revoked_token_is_worth_nothing(operator: Operator, operate: Operate, whom: str) -> None:
    exporter = operator.account("E", exports=[{**EXPORT, "token_req": True}])
    importer = operator.account("I")
    token = activation(exporter.key, importer.public, "e.>", "stream", iat=START_S)
    importer.nats["imports"] = [importing(exporter, token=token)]
    town = operate(operator)
    assert wake(town, importer).imports
    key = importer.public if whom == "importer" else whom
    exporter.nats["exports"] = [{**EXPORT, "token_req": True, "revocations": {key: START_S}}]
    town.push(exporter)
    assert config_of(town, importer).imports == ()
    exporter.nats["exports"][0]["revocations"] = {key: START_S - 1}
    town.push(exporter)
    assert config_of(town, importer).imports


def test_export_that_goes_takes_its_imports_along(operator: Operator, operate: Operate) -> None:
    exporter = operator.account("E", exports=[EXPORT])
    importer = operator.account("I", imports=[importing(exporter)])
    town = operate(operator)
    assert wake(town, importer).imports
    exporter.nats["exports"] = []
    town.push(exporter)
    assert config_of(town, importer).imports == ()


def test_names_of_imports(operator: Operator, operate: Operate) -> None:
    service = {"name": "s", "subject": "ask.*", "type": "service"}
    exporter = operator.account("E", exports=[{**EXPORT, "subject": "e.*"}, service])
    imports = [
        importing(exporter, subject="e.*", local_subject="own.$1"),
        importing(exporter, subject="e.old", to="prefix"),
        importing(exporter, subject="ask.a", local_subject="mine.a", type="service", share=True),
        importing(exporter, subject="old.b", to="ask.b", type="service"),
        importing(exporter, subject="ask.c", type="service"),
    ]
    importer = operator.account("I", imports=imports)
    it = exporter.public
    assert wake(operate(operator), importer).imports == (
        StreamImport(it, "e.*", "own.$1"),
        StreamImport(it, "e.old", "prefix.e.old"),
        ServiceImport(it, "ask.a", "mine.a", share=True),
        ServiceImport(it, "ask.b", "old.b"),
        ServiceImport(it, "ask.c"),
    )


def test_update_with_the_same_or_a_bad_jwt_changes_nothing(operator: Operator, operate: Operate) -> None:
    account = operator.account("A", limits={"conn": 5})
    town = operate(operator)
    config = wake(town, account)
    assert config.display_name == "A"
    book, now = town.auth.book, town.clock.now_ns()
    finish(book.update(account.public, town.resolver.fetch(account.public), now))
    account.nats["limits"] = {"conn": 7}
    for token in ("", "x", account.jwt(Key("operator")), operator.account("B").jwt(operator.key)):
        with pytest.raises(JwtError):
            finish(book.update(account.public, token, now))
    assert config_of(town, account) is config


def test_jetstream_follows_limits_and_tiers(operator: Operator, operate: Operate) -> None:
    plain = operator.account("P", limits={**NO_JETSTREAM_LIMITS, "disk_storage": 1000, "max_ack_pending": 0})
    tier = {"mem_storage": 1, "disk_storage": 2, "streams": 3, "consumer": 4, "disk_max_stream_bytes": 5}
    tiered = operator.account("T", limits={"tiered_limits": {"R1": tier, "R3": {"disk_storage": 9}}})
    without = operator.account("W")
    town = operate(operator)
    limits = wake(town, plain).jetstream
    assert limits is not None and (limits.max_storage, limits.max_ack_pending) == (1000, -1)
    limits = wake(town, tiered).jetstream
    assert limits is not None
    assert (limits.max_memory, limits.max_storage, limits.max_streams, limits.max_consumers) == (1, 2, 3, 4)
    assert (limits.memory_max_stream_bytes, limits.storage_max_stream_bytes) == (-1, 5)
    tiers = wake(town, tiered).jetstream_tiers
    assert [(name, limits.max_storage) for name, limits in tiers] == [("R1", 2), ("R3", 9)]
    assert wake(town, plain).jetstream_tiers == ()
    assert wake(town, without).jetstream is None


def test_resolver_that_forgets_an_account_closes_its_clients(operator: Operator, operate: Operate) -> None:
    kept, gone = operator.account("K"), operator.account("G")
    town = operate(operator)
    stays, goes = town.guest(operator.user(kept)), town.guest(operator.user(gone))
    preload = {key: token for key, token in operator.preload().items() if key != gone.public}
    assert finish(town.auth.book.replace_resolver(MemoryResolver(preload), town.clock.now_ns())) == [gone.public]
    assert (stays.reason, goes.reason) == ("", "Authentication Failure")


def test_mapping_that_can_not_be_made_is_left_out(operator: Operator, operate: Operate) -> None:
    good = [{"subject": "n.$1", "weight": 40}, {"subject": "o.$1", "weight": 60}]
    mappings = {
        "m.*": good,
        "a": [{"subject": "b.$1"}],
        "c": [{"subject": "d"}, {"subject": "d", "weight": 1}],
        "e": [{"subject": "{{nonsense(1)}}"}],
    }
    account = operator.account(
        "A", mappings={**mappings, "f": [{"subject": "g", "weight": 100, "cluster": "elsewhere"}]}
    )
    # Weights of more than all make the whole account invalid, a duplicate alone does not.
    account.nats["mappings"]["c"][0]["weight"] = 1
    found = wake(operate(operator), account).mappings
    assert [(each.source, len(each.destinations)) for each in found] == [("m.*", 2), ("f", 0)]
