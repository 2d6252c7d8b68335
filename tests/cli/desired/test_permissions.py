"""Documents by who may do only a part: what is not needed for their own streams is not asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import Kind, ServerProcess, reference_binary

CONFIGS = Path(__file__).parents[3] / "examples" / "configs"
ORDERS = str(CONFIGS / "orders.yaml")
PASSWORDS = {"admin": "change-me-0", "orders-admin": "change-me-1", "viewer": "change-me-2", "shop": "change-me-3"}
KINDS = [
    "natsctl",
    pytest.param("reference", marks=pytest.mark.skipif(reference_binary() is None, reason="nats-server is absent")),
]
As = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=KINDS)
def by(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[As]:
    """Runs a command as a user of the example of permissions."""
    kind: Kind = request.param
    config = tmp_path / "nats.conf"
    config.write_text((CONFIGS / "permissions.conf").read_text().replace("store_dir: /data/jetstream,", ""))
    with ServerProcess(tmp_path / "server", kind, "-c", str(config)) as server:

        def run(user: str, *words: str) -> tuple[int, str, str]:
            capsys.readouterr()
            code = run_main(["-s", server.url, "--user", user, "--password", PASSWORDS[user], *words])
            return (code, *capsys.readouterr())

        yield run


def test_each_does_what_it_may(by: As) -> None:
    assert by("viewer", "plan", "-f", ORDERS)[0] == 10
    refused = by("viewer", "apply", "-f", ORDERS)
    assert (refused[0], "$JS.API.STREAM.CREATE.ORDERS" in refused[2]) == (6, True)
    made = by("orders-admin", "apply", "-f", ORDERS)
    assert made[0] == 0, made[2]
    assert by("orders-admin", "plan", "-f", ORDERS)[0] == 0
    code, exported, told = by("viewer", "export")
    assert (code, "name: DISPATCH" in exported) == (0, True), told
    assert by("viewer", "plan", "-f", ORDERS, "--prune")[0] == 0
    assert by("shop", "plan", "-f", ORDERS)[0] == 6
    assert by("orders-admin", "destroy", "-f", ORDERS, "--yes")[0] == 0
