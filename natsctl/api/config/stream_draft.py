"""A stream configuration on its way to being accepted: what the checks read, correct in place, and refuse with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import StreamConfig


def no_origin(name: str) -> StreamConfig | None:
    """Return the configuration of another stream of the account: here there is none."""
    return None


def no_limits(config: StreamConfig) -> ApiError | None:
    """Return why the account refuses the size of a stream: here it never does."""
    return None


class Draft(msgspec.Struct, kw_only=True):
    """One configuration and what it is held against; checks change `config` in place."""

    config: StreamConfig
    pedantic: bool = False
    """Refuse what would have to be corrected."""
    max_window_ns: int = 0
    """Largest duplicate window of the server; 0: no limit."""
    origin: Callable[[str], StreamConfig | None] = no_origin
    refuse_bytes: Callable[[StreamConfig], ApiError | None] = no_limits


Check: TypeAlias = "Callable[[Draft], ApiError | None]"


def invalid(text: str) -> ApiError:
    """Return the error of a configuration that is refused."""
    return error(ErrCode.STREAM_INVALID_CONFIG, err=text)


def pedantry(text: str) -> ApiError:
    """Return the error of a pedantic request for a value that would be corrected."""
    return error(ErrCode.PEDANTIC, err=text)
