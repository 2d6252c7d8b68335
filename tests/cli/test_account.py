"""`natsctl account`."""

from __future__ import annotations

from natsctl.api.account import AccountInfo, AccountLimits, Tier
from natsctl.cli.account import render_account

SERVER = {"client_id": 5, "version": "2.10.29", "server_id": "N1", "server_name": "n1", "url": "nats://h:4222"}


def test_limits_reservations_and_tiers_are_shown() -> None:
    limits = AccountLimits(max_memory=0, max_storage=2**30, max_streams=5, max_consumers=-1, max_bytes_required=True)
    info = AccountInfo(
        storage=2**20, reserved_storage=2**29, streams=1, limits=limits, domain="hub", tiers={"R1": Tier(streams=1)}
    )
    text = render_account(info, SERVER, {"user": "ann", "account": "A"}).text()
    assert "JetStream Account Information for domain hub" in text
    assert "Storage: 1.0 MiB of 1.0 GiB (512 MiB reserved)" in text
    assert "Streams: 1 of 5" in text
    assert "Stream Requires Max Bytes Set: true" in text
    assert "Tier R1" in text
    assert "User: ann" in text


def test_permissions_are_listed_and_cannot_drive_the_terminal() -> None:
    user = {"permissions": {"publish": {"allow": ["a.>", "b\x1b[2J"]}, "subscribe": {"deny": ["c"]}}}
    text = render_account(None, SERVER, user).text()
    assert "Publish Allow: a.>" in text
    assert "Subscribe Deny: c" in text
    assert "\x1b" not in text
