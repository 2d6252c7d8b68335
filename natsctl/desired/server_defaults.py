"""Configurations as a server keeps them: its defaults, the caps in its own configuration, and its features."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from natsctl.api import codec, consumer_config, endpoints, stream_config, stream_rules
from natsctl.api.catalogue import ApiError
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.consumer_config import ConsumerBounds
from natsctl.api.errors import ApiResponseError, NatsctlError, NotAuthorisedError
from natsctl.api.model import INT64_MAX, Model, Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.api.stream_rules import Draft, no_origin
from natsctl.api.units import parse_duration
from natsctl.client.manager import CONSUMER_LEVELS, STREAM_LEVELS, Manager, required_level_of
from natsctl.desired.assets import AssetKey, DesiredAsset, DocumentSet, Kind
from natsctl.desired.live import LiveState
from natsctl.desired.plan import Action, Plan

_NEED_ACKS: Final = ("ack_wait", "backoff", "max_deliver", "max_ack_pending", "sample_freq")
_NEED_PULL: Final = ("max_batch", "max_expires", "max_bytes")
FIELDS: Final = frozenset(
    (*_NEED_ACKS, *_NEED_PULL, "deliver_group", "discard", "compression", "duplicate_window", "max_msgs_per_subject")
)
"""The fields that `without_effect` may report."""


def without_effect(one: DesiredAsset, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield fields that a document sets and that have no effect in the whole `config` of its asset, with the reason.

    Combinations that servers refuse are left out.
    """
    asked = FIELDS & one.mentioned
    for names, reason in (_of_consumer if one.key.consumer else _of_stream)(one.key, config) if asked else ():
        if found := tuple(name for name in names if name in asked and _is_set(config.get(name))):
            verb = "has" if len(found) == 1 else "have"
            yield found, f"{', '.join(found)} {verb} no effect: {reason}"


def _is_set(value: Any) -> bool:
    return bool(value) and value not in (-1, "0", "0%", "none")


def _of_consumer(key: AssetKey, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    push = bool(config.get("deliver_subject"))
    if config.get("ack_policy") == "none":
        # A server refuses max_ack_pending of a push consumer without acks.
        yield tuple(name for name in _NEED_ACKS if name != "max_ack_pending" or not push), "ack_policy: none"
    elif config.get("backoff") and config.get("ack_wait") not in (None, 0, config["backoff"][0]):
        yield ("ack_wait",), "the first interval of backoff replaces it"
    if push:
        yield _NEED_PULL, "the consumer is pushed, not pulled"
    else:
        yield ("deliver_group",), "a pull consumer has no deliver_subject"


def _of_stream(key: AssetKey, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    most, per_subject = config.get("max_msgs"), config.get("max_msgs_per_subject")
    limited = any(_is_set(config.get(name)) for name in ("max_msgs", "max_bytes", "discard_new_per_subject"))
    if config.get("discard") == "new" and not limited and key.kind is Kind.STREAM:
        yield ("discard",), "neither max_msgs nor max_bytes is set, so the stream is never full"
    if config.get("storage") == "memory":
        yield ("compression",), "messages in memory are not compressed"
    if config.get("mirror"):
        yield ("duplicate_window",), "a mirror does not look for duplicates"
    if isinstance(most, int) and isinstance(per_subject, int) and 0 < most <= per_subject and key.kind is Kind.STREAM:
        yield ("max_msgs_per_subject",), f"max_msgs is {most:,}"


Config = dict[str, Any]
M = TypeVar("M", bound=Model)
T = TypeVar("T")

MAX_DUPLICATE_WINDOW: Final = "max_duplicate_window"
MAX_REQUEST_BATCH: Final = "max_request_batch"
SERVER_MAX_ACK_PENDING: Final = "server_max_ack_pending"
"""Limits in a server's configuration. No request returns them; `read_caps` finds the relevant ones."""


class ConfigRefusedError(NatsctlError):
    """A server would refuse the configuration, with this error of the API."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The streams of an account and its server's limits, used to normalise and check configurations."""

    stream: Callable[[str], StreamConfig | None] = no_origin
    """Return the normalised configuration of a stream of the account, or None if it does not exist."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """As in `LiveState.limits`, with the caps that are known under the names above."""
    windows_for_sources: bool = False
    """Whether the server gives a duplicate window to streams with sources, as those before 2.14 do."""

    def bounds(self, replicas: int) -> ConsumerBounds:
        tier = ((self.limits.get("tiers") or {}).get(f"R{max(replicas, 1)}") or {}).get("limits") or self.limits
        return ConsumerBounds(
            int(tier.get("max_ack_pending") or 0),
            int(self.limits.get(MAX_REQUEST_BATCH) or 0),
            int(self.limits.get(SERVER_MAX_ACK_PENDING) or 0),
        )


ALONE = ServerContext()
"""An account without other streams and without limits."""


def normalised(key: AssetKey, config: Mapping[str, Any], around: ServerContext = ALONE) -> Config:
    """Return the configuration as a server would keep it, unknown keys included. Raises ConfigRefusedError."""
    return _accepted(*normalised_leniently(key, config, around))


def _accepted(settled: T, refusal: ApiError | None) -> T:
    if refusal is not None:
        raise ConfigRefusedError(refusal)
    return settled


def normalised_leniently(
    key: AssetKey, config: Mapping[str, Any], around: ServerContext = ALONE
) -> tuple[Config, ApiError | None]:
    """Return the configuration as a server would keep it, and the error of a current server that refuses it, if any.

    Raises ConfigRefusedError for a field of the wrong type.
    """
    raw = without_nulls(config)
    if key.consumer:
        consumer, refusal = _consumer_leniently(key, raw, around)
        return _written(consumer, raw, ConsumerConfig), refusal
    stream, refusal = _stream_leniently(key, raw, around)
    return _written(stream, raw, StreamConfig), refusal


def normalised_stream(key: AssetKey, raw: Config, around: ServerContext) -> StreamConfig:
    """Return the configuration of a stream as a server would keep it. Raises ConfigRefusedError."""
    return _accepted(*_stream_leniently(key, raw, around))


def normalised_consumer(key: AssetKey, raw: Config, around: ServerContext) -> ConsumerConfig:
    """Return the configuration of a consumer as a server would keep it. Raises ConfigRefusedError."""
    return _accepted(*_consumer_leniently(key, raw, around))


def _stream_leniently(key: AssetKey, raw: Config, around: ServerContext) -> tuple[StreamConfig, ApiError | None]:
    """Return the stream as a server would keep it, and the first refusal; later checks still run."""
    model = _model(raw | {"name": key.stream}, StreamConfig)
    window_ns = int(around.limits.get(MAX_DUPLICATE_WINDOW) or 0)
    draft = Draft(config=model, max_window_ns=window_ns, origin=around.stream)
    refusals = [stream_config.refusal_of(check, draft) for check in stream_config.CHECKS]
    if around.windows_for_sources and model.sources and not raw.get("duplicate_window"):
        model.duplicate_window = _default_window_ns(model, window_ns)
    if model.sealed:
        stream_config.seal(model)  # as an update does that seals a stream
    return model, next((refusal for refusal in refusals if refusal is not None), None)


def _consumer_leniently(key: AssetKey, raw: Config, around: ServerContext) -> tuple[ConsumerConfig, ApiError | None]:
    """Return the consumer as a server would keep it, and the first refusal."""
    named = {"name": key.consumer} if raw.get("durable_name") or raw.get("name") else {"durable_name": key.consumer}
    model = _model(raw | {"name": key.consumer} | named, ConsumerConfig)
    stream = around.stream(key.stream) or StreamConfig(name=key.stream, num_replicas=1)
    bounds = around.bounds(stream.num_replicas)
    refusal = consumer_config.normalise(model, stream, bounds) or consumer_config.check(model, stream, bounds)
    consumer_config.default_threshold(model, consumer_config.is_durable(model))
    return model, refusal


def _default_window_ns(model: StreamConfig, most_ns: int) -> int:
    return min(ns for ns in (stream_rules.DEFAULT_DUPLICATE_WINDOW_NS, most_ns, model.max_age) if ns > 0)


def kept(key: AssetKey, config: Mapping[str, Any]) -> Config:
    """Return a live configuration with the defaults that its server leaves out."""
    raw = without_nulls(config)
    try:
        if key.consumer:
            consumer = _model({"name": key.consumer} | raw, ConsumerConfig)
            consumer_config.raise_to_minimum(consumer, pedantic=False)  # servers before 2.12 keep negative values
            return _written(consumer, raw, ConsumerConfig)
        stream = _model(raw, StreamConfig)
    except ConfigRefusedError:
        return raw  # of a newer server
    draft = Draft(config=stream)
    for correct in (stream_rules.settle_replicas, stream_rules.settle_limits, stream_rules.check_persistence):
        correct(draft)
    return _written(stream, raw, StreamConfig)


def without_nulls(config: Mapping[str, Any]) -> Config:
    """Return the configuration without fields that are null, at any depth: they ask for the default."""
    return {key: _value(value) for key, value in config.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return without_nulls(value)
    return [_value(item) for item in value] if isinstance(value, list) else value


def _model(raw: Config, kind: type[M]) -> M:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as failure:
        raise ConfigRefusedError(ApiError(code=400, description=str(failure))) from failure


def _written(model: Model, raw: Config, kind: type[Model]) -> Config:
    """Return the fields of a model and the unknown fields of `raw`."""
    written: Config = msgspec.to_builtins(model)
    _keep_unknown(written, raw, shape_of(kind))
    return written


def _keep_unknown(written: Config, raw: Config, shape: Shape) -> None:
    for key, value in raw.items():
        known = shape.fields.get(key)
        if known is None:
            written[key] = value
        elif known.shape.kind == "struct" and isinstance(written.get(key), dict):
            _keep_unknown(written[key], value, known.shape)
        elif known.shape.kind == "list" and known.shape.elements().kind == "struct":
            for ours, theirs in zip(written.get(key) or (), value, strict=False):
                _keep_unknown(ours, theirs, known.shape.elements())


SINCE: Final[dict[str, tuple[int, int]]] = {
    "metadata": (2, 10),
    "compression": (2, 10),
    "first_seq": (2, 10),
    "subject_transform": (2, 10),
    "consumer_limits": (2, 10),
    "filter_subjects": (2, 10),
}
"""The version that a field came with, for fields older than API levels. Earlier servers drop them silently."""
_EMPTY: Final[tuple[Any, ...]] = (None, False, 0, "", "none", [], {})


class ServerFeatures(NamedTuple):
    """The features of a server; an unknown one is assumed to have all."""

    version: tuple[int, int] = (99, 0)
    level: int | None = None
    shown: str = ""

    @classmethod
    def of(cls, server: Mapping[str, Any]) -> ServerFeatures:
        shown = str(server.get("version") or "")
        match = re.match(r"(\d+)\.(\d+)\.", shown)
        version = (int(match[1]), int(match[2])) if match else (99, 0)
        level = server.get("api_level")
        return cls(version, int(level) if level is not None else 0 if version < (2, 11) else None, shown)

    @property
    def keeps_metadata(self) -> bool:
        return self.version >= SINCE["metadata"]

    @property
    def windows_for_sources(self) -> bool:
        return self.version < (2, 14)

    def lacking(self, config: Mapping[str, Any], consumer: bool) -> str:
        """Return why a configuration would not be kept whole, "" if it would."""
        for name, since in SINCE.items():
            if self.version < since and config.get(name) not in _EMPTY:
                return f"{name} needs nats-server {since[0]}.{since[1]}, this is {self.shown}"
        needed = required_level_of(config, CONSUMER_LEVELS if consumer else STREAM_LEVELS)
        if self.level is not None and needed.level > self.level:
            return f"{needed.field} needs JetStream API level {needed.level}, the server {self.shown} has {self.level}"
        return ""


CAPPED: Final = {
    "duplicate_window": MAX_DUPLICATE_WINDOW,
    "max_batch": MAX_REQUEST_BATCH,
    "max_ack_pending": SERVER_MAX_ACK_PENDING,
}
"""Fields that a server sets to a cap if a request omits them, each with the name of the cap."""
ABOVE_ANY_CAP: Final = INT64_MAX // 4
"""A value that every cap refuses, also as nanoseconds."""
_WINDOW: Final = re.compile(r"larger then server limit of (\S+)")
_BATCH: Final = re.compile(r"max request batch exceeds server limit of (\d+)")
_PENDING: Final = re.compile(r"max ack pending exceeds system limit of (\d+)")


def capped_differences(wanted: DocumentSet, plan: Plan) -> dict[str, AssetKey]:
    """Return fields without a value in documents that may differ because of a cap; each with one asset."""
    found: dict[str, AssetKey] = {}
    for change in plan.changes:
        one = wanted.wanted.get(change.key)
        if one is None or change.action in (Action.CREATE, Action.DELETE):
            continue
        for difference in change.differences:
            if difference.path in CAPPED and not one.config.get(difference.path):
                found.setdefault(difference.path, change.key)
    return found


async def read_caps(manager: Manager, fields: Mapping[str, AssetKey], live_state: LiveState) -> dict[str, int]:
    """Return the server's caps for these fields, as members of `LiveState.limits`."""
    caps: dict[str, int] = {}
    for name, key in fields.items():
        if name == "duplicate_window":
            found = await _window_ns(manager)
        else:
            pattern = _BATCH if name == "max_batch" else _PENDING
            text = await _refused_consumer(manager, key.stream, {name: ABOVE_ANY_CAP})
            match = pattern.search(text)
            found = int(match[1]) if match else 0
            limits = (live_state.assets[key.origin].config if key.origin in live_state.assets else {}).get(
                "consumer_limits"
            )
            if name == "max_ack_pending" and found == (limits or {}).get("max_ack_pending"):
                found = 0  # the stream's own
        if found:
            caps[CAPPED[name]] = found
    return caps


async def _window_ns(manager: Manager) -> int:
    name = _unused("NATSCTL")
    config = {"name": name, "subjects": [f"natsctl.{name}"], "duplicate_window": ABOVE_ANY_CAP}
    match = _WINDOW.search(await _refusal(manager, endpoints.STREAM_UPDATE, (name,), config))
    return parse_duration(match[1]) if match else 0


async def _refused_consumer(manager: Manager, stream: str, fields: dict[str, Any]) -> str:
    name = _unused("natsctl")
    # No version makes this consumer: its start sequence is missing, and newer servers also check the action.
    start = {"deliver_policy": "by_start_sequence", "ack_policy": "explicit"}
    body = {"stream_name": stream, "config": {"durable_name": name, **start, **fields}, "action": "update"}
    return await _refusal(manager, endpoints.CONSUMER_CREATE, (stream, name), body)


def _unused(prefix: str) -> str:
    import secrets  # slow to import, and most plans need no caps

    return f"{prefix}_{secrets.token_hex(8)}"


async def _refusal(manager: Manager, endpoint: endpoints.ApiEndpoint, tokens: tuple[str, ...], body: Any) -> str:
    """Return the server's error text for a request, or "" if permissions forbid the request."""
    subject = endpoint.subject(*tokens, prefix=manager.connection.target.api_prefix)
    try:
        await manager.requests.exchange(subject, codec.encode(body))
    except ApiResponseError as failure:
        return failure.text
    except NotAuthorisedError:
        return ""
    return ""
