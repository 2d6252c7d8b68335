"""The table of stream flags: each sets one field of the stream's configuration.

Source: docs/compatibility.md#flags-and-fields.
"""

from __future__ import annotations

from natsctl.cli.flags import (
    COUNT,
    DURATION,
    LIMIT,
    MESSAGE_SIZE,
    PAIRS,
    SIZE,
    SOME_SUBJECTS,
    SOURCE,
    SOURCES,
    SUBJECT,
    SWITCH,
    TEXT,
    WORDS,
    Config,
    Flag,
    Kind,
    choice,
    inverted,
    merged,
    put,
    removed,
    without_defaults,
)

AGE = Kind("DURATION", lambda text: max(0, int(DURATION.read(text))))
"""A length of time that servers write as 0 where there is none."""


def _window(config: Config, value: int) -> None:
    if value >= 0:
        config["duplicate_window"] = value


def _tags(config: Config, value: list[str]) -> None:
    put(config, "placement.tags", value)
    _drop_empty_placement(config)


def _cluster(config: Config, value: str) -> None:
    put(config, "placement.cluster", value)
    _drop_empty_placement(config)


def _drop_empty_placement(config: Config) -> None:
    placement = {key: value for key, value in config["placement"].items() if value}
    config["placement"] = placement
    if not placement:
        del config["placement"]


def _discard_per_subject(config: Config, value: bool) -> None:
    config["discard_new_per_subject"] = value
    if value:
        config["discard"] = "new"


def _mirror(config: Config, value: Config) -> None:
    """Mirror a stream; the name alone leaves as it is how that one is mirrored already."""
    live = config.get("mirror") or {}
    config["mirror"] = live if _is_name_of(value, live) else value


def _sources(config: Config, value: list[Config]) -> None:
    """Take from these streams and no others; a name alone leaves as it is how that one is sourced already."""
    live = {source.get("name"): source for source in config.get("sources") or ()}
    config["sources"] = [
        live[one["name"]] if _is_name_of(one, live.get(one["name"]) or {}) else one for one in value if one["name"]
    ]


def _is_name_of(value: Config, live: Config) -> bool:
    return value == {"name": live.get("name")}


STREAM_FLAGS: tuple[Flag, ...] = (
    Flag("--subjects", SOME_SUBJECTS, "subjects", "subjects that the stream stores"),
    Flag("--description", TEXT, "description", "a description"),
    Flag(
        "--storage",
        choice("file", "memory", f="file", m="memory"),
        "storage",
        "storage of messages",
        edit=False,
        default="file",
    ),
    Flag("--compression", choice("none", "s2"), "compression", "compression of stored messages", default="none"),
    Flag("--replicas", COUNT, "num_replicas", "number of copies in a cluster", default="1"),
    Flag("--tag", WORDS, _tags, "place only on servers with this tag", aliases=("--tags",)),
    Flag("--cluster", TEXT, _cluster, "place in this cluster"),
    Flag("--ack", SWITCH, inverted("no_ack"), "acknowledge published messages", default="on"),
    Flag(
        "--retention",
        choice("limits", "interest", "workqueue", workq="workqueue", work="workqueue"),
        "retention",
        "retention policy",
        default="limits",
    ),
    Flag("--discard", choice("old", "new"), "discard", "what to discard at a limit", default="old"),
    Flag("--discard-per-subject", SWITCH, _discard_per_subject, "discard new messages per subject"),
    Flag("--first-sequence", COUNT, "first_seq", "sequence of the first message", edit=False),
    Flag(
        "--max-age",
        AGE,
        "max_age",
        "longest age of messages, -1 for no limit",
        default="-1",
    ),
    Flag("--max-bytes", SIZE, "max_bytes", "most bytes of the stream, -1 for no limit", default="-1"),
    Flag(
        "--max-msg-size",
        MESSAGE_SIZE,
        "max_msg_size",
        "largest message accepted, -1 for no limit",
        default="-1",
    ),
    Flag("--max-consumers", LIMIT, "max_consumers", "most consumers, -1 for no limit", default="-1"),
    Flag("--max-msgs", LIMIT, "max_msgs", "most messages of the stream, -1 for no limit", default="-1"),
    Flag(
        "--max-msgs-per-subject",
        LIMIT,
        "max_msgs_per_subject",
        "most messages per subject, -1 for no limit",
        default="-1",
    ),
    Flag("--dupe-window", DURATION, _window, "window for deduplication", default="2m"),
    Flag("--mirror", SOURCE, _mirror, "mirror this stream"),
    Flag("--no-mirror", SWITCH, removed("mirror"), "turn a mirror into an independent stream", add=False),
    Flag("--source", SOURCES, _sources, "source messages from this stream"),
    Flag("--allow-batch", SWITCH, "allow_atomic", "allow atomic batch publishing"),
    Flag("--allow-fast", SWITCH, "allow_batched", "allow fast batch publishing"),
    Flag("--allow-counter", SWITCH, "allow_msg_counter", "allow counters"),
    Flag("--allow-rollup", SWITCH, "allow_rollup_hdrs", "allow roll-ups: messages that replace those before them"),
    Flag("--deny-delete", SWITCH, "deny_delete", "refuse to delete single messages"),
    Flag("--deny-purge", SWITCH, "deny_purge", "refuse to purge"),
    Flag("--allow-direct", SWITCH, "allow_direct", "allow direct gets", default="on"),
    Flag("--allow-mirror-direct", SWITCH, "mirror_direct", "let a mirror answer direct gets for its origin"),
    Flag("--allow-msg-ttl", SWITCH, "allow_msg_ttl", "allow per-message TTLs"),
    Flag("--allow-schedules", SWITCH, "allow_msg_schedules", "allow scheduled messages"),
    Flag(
        "--subject-del-markers-ttl",
        AGE,
        "subject_delete_marker_ttl",
        "how long delete markers are kept",
    ),
    Flag("--transform-source", SUBJECT, "subject_transform.src", "subjects to transform while storing"),
    Flag("--transform-destination", SUBJECT, "subject_transform.dest", "destination of the transform"),
    Flag("--no-transform", SWITCH, removed("subject_transform"), "remove the subject transform", add=False),
    Flag("--metadata", PAIRS, merged("metadata"), "attach a key and value; an empty value removes the key"),
    Flag("--republish-source", SUBJECT, "republish.src", "subjects to republish after storing"),
    Flag("--republish-destination", SUBJECT, "republish.dest", "subject to republish to"),
    Flag("--republish-headers", SWITCH, "republish.headers_only", "republish without bodies"),
    Flag("--no-republish", SWITCH, removed("republish"), "stop republishing", add=False),
    Flag(
        "--limit-consumer-inactive",
        AGE,
        "consumer_limits.inactive_threshold",
        "longest inactivity threshold of consumers",
    ),
    Flag(
        "--limit-consumer-max-pending",
        LIMIT,
        "consumer_limits.max_ack_pending",
        "most outstanding acks of consumers",
    ),
    Flag(
        "--persist-mode",
        choice("default", "async"),
        "persist_mode",
        "when published messages are flushed to disk",
        edit=False,
    ),
)

STREAM_ADD = tuple(flag for flag in STREAM_FLAGS if flag.add)
STREAM_COPY = without_defaults(STREAM_ADD)
STREAM_EDIT = without_defaults([flag for flag in STREAM_FLAGS if flag.edit])

_PLACED = {
    "mirror": "--mirror",
    "sources": "--source",
    "duplicate_window": "--dupe-window",
    "metadata": "--metadata",
    "discard_new_per_subject": "--discard-per-subject",
}
"""Fields whose flag places its value by a function of its own."""
_HELP = {flag.name: flag.help for flag in STREAM_FLAGS}
MEANINGS: dict[str, str] = {
    "no_ack": "do not acknowledge published messages",
    "placement": "placement by cluster and tags",
    "subject_transform": "subjects to transform while storing (src), and their destination (dest)",
    "republish": "subjects to republish after storing (src), and the destination (dest)",
    "consumer_limits": "limits for consumers",
    "sealed": "no more changes, permanently",
    **{flag.to: flag.help for flag in STREAM_FLAGS if isinstance(flag.to, str)},
    **{field: _HELP[name] for field, name in _PLACED.items()},
}
"""What the fields of a stream are, in words."""
