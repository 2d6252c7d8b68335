"""Configurations of consumers: `natsctl consumer add`, `copy` and `edit`, and the table of flags.

The questions of `consumer add`, in order. Source: docs/compatibility.md#questions-of-stream-add-and-consumer-add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import ApiResponseError, ErrCode, UsageError
from natsctl.api.subjects import is_valid_subject
from natsctl.api.times import format_time, is_zero
from natsctl.api.units import MILLISECOND, MINUTE, parse_duration
from natsctl.api.update_losses import consumer_losses
from natsctl.cli.assets import (
    AssetEdit,
    Edits,
    FlagDialogue,
    check_given,
    config_in,
    copied_metadata,
    create_asset,
    load_object,
    show_outcome,
    without_server_metadata,
    write_config,
)
from natsctl.cli.consumer.listing import ConsumerFlags, existing, show_info
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    COUNT,
    DURATION,
    LIMIT,
    METADATA,
    SIZE,
    SUBJECTS,
    SWITCH,
    TEXT,
    WORDS,
    Config,
    ConfigFile,
    ConsumerName,
    Defaults,
    Flag,
    FlagKind,
    Force,
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
    read_moment,
    without_defaults,
)
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, asset_name, prompt, prompt_confirm
from natsctl.cli.framework.resolve import live_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.change import changes
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


DELIVER_WORDS = {
    "all": "all",
    "new": "new",
    "next": "new",
    "last": "last",
    "subject": "last_per_subject",
    "last_per_subject": "last_per_subject",
    "last-per-subject": "last_per_subject",
}
START_FIELDS = ("opt_start_seq", "opt_start_time")

BACKOFF_STEPS = 10
BACKOFF_MIN_NS = MINUTE
BACKOFF_MAX_NS = 20 * MINUTE


def read_deliver(text: str) -> Config:
    """Return the fields of a start policy: a word, a stream sequence, a time, or a duration back from now."""
    word = text.strip().lower()
    if word in DELIVER_WORDS:
        return {"deliver_policy": DELIVER_WORDS[word]}
    if word.isdigit():
        if int(word) < 1:
            raise ValueError("a stream sequence starts at 1")
        if int(word) >= 2**64:
            raise ValueError(f"{word} is too large: a stream sequence has at most 64 bits")
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(word)}
    try:
        start_ns = read_moment(text, back=True)
    except ValueError as error:
        hint = "all, new, last, subject, a sequence, "
        raise ValueError(str(error).replace("expected a time", f"expected {hint}a time")) from None
    return {"deliver_policy": "by_start_time", "opt_start_time": format_time(start_ns)}


def _deliver(config: Config, value: Config) -> None:
    for name in START_FIELDS:
        config.pop(name, None)
    config.update(value)


def _filter(config: Config, value: list[str]) -> None:
    config.pop("filter_subject", None)
    config.pop("filter_subjects", None)
    if len(value) == 1:
        config["filter_subject"] = value[0]
    elif value:
        config["filter_subjects"] = value


def _sample(text: str) -> str:
    percent = text.removesuffix("%")
    if text == "-1":
        return ""
    if not percent.isdigit() or int(percent) > 100:
        raise ValueError(f"expected a percentage from 0 to 100, not {text!r}")
    return percent


def _set_ack_wait(config: Config, value: int) -> None:
    if value >= 0:
        config["ack_wait"] = value


def _heartbeat(config: Config, value: int) -> None:
    config["idle_heartbeat"] = max(0, value)


def _pull(config: Config, value: bool) -> None:
    if value:
        config.pop("deliver_subject", None)


def _read_target(text: str) -> str:
    if text and (not is_valid_subject(text) or {"*", ">"} & set(text.split("."))):
        raise ValueError(f"expected a subject without wildcards, not {text!r}")
    return text


def _target(config: Config, value: str) -> None:
    if value:
        config["deliver_subject"] = value


def _groups(policy: str) -> Any:
    def place(config: Config, value: list[str]) -> None:
        config["priority_groups"] = value
        config["priority_policy"] = policy

    return place


def _read_backoff(text: str) -> str | list[int]:
    if text.lower() in ("linear", "none"):
        return text.lower()
    waits = [parse_duration(word) for word in text.replace(",", " ").split()]
    if not waits or min(waits) <= 0:
        raise ValueError(f"expected linear, none, or durations above zero such as 1s,5s,30s, not {text!r}")
    return waits


def _nothing(config: Config, value: object) -> None:
    """Change nothing: the flag is read together with others, after the table."""


ACK = choice("explicit", "all", "none", "flow_control")
DELIVER = FlagKind("all|new|last|subject|SEQ|TIME|DURATION", read_deliver)
SAMPLE = FlagKind("PERCENT", _sample)
UNTIL = FlagKind("TIME|DURATION", lambda text: format_time(read_moment(text)))
TARGET = FlagKind("SUBJECT", _read_target)
BACKOFF = FlagKind("linear|none|DURATION[,DURATION]", _read_backoff)

CONSUMER_FLAGS: tuple[Flag, ...] = (
    Flag("--ack", ACK, "ack_policy", "ack policy", edit=False, default="explicit; none when pushed"),
    Flag("--bps", COUNT, "rate_limit_bps", "max bits per second that are pushed", edit=False),
    Flag("--backoff", BACKOFF, _nothing, "wait longer before each retry: in linear steps, or these"),
    Flag("--backoff-steps", COUNT, _nothing, f"steps of the backoff ({BACKOFF_STEPS})"),
    Flag("--backoff-min", DURATION, _nothing, "min wait of the backoff (1m)"),
    Flag("--backoff-max", DURATION, _nothing, "max wait of the backoff (20m)"),
    Flag("--deliver", DELIVER, _deliver, "where in the stream to start", edit=False, default="all"),
    Flag("--deliver-group", TEXT, "deliver_group", "queue group that shares pushed messages", edit=False),
    Flag("--description", TEXT, "description", "a description"),
    Flag("--filter", SUBJECTS, _filter, "only messages on these subjects; '' for all"),
    Flag("--flow-control", SWITCH, "flow_control", "push with flow control", edit=False),
    Flag("--heartbeat", DURATION, _heartbeat, "push a heartbeat when idle this long, -1 for none", edit=False),
    Flag("--headers-only", SWITCH, "headers_only", "deliver without bodies"),
    Flag("--max-deliver", LIMIT, "max_deliver", "max deliveries of one message, -1 for no limit", default="-1"),
    Flag(
        "--max-pending",
        LIMIT,
        "max_ack_pending",
        "max messages awaiting acks, -1 for no limit",
        aliases=("--max-outstanding",),
        default="1000",
    ),
    Flag("--max-waiting", LIMIT, "max_waiting", "max waiting pull requests", edit=False, default="512"),
    Flag("--max-pull-batch", LIMIT, "max_batch", "max messages of one pull request"),
    Flag("--max-pull-expire", DURATION, "max_expires", "max wait of one pull request"),
    Flag("--max-pull-bytes", SIZE, "max_bytes", "max bytes of one pull request"),
    Flag("--pull", SWITCH, _pull, "deliver on request", edit=False),
    Flag(
        "--replay",
        choice("instant", "original"),
        "replay_policy",
        "at full speed, or at the rate of storing",
        edit=False,
        default="instant",
    ),
    Flag("--sample", SAMPLE, "sample_freq", "percentage of acks that are sampled"),
    Flag("--target", TARGET, _target, "subject that messages are pushed to"),
    Flag("--wait", DURATION, _set_ack_wait, "how long to wait for an ack", default="30s"),
    Flag("--inactive-threshold", DURATION, "inactive_threshold", "remove the consumer when unused this long"),
    Flag("--memory", SWITCH, "mem_storage", "keep the consumer's state in memory", edit=False),
    Flag("--replicas", COUNT, "num_replicas", "number of copies in a cluster"),
    *METADATA,
    Flag("--pause", UNTIL, "pause_until", "deliver nothing until this time", edit=False),
    Flag("--pinned-groups", WORDS, _groups("pinned_client"), "priority groups with one pinned client", edit=False),
    Flag("--pinned-ttl", DURATION, "priority_timeout", "how long a pinned client may be inactive", edit=False),
    Flag("--overflow-groups", WORDS, _groups("overflow"), "priority groups with overflow", edit=False),
    Flag("--prioritized-groups", WORDS, _groups("prioritized"), "priority groups served by priority", edit=False),
)

CONSUMER_ADD = tuple(flag for flag in CONSUMER_FLAGS if flag.add)
CONSUMER_COPY = without_defaults(CONSUMER_ADD)
CONSUMER_EDIT = without_defaults([flag for flag in CONSUMER_FLAGS if flag.edit])


BACKOFF_PARTS = ("--backoff-steps", "--backoff-min", "--backoff-max")
GROUP_FLAGS = ("--pinned-groups", "--overflow-groups", "--prioritized-groups")
PUSH_FLAGS = ("--heartbeat", "--flow-control", "--bps")
PULL_FLAGS = ("--max-waiting", "--max-pull-batch", "--max-pull-expire", "--max-pull-bytes", *GROUP_FLAGS)


def settle(config: Config, given: Given) -> None:
    """Set the fields that depend on several flags: the backoff, and the fields that a kind of consumer must not have.

    Raises UsageError, naming the flag, for flags that exclude each other.
    """
    if given.get("--pull") and given.get("--target"):
        raise UsageError("--pull and --target exclude each other")
    check_subjects([config["filter_subject"]] if config.get("filter_subject") else config.get("filter_subjects"))
    push = bool(config.get("deliver_subject"))
    for name in PULL_FLAGS if push else PUSH_FLAGS:
        if given.get(name) not in (None, False, "", 0, -1, []):
            raise UsageError(
                f"{name} is for pull consumers: leave out --target"
                if push
                else f"{name} is for push consumers: give --target"
            )
    groups = [name for name in GROUP_FLAGS if given.get(name)]
    if len(groups) > 1:
        raise UsageError(f"{' and '.join(groups)} exclude each other: a consumer has groups of one kind")
    if given.get("--pinned-ttl") and config.get("priority_policy") != "pinned_client":
        raise UsageError("--pinned-ttl is for consumers with pinned clients: give --pinned-groups")
    if config.get("deliver_policy") == "last_per_subject" and not has_filter(config):
        config["filter_subject"] = ">"
    _settle_backoff(config, given)


def has_filter(config: Config) -> bool:
    return bool(config.get("filter_subject") or config.get("filter_subjects"))


def _settle_backoff(config: Config, given: Given) -> None:
    kind = given.get("--backoff")
    alone = next((name for name in BACKOFF_PARTS if name in given), "")
    if alone and kind != "linear":
        raise UsageError(f"{alone} is for --backoff linear")
    if kind == "none":
        config.pop("backoff", None)
    if kind in (None, "none"):
        return
    config["backoff"] = kind if isinstance(kind, list) else _linear(given)
    if config.get("max_deliver", -1) <= 0:
        config["max_deliver"] = len(config["backoff"]) + 1


def _linear(given: Given) -> list[int]:
    steps = int(given.get("--backoff-steps", BACKOFF_STEPS))
    shortest = int(given.get("--backoff-min", BACKOFF_MIN_NS))
    longest = int(given.get("--backoff-max", BACKOFF_MAX_NS))
    if steps < 1 or shortest <= 0 or longest < shortest:
        raise UsageError("--backoff needs --backoff-steps of at least 1 and --backoff-min up to --backoff-max")
    return linear_backoff(steps, shortest, longest)


def linear_backoff(steps: int, shortest_ns: int, longest_ns: int) -> list[int]:
    """Return waits in ns that grow evenly from the shortest to below the longest, rounded to the millisecond."""
    stride = (longest_ns - shortest_ns) // steps
    return [(shortest_ns + step * stride) // MILLISECOND * MILLISECOND for step in range(steps)]


@flagged(CONSUMER_EDIT)
def edit(
    session: Session,
    given: Given,
    edits: Edits,
    chosen: ConsumerFlags,
    force: Force = False,
    json: Json = False,
) -> None:
    """Edit a consumer.

    A file with a `name` is the whole configuration: fields that it leaves out take their defaults. A file without a
    name is merged into the configuration that the consumer has, unless with --replace.
    """
    edits.check()
    named, patch = _in_file(edits.config)
    stream, name = chosen._replace(stream=chosen.stream or named).pick(session)
    live = live_consumer(session, stream, name)
    check_given(session, edits.change(given), "give flags such as --max-deliver 5, --config FILE or --interactive")
    before, what = _plain(live.raw["config"]), f"Consumer {stream} > {live.raw['name']}"
    wanted, removed = edits.applied(session, before, patch, given, CONSUMER_EDIT, ConsumerConfig, what)
    settle(wanted, given)
    edit = AssetEdit(
        what,
        changes(before, _as_kept(stream, live.raw["name"], wanted) if edits.is_whole(patch) else wanted),
        consumer_losses(live.raw["config"], wanted, live.raw),
        lambda manager: manager.consumer_create(stream, wanted, action="update"),
        lambda answer, line: show_outcome(answer, json, line),
        unset=removed,
    )
    edit.send(session, live, wanted, force=force, json=json)


def _as_kept(stream: str, name: str, config: Config) -> Config:
    from natsctl.desired.assets import AssetKey
    from natsctl.desired.server_defaults import normalised_leniently

    return normalised_leniently(AssetKey(stream, name), config)[0]


def _in_file(path: str | None) -> tuple[str | None, Config]:
    if path is None:
        return None, {}
    document = dict(load_object(path))
    named = document.pop("stream", None) or document.get("stream_name")
    document.pop("stream_name", None)
    return named, config_in(renamed_from_preview(document, path), path, ConsumerConfig)


PREVIEW_NAMES = {
    "delivery_subject": "deliver_subject",
    "stream_seq": "opt_start_seq",
    "start_time": "opt_start_time",
}
"""Fields of a consumer as JetStream's technical preview spelled them; such files still exist."""


def renamed_from_preview(document: Mapping[str, Any], path: str) -> Config:
    """Return the consumer in the file with the current names of fields; notes report the old names.

    A field given by both names keeps the value of the current one. The zero time is no time.
    """
    config = dict(document)
    old = {key: config.pop(key) for key in PREVIEW_NAMES if key in config}
    for key, value in old.items():
        name = PREVIEW_NAMES[key]
        if name in config:
            output.note(f"warning: {safe(path)}: {key} is ignored: {name} is given too, its name of today")
        elif not (name == "opt_start_time" and isinstance(value, str) and is_zero(value)):
            config[name] = value
            output.note(f"warning: {safe(path)}: {key} is read as {name}, its name of today")
    return config


def _plain(config: Config) -> Config:
    rest = without_server_metadata(config)
    if is_zero(rest.get("pause_until")):
        rest.pop("pause_until", None)
    return rest


def create_consumer(session: Session, stream: str, wanted: Config, *, if_not_exists: bool, json: bool) -> None:
    name = str(wanted.get("name") or wanted.get("durable_name") or "")
    if name and session.dry_run and not if_not_exists:
        session.effect["exists"] = existing(session, stream, name) is not None
    create_asset(
        session,
        f"Consumer {stream} > {name}",
        wanted,
        lambda: _create(session, stream, wanted),
        lambda: existing(session, stream, name) if name else None,
        lambda answer, line: show_info(answer, json, done=line),
        if_not_exists=if_not_exists,
        json=json,
        made="",  # the page below begins with that
    )


def name_it(config: Config, name: str, ephemeral: bool) -> None:
    """Set the name of a configuration; unless it is ephemeral, it becomes durable."""
    config["name"] = name
    if ephemeral:
        config.pop("durable_name", None)
    else:
        config["durable_name"] = name


def _create(session: Session, stream: str, wanted: Config) -> Answer[Any]:
    try:
        with suggesting(session, stream):
            return session.ask(lambda manager: manager.consumer_create(stream, wanted, action="create"), changes=True)
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.CONSUMER_ALREADY_EXISTS:
            failure.hint = failure.hint or (
                "natsctl consumer edit changes a consumer that exists, --if-not-exists keeps it as it is"
            )
        raise


Ephemeral = Annotated[bool, Option("--ephemeral", help="the server removes it when it is unused")]


@flagged(CONSUMER_ADD)
def add(
    session: Session,
    given: Given,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    config: ConfigFile = None,
    ephemeral: Ephemeral = False,
    defaults: Defaults = False,
    validate: Validate = False,
    output_file: Output = None,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a consumer from flags, a file or answers; flags win over the file; the file may name the stream too.

    Succeeds if the consumer exists with this configuration; another one is a conflict, and `consumer edit` changes it.
    """
    written = validate or output_file is not None
    if config:
        named, wanted = from_file(config, consumer, given, ephemeral)
        stream = stream or named
    elif not written:
        stream = pick_stream(session, stream)
    if not config:
        wanted = _config_from_flags(session, consumer, given, ephemeral, defaults)
    settle(wanted, given)
    if written:
        write_config(wanted, ConsumerConfig, output_file)
        return
    create_consumer(session, pick_stream(session, stream), wanted, if_not_exists=if_not_exists, json=json)


def from_file(path: str, name: str | None, given: Given, ephemeral: bool) -> tuple[str | None, Config]:
    document = dict(load_object(path))
    said = [str(document.pop(key)) for key in ("stream_name", "stream") if document.get(key)]
    if len(set(said)) > 1:
        raise UsageError(f"{path}: stream_name and stream name different streams")
    wanted = config_in(renamed_from_preview(document, path), path, ConsumerConfig)
    name = name or wanted.get("durable_name") or wanted.get("name") or document.get("name")
    if name:
        name_it(wanted, str(name), ephemeral or not (wanted.get("durable_name") or not wanted.get("name")))
    elif not ephemeral:
        raise UsageError(f"{path} has no consumer name: give CONSUMER")
    apply(wanted, CONSUMER_ADD, given)
    return (said[0] if said else None), wanted


def _config_from_flags(session: Session, name: str | None, given: Given, ephemeral: bool, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name and not ephemeral:
        if not asks:
            raise UsageError("a name for the consumer is needed: give CONSUMER, --ephemeral or --config FILE")
        name = prompt_consumer_name()
    wanted: Config = {}
    if name:
        name_it(wanted, name, ephemeral)
    apply(wanted, CONSUMER_ADD, given)
    if asks:
        prompt_consumer(wanted, given)
    push = bool(wanted.get("deliver_subject"))
    wanted.setdefault("ack_policy", "none" if push else "explicit")
    wanted.setdefault("deliver_policy", "all")
    wanted.setdefault("replay_policy", "instant")
    return {key: value for key, value in wanted.items() if value not in ("", None)}


@flagged(CONSUMER_COPY)
def copy(
    session: Session,
    given: Given,
    stream: Annotated[str, Argument(metavar="STREAM", help="the stream of both consumers")],
    source: Annotated[str, Argument(metavar="SOURCE", help="the consumer to copy the configuration from")],
    destination: Annotated[str, Argument(metavar="DESTINATION", help="the consumer to create")],
    ephemeral: Ephemeral = False,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a consumer with the configuration of another, adjusted by flags; its position is not copied."""
    wanted = dict(live_consumer(session, stream, source).raw["config"])
    if "metadata" in wanted:
        wanted["metadata"] = copied_metadata(wanted["metadata"])
    if is_zero(wanted.get("pause_until")):
        wanted.pop("pause_until", None)
    name_it(wanted, destination, ephemeral)
    apply(wanted, CONSUMER_COPY, given)
    settle(wanted, given)
    create_consumer(session, stream, wanted, if_not_exists=if_not_exists, json=json)


ACK_CHOICES = (("explicit", "explicit"), ("all", "all"), ("none", "none"))
REPLAY_CHOICES = (("instant", "instant"), ("original", "original"))
BACKOFF_CHOICES = (("linear", "linear"), ("none", "none"))


def prompt_consumer_name() -> str:
    help = "The name that the durable consumer will have. Settable as the second argument"
    return str(prompt(Question("Consumer name", help, required=True, read=asset_name)))


def prompt_consumer(config: Config, given: Given) -> None:
    """Ask for everything that was not given, and add the answers to the configuration and to the given flags."""
    dialogue = FlagDialogue(CONSUMER_FLAGS, config, given)
    if not given.get("--pull"):
        dialogue.ask("--target", "Delivery target (empty for Pull Consumers)")
    push = bool(config.get("deliver_subject"))
    if push:
        dialogue.ask("--deliver-group", "Delivery Queue Group")
    dialogue.ask("--deliver", "Start policy (all, new, last, subject, 1h, msg sequence)", "all")
    dialogue.ask("--ack", "Acknowledgment policy", "none" if push else "explicit", ACK_CHOICES)
    dialogue.ask("--replay", "Replay policy", "instant", REPLAY_CHOICES)
    dialogue.ask("--filter", "Filter Stream by subjects (blank for all)")
    acks = config.get("ack_policy") != "none"
    if acks:
        dialogue.ask("--max-deliver", "Maximum Allowed Deliveries", "-1")
        dialogue.ask("--max-pending", "Maximum Acknowledgments Pending", "0")
    if push:
        dialogue.ask("--heartbeat", "Idle Heartbeat", "0s")
        dialogue.confirm("--flow-control", "Enable Flow Control, ie --flow-control")
        if config.get("flow_control") and not config.get("idle_heartbeat"):  # the server accepts it only with both
            needed = "Idle Heartbeat, which Flow Control needs"
            _heartbeat(config, dialogue.value("--heartbeat", needed, "5s", check=_check_heartbeat))
    dialogue.confirm("--headers-only", "Deliver headers only without bodies")
    if acks and "--backoff" not in given:
        _prompt_backoff(dialogue, given)


def _check_heartbeat(length_ns: int) -> None:
    if length_ns <= 0:
        raise ValueError("expected a duration above zero")


def _prompt_backoff(dialogue: FlagDialogue, given: Given) -> None:
    if not prompt_confirm("Add a Retry Backoff Policy", False, dialogue.help("--backoff")):
        return
    kind = dialogue.value("--backoff", "Backoff policy", "linear", BACKOFF_CHOICES)
    if kind == "none":
        return
    given["--backoff"] = kind
    for name, text, default in (
        ("--backoff-min", "Minimum retry time", "1m"),
        ("--backoff-max", "Maximum retry time", "10m"),
        ("--backoff-steps", "Number of steps to generate in the policy", "20"),
    ):
        given[name] = dialogue.value(name, text, default)
