"""One file of the parts that tasks of Spark have written, in the order of the tasks."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from natsctl.spark.export.target import Target


def merge(parts: Sequence[Path], target: Target, header: bytes, file: IO[bytes]) -> None:
    """Write the content of the parts, behind a header where the format has one."""
    if target.format.is_text:
        file.write(gzip.compress(header) if header and target.is_gzip else header)
        _append(parts, file)
    elif len(parts) == 1:
        _append(parts, file)
    else:
        _join_tables(parts, file)


def _append(parts: Sequence[Path], file: IO[bytes]) -> None:
    """Files behind each other: texts, also compressed ones, are one text then."""
    for part in parts:
        with part.open("rb") as piece:
            shutil.copyfileobj(piece, file, 1 << 20)


def _join_tables(parts: Sequence[Path], file: IO[bytes]) -> None:
    """Files of Parquet as one, a group of rows after the other in memory."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for part in parts:
            with pq.ParquetFile(part) as table:
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema_arrow)
                for group in range(table.num_row_groups):
                    writer.write_table(table.read_row_group(group))
    finally:
        if writer is not None:
            writer.close()
