"""New streams: `natsctl stream add` and `copy`, and the table of flags that describe a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError
from natsctl.cli.assets import copied_metadata, create_asset, load_config, write_config
from natsctl.cli.framework.flags import (
    COUNT,
    DURATION,
    LIMIT,
    MESSAGE_SIZE,
    METADATA,
    SIZE,
    SOME_SUBJECTS,
    SOURCE,
    SOURCES,
    SUBJECT,
    SWITCH,
    TEXT,
    WORDS,
    Config,
    ConfigFile,
    Defaults,
    Flag,
    FlagKind,
    Given,
    IfNotExists,
    Json,
    Output,
    StreamName,
    Validate,
    apply,
    check_subjects,
    choice,
    flagged,
    inverted,
    placed,
    removed,
    without_defaults,
)
from natsctl.cli.framework.parameters import Argument
from natsctl.cli.framework.resolve import live_stream
from natsctl.cli.framework.session import Session
from natsctl.cli.stream.info import existing, show_info
from natsctl.client.asset_config import CREATED

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


PAIRED = (
    ("subject_transform", "--transform-source", "--transform-destination"),
    ("republish", "--republish-source", "--republish-destination"),
)
"""Objects that are meaningless without their `dest`, and the flags of both ends."""


def check_config(wanted: Config) -> None:
    if wanted.get("mirror") and wanted.get("subjects"):
        raise UsageError("a mirror takes no subjects of its own: --mirror and --subjects exclude each other")
    if wanted.get("mirror") and wanted.get("sources"):
        raise UsageError("a mirror takes from one stream only: --mirror and --source exclude each other")
    check_subjects(wanted.get("subjects"))
    for field, source, destination in PAIRED:
        mapping = wanted.get(field)
        if mapping and not mapping.get("dest"):
            raise UsageError(f"{source} needs {destination}")


def create_stream(session: Session, wanted: Config, *, if_not_exists: bool, json: bool) -> None:
    name = str(wanted["name"])
    check_config(wanted)
    create_asset(
        session,
        f"Stream {name}",
        wanted,
        lambda: _create(session, wanted),
        lambda: existing(session, name),
        lambda answer, line: show_info(answer, json, line),
        if_not_exists=if_not_exists,
        json=json,
    )


def _create(session: Session, wanted: Config) -> Answer[Any]:
    try:
        return session.ask(lambda manager: manager.stream_create(wanted), changes=True)
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NAME_EXIST:
            failure.hint = failure.hint or (
                f"natsctl stream edit {wanted['name']} changes a stream that exists, --if-not-exists keeps it as it is"
            )
        elif failure.err_code == ErrCode.STREAM_SUBJECT_OVERLAP:
            failure.hint = failure.hint or _taken_by(session, wanted)
        raise


def _taken_by(session: Session, wanted: Config) -> str:
    subjects = wanted.get("subjects") or [wanted["name"]]

    async def owners(manager: Manager) -> list[str]:
        return [name for subject in subjects for name in await manager.stream_names(subject=subject)]

    try:
        found = dict.fromkeys(session.run(owners))
    except NatsctlError:
        found = {}
    return f"stored already by {', '.join(found)}" if found else "natsctl stream ls shows which streams there are"


AGE = FlagKind("DURATION", lambda text: max(0, int(DURATION.read(text))))
"""A length of time, 0 for none."""


def _window(config: Config, value: int) -> None:
    if value >= 0:
        config["duplicate_window"] = value


def _discard_per_subject(config: Config, value: bool) -> None:
    config["discard_new_per_subject"] = value
    if value:
        config["discard"] = "new"


def _mirror(config: Config, value: Config) -> None:
    """Mirror a stream; only a name keeps the options of an existing mirror of it."""
    live = config.get("mirror") or {}
    config["mirror"] = live if _is_name_of(value, live) else value


def _sources(config: Config, value: list[Config]) -> None:
    """Source these streams and no others; only a name keeps the options of an existing source."""
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
    Flag("--tag", WORDS, placed("tags"), "place only on servers with this tag", aliases=("--tags",)),
    Flag("--cluster", TEXT, placed("cluster"), "place in this cluster"),
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
        "max age of messages, -1 for no limit",
        default="-1",
    ),
    Flag("--max-bytes", SIZE, "max_bytes", "max size of the stream, -1 for no limit", default="-1"),
    Flag(
        "--max-msg-size",
        MESSAGE_SIZE,
        "max_msg_size",
        "max size of a message, -1 for no limit",
        default="-1",
    ),
    Flag("--max-consumers", LIMIT, "max_consumers", "max consumers, -1 for no limit", default="-1"),
    Flag("--max-msgs", LIMIT, "max_msgs", "max messages of the stream, -1 for no limit", default="-1"),
    Flag(
        "--max-msgs-per-subject",
        LIMIT,
        "max_msgs_per_subject",
        "max messages per subject, -1 for no limit",
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
    *METADATA,
    Flag("--republish-source", SUBJECT, "republish.src", "subjects to republish after storing"),
    Flag("--republish-destination", SUBJECT, "republish.dest", "subject to republish to"),
    Flag("--republish-headers", SWITCH, "republish.headers_only", "republish without bodies"),
    Flag("--no-republish", SWITCH, removed("republish"), "stop republishing", add=False),
    Flag(
        "--limit-consumer-inactive",
        AGE,
        "consumer_limits.inactive_threshold",
        "max inactivity threshold of consumers",
    ),
    Flag(
        "--limit-consumer-max-pending",
        LIMIT,
        "consumer_limits.max_ack_pending",
        "max outstanding acks of consumers",
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
"""Fields with flags that set them by a function of their own."""
_HELP_OF_FLAG = {flag.name: flag.help for flag in STREAM_FLAGS}
MEANINGS: dict[str, str] = {
    "no_ack": "do not acknowledge published messages",
    "placement": "placement by cluster and tags",
    "subject_transform": "subjects to transform while storing (src), and their destination (dest)",
    "republish": "subjects to republish after storing (src), and the destination (dest)",
    "consumer_limits": "limits for consumers",
    "sealed": "no more changes, permanently",
    **{flag.to: flag.help for flag in STREAM_FLAGS if isinstance(flag.to, str)},
    **{field: _HELP_OF_FLAG[name] for field, name in _PLACED.items()},
}


@flagged(STREAM_ADD)
def add(
    session: Session,
    given: Given,
    stream: StreamName = None,
    config: ConfigFile = None,
    defaults: Defaults = False,
    validate: Validate = False,
    output_file: Output = None,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a stream from flags, a file or answers; flags win over the file."""
    wanted = (
        _config_from_file(stream, config, given) if config else _config_from_flags(session, stream, given, defaults)
    )
    for name, value in CREATED.items():
        wanted.setdefault(name, value)
    if validate or output_file:
        check_config(wanted)
        from natsctl.api.stream import StreamConfig

        write_config(wanted, StreamConfig, output_file)
        return
    create_stream(session, wanted, if_not_exists=if_not_exists, json=json)


def _config_from_file(name: str | None, path: str, given: Given) -> Config:
    from natsctl.api.stream import StreamConfig

    wanted = load_config(path, StreamConfig)
    apply(wanted, STREAM_ADD, given)
    if name:
        wanted["name"] = name
    if not wanted.get("name"):
        raise UsageError(f"{path} has no name: give STREAM")
    return wanted


def _config_from_flags(session: Session, name: str | None, given: Given, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name:
        if not asks:
            raise UsageError("a name for the stream is needed: give STREAM, or --config FILE")
        from natsctl.cli.stream.dialogue import prompt_stream_name

        name = prompt_stream_name()
    wanted: Config = {"name": name}
    apply(wanted, STREAM_ADD, given)
    check_config(wanted)
    if asks:
        from natsctl.cli.stream.dialogue import prompt_stream

        account = session.run(lambda manager: manager.account_info()).value
        prompt_stream(wanted, given, account.limits.max_bytes_required)
    elif not (wanted.get("subjects") or wanted.get("mirror") or wanted.get("sources")):
        raise UsageError("subjects are needed: give --subjects, --mirror or --source")
    return wanted


NOT_COPIED = ("sealed", "template_owner")
"""Fields that a new stream cannot have."""


@flagged(STREAM_COPY)
def copy(
    session: Session,
    given: Given,
    source: Annotated[str, Argument(metavar="SOURCE", help="the stream to copy the configuration from")],
    destination: Annotated[str, Argument(metavar="DESTINATION", help="the stream to create")],
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a stream with the configuration of another, adjusted by flags; messages are not copied."""
    live = live_stream(session, source)
    wanted = {key: value for key, value in live.raw["config"].items() if key not in NOT_COPIED}
    if "metadata" in wanted:
        wanted["metadata"] = copied_metadata(wanted["metadata"])
    apply(wanted, STREAM_COPY, given)
    wanted["name"] = destination
    if wanted.get("subjects") and "--subjects" not in given:
        raise UsageError(
            f"{destination} cannot store the same subjects as {source}", hint="give --subjects for the copy"
        )
    create_stream(session, wanted, if_not_exists=if_not_exists, json=json)
