"""Every example document, applied as it stands: what it says is there then, and nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CONFIGS, DOCUMENTS = ROOT / "examples" / "configs", ROOT / "examples" / "documents"
EXAMPLES: dict[Path, list[str]] = {
    CONFIGS / "orders.yaml": ["ORDERS", "ORDERS > DISPATCH", "ORDERS > MONITOR", "ORDERS > NEW"],
    DOCUMENTS / "buckets.yaml": ["KV_SESSIONS", "KV_SETTINGS", "OBJ_PICTURES"],
    DOCUMENTS / "controller.yaml": ["KV_PAYMENT_LIMITS", "PAYMENTS", "PAYMENTS > LEDGER"],
    DOCUMENTS / "mirrors.yaml": ["ARCHIVE", "ARCHIVE > AUDIT", "RETURNS", "SALES", "SALES_COPY"],
    DOCUMENTS / "shop" / "shop.yaml": ["SALES_test", "SALES_test > BILLING", "STOCK_test"],
}
Run = Callable[..., Any]


def live_state(natsctl: Run) -> dict[str, dict[str, Any]]:
    """The configuration of every stream and consumer, without what servers and plans write into metadata."""
    found = {}
    for stream in natsctl("str", "ls", "-a", "-j", "--details").json:
        found[stream["config"]["name"]] = stream["config"]
        for consumer in natsctl("con", "ls", stream["config"]["name"], "-j", "--details").json:
            found[f"{stream['config']['name']} > {consumer['name']}"] = consumer["config"]
    return {name: {key: value for key, value in config.items() if key != "metadata"} for name, config in found.items()}


def test_every_example_is_here() -> None:
    assert set(DOCUMENTS.glob("*.yaml")) | set(DOCUMENTS.glob("*/*.yaml")) | {CONFIGS / "orders.yaml"} == set(EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_applied_found_done_and_destroyed(natsctl: Run, path: Path) -> None:
    words = ("-f", str(path), "--var", "STAGE=test")
    assert natsctl("validate", *words).code == 0
    assert natsctl("plan", *words).code == 10
    done = natsctl("apply", *words)
    assert done.code == 0, done.out + done.err
    assert sorted(live_state(natsctl)) == EXAMPLES[path]
    assert natsctl("diff", *words).code == 0
    assert natsctl("apply", *words, "-j").json["results"] == []
    protected = path.name == "mirrors.yaml"
    assert natsctl("destroy", *words, "--yes").code == (4 if protected else 0)
    assert sorted(live_state(natsctl)) == (EXAMPLES[path] if protected else [])


def test_orders_are_what_the_files_of_single_assets_make(natsctl: Run) -> None:
    assert natsctl("apply", "-f", str(CONFIGS / "orders.yaml")).code == 0
    applied = live_state(natsctl)
    natsctl("str", "rm", "ORDERS", "-f")
    assert natsctl("str", "add", "--config", str(CONFIGS / "orders.json")).code == 0
    for file in ("orders_new.json", "orders_dispatch.json", "monitor.json"):
        assert natsctl("con", "add", "ORDERS", "--config", str(CONFIGS / file)).code == 0
    made = live_state(natsctl)
    assert made == applied
    assert natsctl("diff", "-f", str(CONFIGS / "orders.yaml")).code == 0
