"""The flags of benchmarks: each sets one field of a Load."""

from __future__ import annotations

from pathlib import Path

from natsctl.cli.flags import DURATION, ON, PAIRS, SIZE, SUBJECTS, SWITCH, TEXT, WHOLE, Flag, Kind, choice
from natsctl.client.bench.load import DEFAULT_BUCKET, DEFAULT_CONSUMER, DEFAULT_STREAM


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise ValueError(f"{path}: {failure.strerror or failure}") from failure


COMMON = (
    Flag("--clients", WHOLE, "clients", "number of clients, each with its own connection", default="1"),
    Flag("--msgs", WHOLE, "msgs", "how many messages", default="100000"),
    Flag("--size", SIZE, "size", "size of each message", default="128B"),
)
SENT = (
    Flag(
        "--payload",
        Kind("FILE", _file),
        "payload",
        "a file whose content is the body of every message, in place of --size",
    ),
    Flag("--header", PAIRS.named("KEY:VALUE"), "headers", "a header for every message", aliases=("-H",)),
)
PACED = (
    Flag("--sleep", DURATION, "sleep_ns", "pause after each message"),
    Flag("--throughput", WHOLE, "throughput", "messages per second over all clients", default="as many as possible"),
    Flag("--duration", DURATION, "duration_ns", "with --throughput: how long, instead of how many messages"),
)
PAUSE = PACED[:1]
PATIENCE = (Flag("--wait", DURATION, "wait_ns", "fail when no message arrives for this long", default="the --timeout"),)
CORE_PATIENCE = (
    Flag(
        "--wait", DURATION, "wait_ns", "fail when no message arrives for this long", default="10s after the first one"
    ),
)
MANY_SUBJECTS = (
    Flag("--multisubject", ON, "multisubject", "publish to SUBJECT.0, SUBJECT.1 and so on"),
    Flag("--multisubjectmax", WHOLE, "multisubjectmax", "how many subjects, 0 for no limit", default="100000"),
    Flag("--multisubjectrandomize", ON, "multisubjectrandomize", "choose the subjects at random"),
)
MANY_READ = (Flag("--multisubject", ON, "multisubject", "subscribe to SUBJECT.*"),)
STREAM = (Flag("--stream", TEXT.named("NAME"), "stream", "the stream", default=DEFAULT_STREAM),)
PURGE = (Flag("--purge", ON, "purge", "purge the stream first"),)
STORED = (
    Flag("--storage", choice("file", "memory"), "storage", "storage of a stream that is created", default="file"),
    Flag("--replicas", WHOLE, "replicas", "replicas of a stream that is created", default="1"),
    Flag("--maxbytes", SIZE, "maxbytes", "size limit of a stream that is created", default="1GB"),
)
CREATED = (
    Flag("--create", ON, "create", "create the stream, or update one that a benchmark created"),
    *STORED,
    Flag("--dedup", ON, "dedup", "give every message an id for deduplication"),
    Flag("--dedupwindow", DURATION, "dedupwindow_ns", "duplicate window of a stream that is created", default="2m"),
    Flag("--persistasync", ON, "persistasync", "let a stream that is created ack before it has written"),
)
BATCH = (Flag("--batch", WHOLE, "batch", "messages in a batch, or in flight at once", default="500"),)
FLOW = (Flag("--max-outstanding-acks", WHOLE, "max_outstanding_acks", "most outstanding acks", default="1"),)
FILTER = (Flag("--filter", SUBJECTS, "filter", "read these subjects only"),)
CONSUMER = (
    Flag("--consumer", TEXT.named("NAME"), "consumer", "the durable consumer", default=DEFAULT_CONSUMER),
    Flag(
        "--acks",
        choice("explicit", "all", "none"),
        "acks",
        "ack policy of a consumer that is created",
        default="explicit",
    ),
    Flag("--doubleack", SWITCH, "doubleack", "count a message once the server has confirmed its ack"),
)
BUCKET = (Flag("--bucket", TEXT.named("NAME"), "bucket", "the bucket", default=DEFAULT_BUCKET),)
KEYS = (Flag("--randomize", WHOLE, "randomize", "use random keys below N", default="0: in sequence"),)
HISTORY = (Flag("--history", WHOLE, "history", "history of a bucket that is created", default="1"),)

PUBLISHING = (*COMMON, *SENT, *PACED, *MANY_SUBJECTS)
STORING = (*PUBLISHING, *STREAM, *CREATED, *PURGE)
READING = (*COMMON, *STREAM, *PATIENCE)
