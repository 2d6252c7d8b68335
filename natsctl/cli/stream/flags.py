"""The table of stream flags: each sets one field of the stream's configuration.

Source: reference/cli.md 1.1 and appendix A.
"""

from __future__ import annotations

from natsctl.cli.flags import (
    DURATION,
    PAIRS,
    SIZE,
    SOURCE,
    SOURCES,
    SUBJECT,
    SUBJECTS,
    SWITCH,
    TEXT,
    WHOLE,
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
    Flag("--subjects", SUBJECTS, "subjects", "subjects that the stream stores"),
    Flag("--description", TEXT, "description", "a text for people"),
    Flag(
        "--storage",
        choice("file", "memory", f="file", m="memory"),
        "storage",
        "where messages are kept",
        edit=False,
        default="file",
    ),
    Flag("--compression", choice("none", "s2"), "compression", "compression of stored messages", default="none"),
    Flag("--replicas", WHOLE, "num_replicas", "number of copies in a cluster", default="1"),
    Flag("--tag", WORDS, _tags, "place only on servers with this tag", aliases=("--tags",)),
    Flag("--cluster", TEXT, _cluster, "place in this cluster"),
    Flag("--ack", SWITCH, inverted("no_ack"), "acknowledge publishes", default="on"),
    Flag(
        "--retention",
        choice("limits", "interest", "workqueue", workq="workqueue", work="workqueue"),
        "retention",
        "when messages may go",
        default="limits",
    ),
    Flag("--discard", choice("old", "new"), "discard", "what gives way when a limit is reached", default="old"),
    Flag("--discard-per-subject", SWITCH, _discard_per_subject, "discard new messages per subject"),
    Flag("--first-sequence", WHOLE, "first_seq", "sequence of the first message", edit=False),
    Flag(
        "--max-age",
        AGE,
        "max_age",
        "longest time that messages are kept, -1 for ever",
        default="-1",
    ),
    Flag("--max-bytes", SIZE, "max_bytes", "most bytes that are kept, -1 for no limit", default="-1"),
    Flag("--max-msg-size", SIZE, "max_msg_size", "largest message that is taken, -1 for no limit", default="-1"),
    Flag("--max-consumers", WHOLE, "max_consumers", "most consumers, -1 for no limit", default="-1"),
    Flag("--max-msgs", WHOLE, "max_msgs", "most messages that are kept, -1 for no limit", default="-1"),
    Flag(
        "--max-msgs-per-subject",
        WHOLE,
        "max_msgs_per_subject",
        "most messages kept of one subject, -1 for no limit",
        default="-1",
    ),
    Flag("--dupe-window", DURATION, _window, "how long message ids are remembered", default="2m"),
    Flag("--mirror", SOURCE, _mirror, "copy this stream, and nothing else"),
    Flag("--no-mirror", SWITCH, removed("mirror"), "make a mirror a stream of its own", add=False),
    Flag("--source", SOURCES, _sources, "copy messages of this stream too"),
    Flag("--allow-batch", SWITCH, "allow_atomic", "allow atomic batches of publishes"),
    Flag("--allow-fast", SWITCH, "allow_batched", "allow fast batches of publishes"),
    Flag("--allow-counter", SWITCH, "allow_msg_counter", "let subjects be counters"),
    Flag("--allow-rollup", SWITCH, "allow_rollup_hdrs", "allow messages that replace the ones before them"),
    Flag("--deny-delete", SWITCH, "deny_delete", "refuse to delete single messages"),
    Flag("--deny-purge", SWITCH, "deny_purge", "refuse to purge"),
    Flag("--allow-direct", SWITCH, "allow_direct", "allow direct gets", default="on"),
    Flag("--allow-mirror-direct", SWITCH, "mirror_direct", "let a mirror answer direct gets of its origin"),
    Flag("--allow-msg-ttl", SWITCH, "allow_msg_ttl", "allow a time to live on each message"),
    Flag("--allow-schedules", SWITCH, "allow_msg_schedules", "allow scheduled messages"),
    Flag(
        "--subject-del-markers-ttl",
        AGE,
        "subject_delete_marker_ttl",
        "how long deletion markers are kept",
    ),
    Flag("--transform-source", SUBJECT, "subject_transform.src", "subjects to rename while storing"),
    Flag("--transform-destination", SUBJECT, "subject_transform.dest", "what those subjects become"),
    Flag("--no-transform", SWITCH, removed("subject_transform"), "stop renaming subjects", add=False),
    Flag("--metadata", PAIRS, merged("metadata"), "attach a key and value; an empty value takes the key away"),
    Flag("--republish-source", SUBJECT, "republish.src", "subjects to publish again after storing"),
    Flag("--republish-destination", SUBJECT, "republish.dest", "where they are published"),
    Flag("--republish-headers", SWITCH, "republish.headers_only", "publish again without bodies"),
    Flag("--no-republish", SWITCH, removed("republish"), "stop publishing again", add=False),
    Flag(
        "--limit-consumer-inactive",
        AGE,
        "consumer_limits.inactive_threshold",
        "longest inactivity that consumers may ask for",
    ),
    Flag(
        "--limit-consumer-max-pending",
        WHOLE,
        "consumer_limits.max_ack_pending",
        "most outstanding acks that consumers may ask for",
    ),
    Flag("--persist-mode", choice("default", "async"), "persist_mode", "when publishes are flushed", edit=False),
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
    "no_ack": "do not acknowledge publishes",
    "placement": "in which cluster, and on servers with which tags",
    "subject_transform": "subjects to rename while storing (src), and what they become (dest)",
    "republish": "subjects to publish again after storing (src), and where (dest)",
    "consumer_limits": "what consumers may ask for at most",
    "sealed": "nothing can be changed any more, for ever",
    **{flag.to: flag.help for flag in STREAM_FLAGS if isinstance(flag.to, str)},
    **{field: _HELP[name] for field, name in _PLACED.items()},
}
"""What the fields of a stream are, in words."""
