"""The metadata of a stream in the store: configuration and time of creation."""

from __future__ import annotations

import msgspec

from natsctl.api.stream import StreamConfig


class _Record(msgspec.Struct):
    created_ns: int
    config: StreamConfig
    restoring: bool = False


_encode = msgspec.json.encode
_decoder = msgspec.json.Decoder(_Record)


class StreamMeta(msgspec.Struct, frozen=True):
    """One stream's metadata; times are ns since the epoch."""

    created_ns: int
    config: StreamConfig
    restoring: bool = False
    """The stream is not whole yet; a server that finds it so at its start throws it away."""

    def encode(self) -> bytes:
        """Return the bytes that the store keeps."""
        return _encode(_Record(self.created_ns, self.config, self.restoring))

    @classmethod
    def decode(cls, raw: bytes) -> StreamMeta:
        """Return the decoded metadata; raises msgspec.MsgspecError for anything else."""
        record = _decoder.decode(raw)
        return cls(record.created_ns, record.config, record.restoring)
