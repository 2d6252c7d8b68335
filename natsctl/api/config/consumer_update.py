"""Updates of existing consumers: the fields that may change.

A refused change is 10012 with the text of the first field that may not change, a deliver subject in use is 10013.
Source: docs/compatibility.md#consumer-updates.
"""

from __future__ import annotations

from typing import Final

from natsctl.api.catalogue import ApiError, error
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.err_codes import ErrCode
from natsctl.api.times import parse_time

_FIXED: Final = (
    ("deliver_policy", "deliver policy can not be updated"),
    ("mem_storage", "storage type can not be updated"),
    ("direct", "direct can not be updated"),
    ("sourcing", "sourcing can not be updated"),
    ("opt_start_seq", "start sequence can not be updated"),
    ("opt_start_time", "start time can not be updated"),
    ("ack_policy", "ack policy can not be updated"),
    ("replay_policy", "replay policy can not be updated"),
    ("idle_heartbeat", "heart beats can not be updated"),
    ("flow_control", "flow control can not be updated"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, bound: bool) -> ApiError | None:
    """Return why `old` cannot become `new`, or None; `bound` says that the old deliver subject has a subscriber."""
    for name, text in _FIXED:
        if _value(old, name) != _value(new, name):
            return error(ErrCode.CONSUMER_CREATE, err=text)
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            return error(ErrCode.CONSUMER_CREATE, err="can not update pull consumer to push based")
        if not new.deliver_subject:
            return error(ErrCode.CONSUMER_CREATE, err="can not update push consumer to pull based")
        if bound:
            return error(ErrCode.CONSUMER_NAME_EXIST)
    if old.max_waiting != new.max_waiting:
        return error(ErrCode.CONSUMER_CREATE, err="max waiting can not be updated")
    return None


def _value(config: ConsumerConfig, name: str) -> object:
    """Return a field as it is compared: times by their instant, an invalid one as it is."""
    value = getattr(config, name)
    if name != "opt_start_time" or value is None:
        return value
    try:
        return parse_time(value)
    except ValueError:
        return value
