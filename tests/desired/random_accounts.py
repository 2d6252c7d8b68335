"""Random accounts whose configurations servers accept: streams with every feature, buckets, consumers of all kinds.

Features are drawn one by one, and each is kept if the rules of servers still accept the whole.
"""

from collections.abc import Callable, Iterable, Mapping
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
tokens = st.text("abcxyz019", min_size=1, max_size=4)
times = st.sampled_from(["2024-01-01T00:00:00Z", "2023-06-30T23:59:59.123456789Z", "2020-02-29T12:00:00+02:00"])
yes = st.just(True)


def _origin(name: str) -> st.SearchStrategy[Config]:
    transform = st.fixed_dictionaries({"src": st.just("s.>"), "dest": st.sampled_from(["t.>", "", "u.>"])})
    extras = st.one_of(
        st.just({}),
        st.integers(1, 100).map(lambda seq: {"opt_start_seq": seq}),
        times.map(lambda at: {"opt_start_time": at}),
        st.just({"filter_subject": "s.x.>"}),
        transform.map(lambda one: {"subject_transforms": [one]}),
        st.just({"external": {"api": "$JS.hub.API", "deliver": ""}}),
        st.just({"external": {"api": "OTHER.API", "deliver": "other.deliver"}}),
    )
    return extras.map(lambda extra: {"name": name, **extra})


def _stream_features(index: int, origins: list[str]) -> dict[str, st.SearchStrategy[Any]]:
    names = st.sampled_from([*origins, "ELSEWHERE"])
    subject = f"s{index}"
    return {
        "subjects": st.lists(
            st.sampled_from([f"{subject}.a.>", f"{subject}.b.*", f"{subject}.c", f"{subject}.d.*.e"]),
            min_size=1,
            unique=True,
        ),
        "mirror": names.flatmap(_origin),
        "sources": st.lists(names.flatmap(_origin), min_size=1, max_size=3, unique_by=lambda one: one["name"]),
        "description": texts,
        "retention": st.sampled_from(["interest", "workqueue"]),
        "max_consumers": st.integers(8, 100),
        "max_msgs": small,
        "max_bytes": sizes,
        "max_age": durations,
        "max_msgs_per_subject": small,
        "max_msg_size": st.integers(1, 2**30),
        "discard": st.just("new"),
        "storage": st.just("memory"),
        "no_ack": yes,
        "duplicate_window": durations.map(lambda ns: min(ns, 3600 * SECOND)),
        "placement": st.sampled_from([{"cluster": "here"}, {"tags": ["az:1", "ssd"]}]),
        "compression": st.just("s2"),
        "first_seq": st.integers(1, 2**40),
        "subject_transform": st.just({"src": f"{subject}.c", "dest": f"{subject}.moved"}),
        "republish": st.sampled_from(
            [
                {"src": f"{subject}.>", "dest": f"again.{subject}.>"},
                {"src": ">", "dest": f"r{index}.>", "headers_only": True},
            ]
        ),
        "allow_direct": yes,
        "mirror_direct": yes,
        "discard_new_per_subject": yes,
        "deny_delete": yes,
        "deny_purge": yes,
        "allow_rollup_hdrs": yes,
        "consumer_limits": st.fixed_dictionaries(
            {}, optional={"inactive_threshold": durations, "max_ack_pending": st.integers(1500, 3000)}
        ),
        "allow_msg_ttl": yes,
        "subject_delete_marker_ttl": st.integers(1, 1000).map(lambda seconds: seconds * SECOND),
        "allow_msg_counter": yes,
        "allow_atomic": yes,
        "allow_msg_schedules": yes,
        "persist_mode": st.just("async"),
        "allow_batched": yes,
        "metadata": metadata,
    }


def _consumer_features(subjects: list[str], index: int) -> dict[str, st.SearchStrategy[Any]]:
    some = st.sampled_from(subjects or ["s0.x"])
    return {
        "deliver_subject": st.just(f"deliver.d{index}"),
        "deliver_group": tokens,
        "ack_policy": st.sampled_from(["explicit", "all"]),
        "description": texts,
        "deliver_policy": st.sampled_from(["new", "last"]),
        "ack_wait": durations,
        "max_deliver": st.integers(3, 100),
        "backoff": st.lists(durations, min_size=1, max_size=3),
        "filter_subject": some,
        "filter_subjects": st.lists(some, min_size=1, max_size=3, unique=True),
        "replay_policy": st.just("original"),
        "rate_limit_bps": st.integers(1, 2**40),
        "sample_freq": st.sampled_from(["100", "50%", "0%", "7"]),
        "max_waiting": small,
        "max_ack_pending": st.one_of(st.just(-1), st.integers(1, 1500)),
        "idle_heartbeat": durations,
        "flow_control": yes,
        "headers_only": yes,
        "max_batch": small,
        "max_expires": durations,
        "max_bytes": st.one_of(sizes.filter(lambda size: size < 2**31), small),
        "inactive_threshold": durations,
        "num_replicas": st.just(1),
        "mem_storage": yes,
        "metadata": metadata,
        "pause_until": st.just("2099-01-01T00:00:00Z"),
        "priority": st.sampled_from(
            [
                {"priority_policy": "overflow", "priority_groups": ["jobs"]},
                {"priority_policy": "pinned_client", "priority_groups": ["a"], "priority_timeout": 5 * SECOND},
                {"priority_policy": "pinned_client", "priority_groups": ["on"]},
                {"priority_policy": "prioritized", "priority_groups": ["1e3"]},
            ]
        ),
        "start": st.one_of(
            st.integers(1, 1000).map(lambda seq: {"deliver_policy": "by_start_sequence", "opt_start_seq": seq}),
            times.map(lambda at: {"deliver_policy": "by_start_time", "opt_start_time": at}),
        ),
    }


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
