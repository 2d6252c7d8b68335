"""Random accounts whose configurations servers accept: streams with every feature, buckets, consumers of all kinds.

Features are drawn one by one, and each is kept if the rules of servers still accept the whole.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from hypothesis import strategies as st

from natsctl.api.locations import Location
from natsctl.api.stream import StreamConfig
from natsctl.client import asset_config
from natsctl.client.asset_config import OWNER, PROTECT
from natsctl.desired.assets import AssetKey, DesiredAsset
from natsctl.desired.documents.rules import check_rules
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.server_defaults import ConfigRefusedError, ServerContext, normalised, normalised_stream

Config = dict[str, Any]
Account = dict[AssetKey, Config]
SECOND = 1_000_000_000
NAMES = (
    "ORDERS", "on", "null", "1e3", "0x10", "2024-01-01", "a-b_c", "Größe", "~", "no", "12:30", "it's", "x#y", "$X",
    "?",
)  # fmt: skip

durations = st.one_of(
    st.sampled_from([100_000_000, SECOND, 90 * SECOND, 3600 * SECOND, 26 * 3600 * SECOND, 365 * 86400 * SECOND]),
    st.integers(100_000_000, 2**50),
)
sizes = st.one_of(st.sampled_from([1024, 10 * 2**30, 512 * 2**20, 1000]), st.integers(1, 2**40))
small = st.integers(1, 5000)
texts = st.one_of(
    st.sampled_from(
        ["on", "1e3", "${HOME}", "$${X:-y}", "a: b #c", "- x", "two\nlines\n", " edges ", "\ttab", "é\u2028", "="]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
)
metadata = st.dictionaries(texts.filter(lambda key: not key.startswith(("_nats.", "natsctl."))), texts, max_size=3)
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "duration": durations,
    "window": durations.map(lambda ns: min(ns, 3600 * SECOND)),
    "seconds": st.integers(1, 1000).map(lambda seconds: seconds * SECOND),
    "backoff": st.lists(durations, min_size=1, max_size=3),
    "size": sizes,
    "small": small,
    "text": texts,
    "metadata": metadata,
    "limits": st.fixed_dictionaries(
        {}, optional={"inactive_threshold": durations, "max_ack_pending": st.integers(1500, 3000)}
    ),
}


def _features(kind: str, own: str) -> dict[str, st.SearchStrategy[Any]]:
    """The table of this kind in random_accounts.json: lists have the values themselves, names are strategies."""
    table = json.loads(Template(Path(__file__).with_suffix(".json").read_text()).substitute(own=own))[kind]
    return {name: STRATEGIES[of] if isinstance(of, str) else st.sampled_from(of) for name, of in table.items()}


def _origin(name: str) -> st.SearchStrategy[Config]:
    return st.one_of(*_features("origin", "").values()).map(lambda extra: {"name": name, **extra})


def _stream_features(index: int, origins: list[str]) -> dict[str, st.SearchStrategy[Any]]:
    names, own = st.sampled_from([*origins, "ELSEWHERE"]), f"s{index}"
    subjects = [f"{own}.a.>", f"{own}.b.*", f"{own}.c", f"{own}.d.*.e"]
    return {
        **_features("stream", own),
        "subjects": st.lists(st.sampled_from(subjects), min_size=1, unique=True),
        "mirror": names.flatmap(_origin),
        "sources": st.lists(names.flatmap(_origin), min_size=1, max_size=3, unique_by=lambda one: one["name"]),
    }


def _consumer_features(subjects: list[str], index: int) -> dict[str, st.SearchStrategy[Any]]:
    some = st.sampled_from(subjects or ["s0.x"])
    filters = st.lists(some, min_size=1, max_size=3, unique=True)
    return {**_features("consumer", f"d{index}"), "filter_subject": some, "filter_subjects": filters}


_GROUPS = ("priority", "start")


def _kept(base: Config, chosen: Iterable[tuple[str, Any]], settle: Callable[[Config], Config]) -> Config:
    """The features, in their order, that servers accept together, as these will write them."""
    config = base
    for name, value in chosen:
        wanted = {**config, **(value if name in _GROUPS else {name: value})}
        try:
            settle(wanted)
        except ConfigRefusedError:
            continue
        config = wanted
    try:
        settle(settle(config))
    except ConfigRefusedError:  # what the server fills in excludes another feature
        return _kept(base, [one for one in chosen if one[0] != "subject_delete_marker_ttl"], settle)
    return settle(config)


def _chosen(draw: Any, features: Mapping[str, st.SearchStrategy[Any]], most: int) -> list[tuple[str, Any]]:
    names = draw(st.lists(st.sampled_from(sorted(features)), max_size=most, unique=True))
    return [(name, draw(features[name])) for name in names]


@st.composite
def accounts(draw: Any, least_streams: int = 0) -> Account:
    """So many streams or more, and buckets, all with consumers; configurations as a server writes them."""
    account: Account = {}
    known: dict[str, StreamConfig] = {}
    around = ServerContext(known.get)
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=least_streams, max_size=4, unique=True))
    for index, name in enumerate(chosen):
        features = _chosen(draw, _stream_features(index, sorted(known)), 12)
        base = {"name": name, "subjects": [f"s{index}.x"]} if draw(st.booleans()) else {"name": name}
        if any(word == "mirror" for word, _ in features):
            base = {"name": name}
        else:
            features = [one for one in features if one[0] != "mirror_direct"]
        _add(
            account,
            known,
            AssetKey(name),
            _kept(base, features, lambda one, key=AssetKey(name): normalised(key, one, around)),
        )
    for bucket in draw(st.lists(st.sampled_from(("CFG", "on", "1", "B-2")), max_size=2, unique=True)):
        config = draw(_buckets(bucket))
        _add(account, known, AssetKey(config["name"]), normalised(AssetKey(config["name"]), config, around))
    for name in list(known):
        for index, consumer in enumerate(draw(st.lists(st.sampled_from(NAMES[:6]), max_size=3, unique=True))):
            key = AssetKey(name, consumer)
            base: Config = {"name": consumer, **({"durable_name": consumer} if draw(st.integers(0, 4)) else {})}
            if known[name].retention == "workqueue":
                base["ack_policy"] = "explicit"
            chosen = _chosen(draw, _consumer_features(account[AssetKey(name)].get("subjects") or [], index), 8)
            account[key] = _kept(base, chosen, lambda one, key=key: normalised(key, one, around))
    return _judged(account)


def _add(account: Account, known: dict[str, StreamConfig], key: AssetKey, config: Config) -> None:
    account[key] = config
    known[key.stream] = normalised_stream(key, config, ServerContext(known.get))


@st.composite
def _buckets(draw: Any, bucket: str) -> Config:
    """The stream of a bucket, now and then changed so that it is none that its own words could say."""
    is_kv = draw(st.booleans())
    config: Config = asset_config.new_kv_bucket(bucket) if is_kv else asset_config.new_object_bucket(bucket)
    if draw(st.booleans()):
        asset_config.set_ttl(config, draw(durations))
    if is_kv:
        asset_config.set_history(config, draw(st.integers(1, 64)))
        if draw(st.booleans()):
            asset_config.set_marker_ttl(config, draw(st.integers(1, 1000)) * SECOND)
        origin = draw(st.sampled_from([None, "mirror", "source"]))
        if origin == "mirror" and "subject_delete_marker_ttl" not in config:
            asset_config.set_mirror(config, {"name": "OTHER"})
            config.pop("mirror_direct") if draw(st.booleans()) else None
        elif origin == "source":
            asset_config.add_sources(config, [{"name": "OTHER"}])
    odd = st.sampled_from(
        [{}, {}, {"compression": "s2"}, {"storage": "memory"}, {"description": "on"}, {"max_bytes": 2**30}]
    )
    return config | draw(odd) | draw(st.sampled_from([{}, {}, {"discard": "old"}, {"max_msgs": 7}]))


def _judged(account: Account) -> Account:
    """The account without what servers refuse beside its other assets."""
    while True:
        wanted = {key: DesiredAsset(key, key.kind, config, Location("account")) for key, config in account.items()}
        wrong = {one.key for one in check_rules(wanted) if not one.warning}
        if not wrong:
            return account
        account = {key: config for key, config in account.items() if key not in wrong and key.origin not in wrong}


def world_of(account: Account, *, owner: str = "default", protected: frozenset[AssetKey] = frozenset()) -> LiveState:
    """The account as a server shows it that natsctl has applied it to."""
    assets = {}
    for key, config in account.items():
        labels = {OWNER: owner, "_nats.ver": "2.15.2", **({PROTECT: "true"} if key in protected else {})}
        shown = {**config, "metadata": {**(config.get("metadata") or {}), **labels}}
        info: Config = {"config": shown, "created": "2026-01-01T00:00:00Z", "state": {"messages": 7}}
        if key.consumer:
            info |= {"stream_name": key.stream, "name": key.consumer, "paused": "pause_until" in config}
        assets[key] = LiveAsset(key, info)
    return LiveState(assets, {"server_name": "one", "version": "2.15.2"})
