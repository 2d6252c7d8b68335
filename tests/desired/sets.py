"""Document sets and accounts for tests of plans, in few words."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from natsctl.api.locations import Location
from natsctl.desired.assets import AssetKey, DesiredAsset, DocumentSet, with_labels
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.plan import Change, Plan
from natsctl.desired.server_defaults import normalised

Config = dict[str, Any]
SECOND = 1_000_000_000
NOW_NS = 1_800_000_000 * SECOND
SERVER = {"server_name": "one", "version": "2.15.2", "api_level": 5}


def key_of(name: str) -> AssetKey:
    stream, _, consumer = name.partition(" > ")
    return AssetKey(stream, consumer)


def documents(assets: dict[str, Config], owner: str = "shop", protect: tuple[str, ...] = ()) -> DocumentSet:
    """What documents ask for; a field at None is one at null."""
    wanted = {}
    for name, given in assets.items():
        key = key_of(name)
        config = {field: value for field, value in given.items() if value is not None}
        nulls = frozenset(given.keys() - config.keys())
        wanted[key] = DesiredAsset(key, key.kind, config, Location("f.yaml", 1), protect=name in protect, nulls=nulls)
    return DocumentSet(wanted, owner)


def account(
    assets: dict[str, Config],
    owner: str = "shop",
    protect: tuple[str, ...] = (),
    states: dict[str, Config] | None = None,
    **rest: Any,
) -> LiveState:
    """An account that has assets as a server keeps them, labelled; owner "" labels nothing."""
    live = {}
    for name, config in assets.items():
        key = key_of(name)
        kept = normalised(key, config)
        if owner:
            kept = with_labels(kept, owner, name in protect, owner)
        state = {"messages": 0, "bytes": 0, "consumer_count": 1, **(states or {}).get(name, {})}
        live[key] = LiveAsset(key, {"name": key.consumer or key.stream, "config": kept, "state": state})
    return LiveState(live, rest.pop("server", SERVER), now_ns=NOW_NS, **rest)


def change_of(plan: Plan, name: str) -> Change:
    (found,) = [change for change in plan.changes if change.key == key_of(name)]
    return found


def actions(plan: Plan) -> list[tuple[str, str]]:
    return [
        (str(change.action), f"{change.stream} > {change.consumer}" if change.consumer else change.stream)
        for change in plan.changes
    ]


def paths(change: Change) -> list[str]:
    return [one.path for one in change.differences]


def write_cases(path: Path, cases: dict[str, Config]) -> None:
    """Write cases with what has come of them, texts of several lines as such."""

    class Dumper(yaml.SafeDumper):
        def represent_str(self, data: str) -> yaml.Node:
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Dumper.add_representer(str, Dumper.represent_str)
    styles = {"width": 120, "sort_keys": False, "allow_unicode": True, "default_flow_style": None}
    path.write_text(yaml.dump(msgspec.to_builtins(cases), Dumper=Dumper, **styles))
