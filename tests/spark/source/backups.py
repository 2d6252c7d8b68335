"""Backups for tests of the Spark source: written from given messages, and read back as rows."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from natsctl.api.archive.archive import ArchivedStream, MessageFields
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.spark.source.backups import BackupReader, backup_reader
from natsctl.spark.source.rows import default_schema, row_shape
from natsctl.spark.source.source_options import BATCH_READ, Options

Row = dict[str, Any]


def archive(messages: Sequence[MessageFields], version: int, name: str = "S", batch: int = 100) -> bytes:
    """An archive as natsctl's server makes it; its frames end where `batch` messages do."""
    writer: WriterV1 | WriterV2 = WriterV1() if version == 1 else WriterV2()
    frames = FrameWriter()
    last_seq, last_ts_ns = messages[-1][:2] if messages else (0, 0)
    state = StreamState(messages=len(messages), first_seq=messages[0][0] if messages else 0, last_seq=last_seq)
    data = frames.write(b"".join(writer.beginning(ArchivedStream(StreamConfig(name=name), 1, state), ())))
    for at in range(0, len(messages), batch):
        data += b"".join(map(frames.write, writer.messages(messages[at : at + batch])))
    return data + b"".join(map(frames.write, writer.end(last_seq, last_ts_ns))) + frames.finish()


def lay(folder: Path, data: bytes, state: Row, name: str = "S", *, manifest: bool = False) -> Path:
    """A backup in a folder, as tools write it."""
    folder.mkdir(parents=True)
    (folder / "backup.json").write_text(json.dumps({"config": {"name": name}, "state": state}))
    (folder / "stream.tar.s2").write_bytes(data)
    if manifest:
        summed = {"name": "stream.tar.s2", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        head = {"format": "natsctl.stream-backup/1", "tool": "", "created": "", "stream": name, "server": {}}
        (folder / "manifest.json").write_text(json.dumps({**head, "files": [summed]}))
    return folder


def written(folder: Path, messages: Sequence[MessageFields], version: int, name: str = "S", **how: Any) -> Path:
    first_seq, last_seq = (messages[0][0], messages[-1][0]) if messages else (0, 0)
    state = {"messages": len(messages), "first_seq": first_seq, "last_seq": last_seq}
    return lay(folder, archive(messages, version, name), state, name, **how)


def reader(path: Path, **options: str) -> BackupReader:
    said = Options({"backup": str(path), **options}, BATCH_READ)
    return backup_reader(said, row_shape(default_schema(said), said))


def rows(path: Path, **options: str) -> list[Row]:
    return read_all(reader(path, **options))


def read_all(of: BackupReader) -> list[Row]:
    return [row for part in of.partitions() for batch in of.read(part) for row in batch.to_pylist()]


def as_row(message: MessageFields, name: str = "S") -> Row:
    """The row of a message; times are cut to microseconds."""
    from datetime import UTC, datetime, timedelta

    seq, ts_ns, subject, header, payload = message
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts_ns // 1000)
    lines = [line.partition(b":") for line in header.split(b"\r\n")[1:] if b":" in line]
    pairs = [{"key": key.decode(), "value": value.lstrip(b" \t")} for key, _, value in lines]
    text = subject.decode(errors="replace")
    return {
        "stream": name,
        "seq": seq,
        "subject": text,
        "timestamp": moment,
        "headers": pairs or None,
        "value": payload,
    }
