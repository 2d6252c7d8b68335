"""Users by nsc URL: where the store is found, and whose credentials are read."""

import json
from pathlib import Path

import pytest

from natsctl.api.errors import StorageError, UsageError
from natsctl.client.auth.nsc_profile import nsc_store, profile_of
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import EntityNotFoundError
from natsctl.client.settings import resolve_file


@pytest.fixture
def environment(store_of_nats: NscStore, tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_a_user_is_found_by_name_in_any_case_or_by_key(store_of_nats: NscStore, environment: dict[str, str]) -> None:
    operator = store_of_nats.operator("RECORDED")
    user = operator.account("ORDERS").user("app")
    for parts in (
        "RECORDED/ORDERS/app", "recorded/orders/APP", f"{operator.subject}/{user.account.subject}/{user.subject}",
        "RECORDED/ORDERS/app?names&key", "RECORDED/%4fRDERS/app",
    ):  # fmt: skip
        profile = profile_of(f"nsc://{parts}", environment)
        assert profile.credentials == user.credentials() and profile.services == ["nats://localhost:4222"]


def test_the_creds_file_of_nsc_is_read_and_renewed_when_the_user_changes(
    store_of_nats: NscStore, environment: dict[str, str]
) -> None:
    operator = store_of_nats.operator("RECORDED")
    user = operator.account("ORDERS").user("app")
    kept = store_of_nats.credentials_path(user)
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    assert profile_of("nsc://RECORDED/ORDERS/app", environment).credentials == "kept"
    user.nats["subs"] = 5
    user.sign()
    store_of_nats.save(operator)
    assert kept.read_text() == user.credentials() and kept.stat().st_mode & 0o777 == 0o600


def test_the_store_is_where_nsc_has_it(store_of_nats: NscStore, environment: dict[str, str], tmp_path: Path) -> None:
    other = {"HOME": str(tmp_path / "home"), "NKEYS_PATH": str(store_of_nats.keys)}
    config = tmp_path / "home" / ".config" / "nats" / "nsc" / "nsc.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"store_root": str(store_of_nats.stores), "operator": "RECORDED"}))
    expected = profile_of("nsc://RECORDED/ORDERS/app", environment)
    assert profile_of("nsc://RECORDED/ORDERS/app", other) == expected
    assert nsc_store({**other, "NSC_HOME": str(config.parent)}).stores == store_of_nats.stores
    query = f"store={store_of_nats.stores}&keystore={store_of_nats.keys}"
    assert profile_of(f"nsc://RECORDED/ORDERS/app?{query}", {"HOME": "/nonexistent"}) == expected
    config.write_text("{")
    with pytest.raises(StorageError, match=r"nsc\.json"):
        profile_of("nsc://RECORDED/ORDERS/app", other)


def test_what_is_not_there_is_named(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("nsc://", "nsc://RECORDED", "nsc://RECORDED/ORDERS", "nsc://RECORDED/ORDERS/", "nsc://a/b/c/d", "x"):
        with pytest.raises(UsageError, match="invalid nsc URL"):
            profile_of(url, environment)
    for parts, message in (
        ("NONE/ORDERS/app", "operator NONE not found"),
        ("RECORDED/ORDER/app", "account ORDER not found in operator RECORDED"),
        ("RECORDED/ORDERS/ap", "user ap not found in account ORDERS"),
    ):
        with pytest.raises(EntityNotFoundError, match=message):
            profile_of(f"nsc://{parts}", environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NKEYS_PATH", raising=False)
    assert "BEGIN NATS USER JWT" in resolve_file("nsc://RECORDED/ORDERS/app", "creds")
    with pytest.raises(UsageError, match=r"^creds: user ap not found"):
        resolve_file("nsc://RECORDED/ORDERS/ap", "creds")
