"""What a server makes of a configuration, so that what it fills in by itself is no difference.

The rules are those by which natsctl's own server accepts configurations (api/config), applied in the same order. What
they do not know, such as a field of a newer server, is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from natsctl.api.catalogue import ApiError
from natsctl.api.config import (
    consumer_check,
    consumer_config,
    feature_config,
    stream_check,
    stream_config,
    stream_update,
)
from natsctl.api.config.consumer_config import ConsumerBounds
from natsctl.api.config.stream_draft import Draft, no_origin
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import NatsctlError
from natsctl.api.model import Model
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.asset import AssetKey

Config = dict[str, Any]
M = TypeVar("M", bound=Model)

MAX_DUPLICATE_WINDOW: Final = "max_duplicate_window"
MAX_REQUEST_BATCH: Final = "max_request_batch"
SERVER_MAX_ACK_PENDING: Final = "server_max_ack_pending"
"""The caps of a server's own configuration: no request returns them; `read_caps` finds them out where they matter."""


class ConfigRefusedError(NatsctlError):
    """The server would refuse the configuration."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context in which a configuration is checked: the other streams of the account, and the server's limits."""

    stream: Callable[[str], StreamConfig | None] = no_origin
    """The normalised configuration of a stream of the account."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """As in `World.limits`, with known limits of the server itself under the names of this module."""
    windows_for_sources: bool = False
    """Whether the server gives a duplicate window to streams with sources, as those before 2.14 do."""

    def bounds(self, replicas: int) -> ConsumerBounds:
        """Return the limits for consumers of a stream with so many replicas."""
        tier = ((self.limits.get("tiers") or {}).get(f"R{max(replicas, 1)}") or {}).get("limits") or self.limits
        return ConsumerBounds(
            int(tier.get("max_ack_pending") or 0),
            int(self.limits.get(MAX_REQUEST_BATCH) or 0),
            int(self.limits.get(SERVER_MAX_ACK_PENDING) or 0),
        )


ALONE = Surroundings()
"""An account without other streams and without limits."""


def settled(key: AssetKey, config: Mapping[str, Any], around: Surroundings = ALONE) -> Config:
    """Return the configuration as a server would keep it, unknown keys included. Raises ConfigRefusedError."""
    written, refusal = settled_anyway(key, config, around)
    if refusal is not None:
        raise ConfigRefusedError(refusal)
    return written


def settled_anyway(
    key: AssetKey, config: Mapping[str, Any], around: Surroundings = ALONE
) -> tuple[Config, ApiError | None]:
    """Return the same, also for configurations that current servers refuse, with the reason.

    Raises ConfigRefusedError for a value that is no configuration.
    """
    raw = without_nulls(config)
    if key.consumer:
        consumer, refusal = _consumer_anyway(key, raw, around)
        return _written(consumer, raw, ConsumerConfig), refusal
    stream, refusal = _stream_anyway(key, raw, around)
    return _written(stream, raw, StreamConfig), refusal


def settled_stream(key: AssetKey, raw: Config, around: Surroundings) -> StreamConfig:
    """Return the configuration of a stream as a server would keep it. Raises ConfigRefusedError."""
    model, refusal = _stream_anyway(key, raw, around)
    if refusal is not None:
        raise ConfigRefusedError(refusal)
    return model


def settled_consumer(key: AssetKey, raw: Config, around: Surroundings) -> ConsumerConfig:
    """Return the configuration of a consumer as a server would keep it. Raises ConfigRefusedError."""
    model, refusal = _consumer_anyway(key, raw, around)
    if refusal is not None:
        raise ConfigRefusedError(refusal)
    return model


def _stream_anyway(key: AssetKey, raw: Config, around: Surroundings) -> tuple[StreamConfig, ApiError | None]:
    """Return the stream as a server would keep it, and the first refusal; later checks still run."""
    model = _model(raw | {"name": key.stream}, StreamConfig)
    window_ns = int(around.limits.get(MAX_DUPLICATE_WINDOW) or 0)
    draft = Draft(config=model, max_window_ns=window_ns, origin=around.stream)
    refusals = [check(draft) for check in stream_config.CHECKS]
    if around.windows_for_sources and model.sources and not raw.get("duplicate_window"):
        model.duplicate_window = _default_window_ns(model, window_ns)
    if model.sealed:
        stream_update.seal(model)  # as an update does that seals a stream
    return model, next((refusal for refusal in refusals if refusal is not None), None)


def _consumer_anyway(key: AssetKey, raw: Config, around: Surroundings) -> tuple[ConsumerConfig, ApiError | None]:
    named = {"name": key.consumer} if raw.get("durable_name") or raw.get("name") else {"durable_name": key.consumer}
    model = _model(raw | {"name": key.consumer} | named, ConsumerConfig)
    stream = around.stream(key.stream) or StreamConfig(name=key.stream, num_replicas=1)
    bounds = around.bounds(stream.num_replicas)
    refusal = consumer_config.normalise(model, stream, bounds) or consumer_check.check(model, stream, bounds)
    consumer_config.default_threshold(model, consumer_config.is_durable(model))
    return model, refusal


def _default_window_ns(model: StreamConfig, most_ns: int) -> int:
    """Return the duplicate window of a stream that gives none."""
    return min(ns for ns in (stream_check.DEFAULT_DUPLICATE_WINDOW_NS, most_ns, model.max_age) if ns > 0)


def kept(key: AssetKey, config: Mapping[str, Any]) -> Config:
    """Return a live configuration in normalised form, defaults that a server leaves out included."""
    raw = without_nulls(config)
    try:
        if key.consumer:
            consumer = _model({"name": key.consumer} | raw, ConsumerConfig)
            consumer_config.raise_to_least(consumer, pedantic=False)  # servers before 2.12 keep what is below zero
            return _written(consumer, raw, ConsumerConfig)
        stream = _model(raw, StreamConfig)
    except ConfigRefusedError:
        return raw  # of a server so new that a field has another type
    draft = Draft(config=stream)
    for correct in (stream_check.settle_replicas, stream_check.settle_limits, feature_config.check_persistence):
        correct(draft)
    return _written(stream, raw, StreamConfig)


def without_nulls(config: Mapping[str, Any]) -> Config:
    """Return the configuration without null fields, which request nothing."""
    return {key: _value(value) for key, value in config.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_nulls(value)
    return [_value(item) for item in value] if isinstance(value, list) else value


def _model(raw: Config, kind: type[M]) -> M:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as failure:
        raise ConfigRefusedError(ApiError(code=400, description=str(failure))) from failure


def _written(model: Model, raw: Config, kind: type[Model]) -> Config:
    """Return the fields of a model, and those of `raw` that it does not know."""
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
