"""The store of operators: what is written and read again, by us and by nats, and what is refused."""

import json
import threading

import pytest

from natsctl.api.errors import ConflictError, NatsctlError, StorageError, UsageError
from natsctl.client.atomic_file import FileChange, hold_lock
from natsctl.client.auth import nsc_store
from natsctl.client.auth.claims import add_tags
from natsctl.client.auth.keys import generate_key
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import Operator, new_operator


def _files(store: NscStore) -> dict[str, str]:
    root = store.stores.parent
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name != nsc_store.LOCK_NAME]
    return {str(path.relative_to(root)): path.read_text() for path in files}


def _made(store: NscStore) -> Operator:
    operator = new_operator("MINE")
    orders = operator.add_account("ORDERS")
    scoped = orders.add_signing_key({"role": "reader", "template": {"sub": {"allow": ["orders.>"]}, "subs": 10}})
    orders.add_user("app")
    orders.add_user("watcher", "reader")
    assert orders.user("watcher").issuer == scoped.public
    store.save(operator)
    return operator


def test_a_store_of_nats_is_read_with_its_keys_and_written_back_unchanged(store_of_nats: NscStore) -> None:
    before = _files(store_of_nats)
    operator = store_of_nats.operator("RECORDED")
    assert operator.key.is_private and operator.tags == ["made", "by-nats"]
    assert [key.public for key in operator.signing_keys] == operator.signing_key_names
    assert [account.name for account in operator.accounts] == ["ORDERS", "SYSTEM"]
    assert operator.system_account is operator.account("SYSTEM")
    orders = operator.account("ORDERS")
    assert orders.typed.nats.limits.conn == -1 and not orders.is_system
    watcher = orders.user("watcher")
    assert watcher.scope and watcher.effective_limits.sub.allow == ["orders.>"] and orders.user("app").scope is None
    assert watcher.issuer == orders.signing_key("reader")
    assert store_of_nats.operator(operator.subject).name == "RECORDED"
    assert store_of_nats.changes(operator) == [] and store_of_nats.save(operator) == []
    assert _files(store_of_nats) == before


def test_what_is_saved_is_private_and_read_again(store: NscStore) -> None:
    operator = _made(store)
    for path in store.stores.parent.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert json.loads((store.stores / "MINE" / ".nsc").read_text()) == {
        "managed": False, "name": "MINE", "kind": "operator", "version": "1",
    }  # fmt: skip
    again = store.operator("MINE")
    assert [(one.name, len(one.users)) for one in again.accounts] == [("ORDERS", 2), ("SYSTEM", 0)]
    assert again.token == operator.token and len(again.signing_keys) == 1
    assert [user.key.seed for user in again.account("ORDERS").users] == [
        user.key.seed for user in operator.account("ORDERS").users
    ]


def test_a_save_waits_for_another_one_and_sees_its_change(
    store_of_nats: NscStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = [store_of_nats.operator("RECORDED") for _ in range(2)]
    for number, operator in enumerate(operators):
        account = operator.account("ORDERS")
        add_tags(account.claims, [f"tag{number}"])
        account.sign()
    begun, outcomes = threading.Event(), list[object]()
    apply = NscStore.apply

    def save_second() -> None:
        try:
            outcomes.append(store_of_nats.save(operators[1]))
        except ConflictError as failure:
            outcomes.append(failure)

    second = threading.Thread(target=save_second)

    def slow(self: NscStore, change: FileChange) -> None:
        if not begun.is_set():
            begun.set()
            second.start()
            second.join(0.1)
        apply(self, change)

    monkeypatch.setattr(NscStore, "apply", slow)
    store_of_nats.save(operators[0])
    second.join(10)
    assert isinstance(outcomes[0], ConflictError)
    assert "tag0" in store_of_nats.operator("RECORDED").account("ORDERS").tags


def test_a_lock_that_is_never_given_up_is_named(store_of_nats: NscStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsc_store, "LOCKED_WITHIN_S", 0.02)
    with (store_of_nats.stores.parent / nsc_store.LOCK_NAME).open("wb") as file:
        hold_lock(file.fileno())
        with pytest.raises(StorageError, match="another natsctl has held it"):
            store_of_nats.save(store_of_nats.operator("RECORDED"))


def test_nothing_is_written_over_what_another_command_changed(store: NscStore) -> None:
    _made(store)
    mine, theirs = store.operator("MINE"), store.operator("MINE")
    for operator, tag in ((theirs, "theirs"), (mine, "mine")):
        add_tags(operator.account("ORDERS").claims, [tag])
        operator.account("ORDERS").sign()
        operator.account("ORDERS").add_user(tag)
    store.save(theirs)
    before = _files(store)
    with pytest.raises(ConflictError, match=r"ORDERS\.jwt was changed by another command"):
        store.save(mine)
    assert _files(store) == before
    with pytest.raises(ConflictError, match="operator MINE already exists"):
        store.save(new_operator("MINE"))
    assert _files(store) == before


@pytest.mark.parametrize("name", ["", " a", "a ", "a/b", "..", ".", "a\\b", "a\nb", "x" * 201])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    operator = new_operator("X")
    for make in (new_operator, operator.add_account, operator.account("SYSTEM").add_user):
        with pytest.raises(UsageError, match=r"invalid (operator|account|user) name"):
            make(name)


def test_accounts_are_signed_by_a_key_that_the_operator_trusts() -> None:
    operator = new_operator("X")
    account, signing_key = operator.add_account("A"), operator.signing_keys[0]
    assert account.issuer == operator.subject
    operator.nats["strict_signing_key_usage"] = True
    operator.sign()
    account.sign()
    assert account.issuer == signing_key.public
    operator.nats.pop("strict_signing_key_usage")
    assert [one.name for one in operator.remove_signing_key(signing_key.public)] == ["A"]
    account.sign()
    assert account.issuer == operator.subject


def test_a_damaged_store_names_the_file(store: NscStore) -> None:
    operator = _made(store)
    path = store.jwt_path(operator.account("ORDERS").user("app"))
    token = path.read_text()
    for text in ("", "a.b.c", token[:-4] + "AAAA"):
        path.write_text(text)
        with pytest.raises(NatsctlError, match=r"app\.jwt"):
            store.operator("MINE")
    path.write_text(token)
    key = store.key_path(operator.subject)
    key.write_text(generate_key("operator").seed)
    with pytest.raises(StorageError, match="belongs to another key"):
        store.operator("MINE")
    key.unlink()
    bare = store.operator("MINE")
    with pytest.raises(UsageError, match="needs the private key"):
        bare.sign()
