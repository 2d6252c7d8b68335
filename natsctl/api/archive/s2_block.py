"""One block of S2, decoded: rewritten as plain Snappy (`s2_rewrite`), which cramjam decodes."""

from __future__ import annotations

from collections.abc import Generator

import cramjam

from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy, decoded_size

__all__ = ["S2BlockError", "decode_block", "decode_steps", "decoded_size"]


def decode_block(block: bytes) -> bytes:
    """Return the content of one block. Raises S2BlockError."""
    steps = decode_steps(block)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content: bytes = end.value
            return content


def decode_steps(block: bytes) -> Generator[None, None, bytes]:
    """Return what `decode_block` does, and yield between pieces of long work."""
    parts: list[bytes] = []
    for part in as_snappy(block):
        parts.append(part)
        yield
    try:
        return bytes(cramjam.snappy.decompress_raw(b"".join(parts)))
    except cramjam.DecompressionError as fault:
        raise S2BlockError(f"a block is damaged: {fault}") from fault
