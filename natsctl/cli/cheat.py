"""Example command lines by topic: `natsctl cheat`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from natsctl.api.errors import ExitCode, NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, session_of
from natsctl.cli.framework.parameters import Argument, Context, Option


class TopicText(NamedTuple):
    """Command lines on one topic, as pairs of description and line."""

    name: str
    title: str
    lines: tuple[tuple[str, str], ...]


_SOME = "natsctl publish ORDERS.new 'order {{Count}}' --count 5 --jetstream --quiet"
_MADE = "natsctl stream add ORDERS --subjects 'ORDERS.*'"

TOPICS = (
    TopicText(
        "stream",
        "create, fill, look into, change and remove streams",
        (
            ("create a stream that keeps a year of orders", f"{_MADE} --max-age 1y"),
            ("the same in a script that may run twice", f"{_MADE} --if-not-exists"),
            ("store a few messages", _SOME),
            ("all streams, and only their names", "natsctl stream ls"),
            ("for scripts: names, or whole objects", "natsctl stream ls -j --details"),
            ("configuration and state", "natsctl stream info ORDERS"),
            ("its subjects", "natsctl stream subjects ORDERS"),
            ("one message, and the last one of a subject", "natsctl stream get ORDERS 1"),
            ("", "natsctl stream get ORDERS --last-for ORDERS.new"),
            ("change a setting", "natsctl stream edit ORDERS --max-age 30d -f"),
            ("unset a field", "natsctl stream edit ORDERS --unset max-age -f"),
            ("save the configuration as a file, and create a stream from it", "natsctl stream info ORDERS -j"),
            (
                "another stream like it, on other subjects",
                "natsctl stream copy ORDERS ARCHIVE --subjects 'ARCHIVE.*' --max-age 2y",
            ),
            ("preview a purge", "natsctl stream purge ORDERS --keep 2 --dry-run"),
            ("remove old messages, one message, and the stream", "natsctl stream purge ORDERS --keep 2 -f"),
            ("", "natsctl stream rmm ORDERS 5 -f"),
            ("", "natsctl stream rm ORDERS -f"),
            ("remove a stream that may not exist", "natsctl stream rm ORDERS -f --missing-ok"),
        ),
    ),
    TopicText(
        "consumer",
        "create consumers, read with them, pause and remove them",
        (
            ("a stream with messages", _MADE),
            ("", _SOME),
            ("a pull consumer", "natsctl consumer add ORDERS NEW --pull --filter ORDERS.new"),
            (
                "a consumer that pushes to a subject",
                "natsctl consumer add ORDERS MONITOR --target monitor.ORDERS --ack none --deliver last",
            ),
            ("take a message and acknowledge it", "natsctl consumer next ORDERS NEW"),
            ("take two, as one JSON document per line", "natsctl consumer next ORDERS NEW --count 2 -j"),
            ("a batch with a single request", "natsctl consumer fetch ORDERS NEW --count 2 --wait 1s"),
            ("its position", "natsctl consumer info ORDERS NEW"),
            ("all of them", "natsctl consumer report ORDERS"),
            ("pause and resume deliveries", "natsctl consumer pause ORDERS NEW 1h -f"),
            ("", "natsctl consumer resume ORDERS NEW -f"),
            ("deliver more often, and nothing else", "natsctl consumer edit ORDERS NEW --max-deliver 20 -f"),
            ("a copy, with a position of its own", "natsctl consumer copy ORDERS NEW AGAIN"),
            ("remove it", "natsctl consumer rm ORDERS NEW -f"),
        ),
    ),
    TopicText(
        "publish",
        "publish messages, with headers, many, into streams",
        (
            ("a message", "natsctl publish greetings hello"),
            ("with headers", "natsctl publish greetings hello -H Lang:en -H Tone:kind"),
            ("a body from stdin", "natsctl publish greetings"),
            ("a stream for the messages", _MADE),
            ("wait for the stream's ack", "natsctl publish ORDERS.new 'order 1' --jetstream"),
            ("a message id, so that it is stored once", "natsctl publish ORDERS.new 'order 2' -J -H Nats-Msg-Id:2"),
            ("many, numbered", _SOME),
            ("for scripts", "natsctl publish ORDERS.new 'order 3' -J -j"),
        ),
    ),
    TopicText(
        "subscribe",
        "show messages, live and stored",
        (
            ("a stream with messages", _MADE),
            ("", _SOME),
            ("three messages as they arrive", "natsctl subscribe 'greetings.>' --count 3 &"),
            ("", "natsctl publish greetings.world hello --count 3 --quiet"),
            ("the stored messages", "natsctl subscribe --stream ORDERS --all --terminate-at-end"),
            ("the last message of each subject", "natsctl subscribe 'ORDERS.>' --last-per-subject --count 1"),
            ("bodies only, one JSON document per line", "natsctl subscribe --stream ORDERS --all --count 2 -j"),
            ("until no message arrives for a second", "natsctl subscribe --stream ORDERS --all --count 5 --wait 1s"),
        ),
    ),
    TopicText(
        "request",
        "requests and replies",
        (
            ("echo two requests", "natsctl reply 'service.echo' --echo --count 2 &"),
            ("a request; exit status 5 means no responder", "natsctl request service.echo hello"),
            ("for scripts", "natsctl request service.echo hello -j"),
            ("a request to the JetStream API", "natsctl request '$JS.API.INFO'"),
        ),
    ),
    TopicText(
        "kv",
        "key-value buckets",
        (
            ("a bucket with some history", "natsctl kv add CFG --history 5"),
            ("set and read", "natsctl kv put CFG color blue"),
            ("", "natsctl kv get CFG color --raw"),
            ("set a key only if it is new, or unchanged", "natsctl kv create CFG size 10"),
            ("", "natsctl kv update CFG color red 1"),
            ("keys with values, and their history", "natsctl kv ls CFG -v"),
            ("", "natsctl kv history CFG color"),
            ("what changes, until a second passes without", "natsctl kv watch CFG --count 2"),
            ("restore an earlier value", "natsctl kv revert CFG color 1 --force"),
            ("delete a key, its history, the bucket", "natsctl kv del CFG size -f"),
            ("", "natsctl kv purge CFG color -f"),
            ("", "natsctl kv del CFG --all -f"),
        ),
    ),
    TopicText(
        "object",
        "files in object buckets",
        (
            ("a bucket", "natsctl object add FILES"),
            ("keep a file of one's own", "natsctl schema info stream_configuration --yaml"),
            ("store it under a name", "natsctl object put FILES notes.txt"),
            ("the objects", "natsctl object ls FILES"),
            ("", "natsctl object info FILES notes.txt"),
            ("fetch it", "natsctl object get FILES notes.txt --output copy.txt"),
            ("delete it, and the bucket", "natsctl object del FILES notes.txt -f"),
            ("", "natsctl object del FILES --all -f"),
        ),
    ),
    TopicText(
        "backup",
        "back up streams, inspect backups, restore",
        (
            ("a stream with messages", _MADE),
            ("", _SOME),
            ("one stream, as a folder or as one file", "natsctl stream backup ORDERS saved"),
            ("", "natsctl stream backup ORDERS orders.tgz"),
            ("check it without a server", "natsctl backup verify saved"),
            ("inspect it without a server", "natsctl backup inspect saved"),
            ("", "natsctl backup cat saved"),
            ("a copy to share: names are hashed, bodies zeroed", "natsctl backup edit saved shared --obfuscate"),
            ("what a hash stood for", "natsctl backup lookup shared.keys.json e8g0nh0n9reafabq"),
            ("remove the stream, and restore it", "natsctl stream rm ORDERS -f"),
            ("", "natsctl stream restore saved"),
            ("the whole account, and back", "natsctl account backup all"),
            ("", "natsctl account restore all --on-existing skip"),
            ("configuration only, as JSON", "natsctl backup config"),
            ("", "natsctl restore config --update-streams"),
        ),
    ),
    TopicText(
        "documents",
        "streams, consumers and buckets as files: plan, apply, find drift",
        (
            ("a stream and a bucket", _MADE),
            ("", "natsctl kv add CFG --history 5"),
            ("the account as a document", "natsctl export --output account.yaml"),
            ("check a document without a server", "natsctl validate -f account.yaml"),
            ("preview the changes; exit status 10 if there are any", "natsctl plan -f account.yaml"),
            ("a change of the stream", "natsctl stream edit ORDERS --max-msgs 7 -f"),
            ("a saved plan, applied as it is", "natsctl plan -f account.yaml --out fix.json"),
            ("", "natsctl apply --plan fix.json"),
            ("apply the document; a second run changes nothing", "natsctl apply -f account.yaml"),
            ("only the differences", "natsctl diff -f account.yaml"),
            ("remove what the document describes", "natsctl destroy -f account.yaml --adopt --yes"),
        ),
    ),
    TopicText(
        "context",
        "servers and logins by name",
        (
            ("a name for a server", "natsctl context add lab -s nats://lab:4222 --description 'the lab'"),
            ("with a login that is not on the command line", "natsctl context add prod --creds ~/prod.creds"),
            ("list them", "natsctl context ls"),
            ("use one from now on, or for one command", "natsctl context select lab"),
            ("", "natsctl context info"),
            ("select the previous one", "natsctl context select prod"),
            ("", "natsctl context previous"),
            ("change it", "natsctl context edit lab --js-domain hub"),
            ("check it", "natsctl context validate lab"),
            ("no context, and remove it", "natsctl context unselect"),
            ("", "natsctl context rm lab -f"),
        ),
    ),
    TopicText(
        "server",
        "health and speed of servers",
        (
            ("use and limits of the account", "natsctl account info"),
            ("for monitoring: 0 OK, 1 warning, 2 critical", "natsctl server check connection"),
            ("", "natsctl server check jetstream --format json"),
            ("round trips", "natsctl rtt"),
            ("throughput", "natsctl bench pub bench.test --msgs 1000 --size 128"),
            ("advisories of streams that are created", "natsctl events --js-advisory --count 1 --wait 10s &"),
            ("", _MADE),
        ),
    ),
    TopicText(
        "script",
        "flags for scripts",
        (
            ("never ask; -j is one JSON document on stdout", "natsctl stream ls -j --no-input"),
            ("names only", "natsctl stream ls -n"),
            ("create what may exist", f"{_MADE} --if-not-exists -j"),
            ("remove what may not exist", "natsctl stream rm GONE -f --missing-ok"),
            ("preview the requests", f"{_MADE} --max-age 1d --dry-run"),
            ("times in UTC", "natsctl stream info ORDERS --utc"),
            ("the JSON schema of a command's output", "natsctl schema ls --commands"),
            ("", "natsctl schema info stream_info_response"),
            ("explain an error number", "natsctl errors lookup 10059"),
            ("every request and answer, on stderr", "natsctl stream info ORDERS --trace -j"),
        ),
    ),
)


class Line(Model, kw_only=True):
    """One command line and what it does; one that ends in `&` runs beside those that follow."""

    about: str
    command: str


class Topic(Model, kw_only=True):
    """The lines on one topic, in an order in which they can be run."""

    name: str
    title: str
    lines: list[Line]


class UnknownTopicError(NatsctlError):
    """There is no such topic."""

    exit_code = ExitCode.NOT_FOUND


def cheat(
    ctx: Context,
    topic: Annotated[str, Argument(metavar="TOPIC", help="one of the listed topics")] = "",
    everything: Annotated[bool, Option("--all", "-a", help="show every topic")] = False,
    list_only: Annotated[bool, Option("--list", help="list the names of the topics")] = False,
    save: Annotated[str, Option("--save", metavar="FOLDER", help="write each topic to a file in this folder")] = "",
    json: Json = False,
) -> None:
    """Show example command lines by topic; each runs as it stands."""
    found = [_named(topic)] if topic else list(TOPICS)
    if save:
        _save(found, Path(save), dry_run=session_of(ctx).dry_run)
    if json:
        output.emit_json(msgspec.to_builtins([_document(one) for one in found]))
    elif list_only:
        output.emit_names(one.name for one in found)
    elif topic or everything:
        output.emit("\n\n".join(text(one) for one in found))
    elif not save:
        from natsctl.cli.framework.help import columns

        output.emit("\n".join(columns([(one.name, one.title) for one in found])))
        output.note("natsctl cheat TOPIC shows its examples")


def _named(name: str) -> TopicText:
    found = next((one for one in TOPICS if one.name == name.lower()), None)
    if found is None:
        from natsctl.cli.framework.resolve import did_you_mean

        names = [one.name for one in TOPICS]
        raise UnknownTopicError(f"no topic {name}", hint=did_you_mean(name, names) or f"there are {', '.join(names)}")
    return found


def text(topic: TopicText) -> str:
    """Return the lines of a topic, each below a comment that describes it."""
    lines = [f"# {topic.title}"]
    for about, line in topic.lines:
        if about:
            lines += ["", f"# {about}"]
        lines.append(line)
    return "\n".join(lines)


def _document(topic: TopicText) -> Topic:
    lines = [Line(about=about, command=line) for about, line in topic.lines]
    return Topic(name=topic.name, title=topic.title, lines=lines)


def _save(found: list[TopicText], folder: Path, *, dry_run: bool) -> None:
    files = [(folder / f"natsctl-{one.name}", f"{text(one)}\n") for one in found]
    if dry_run:
        from natsctl.client.message import DryRunError, Planned

        raise DryRunError(*(Planned(str(path), content.encode()) for path, content in files))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files:
            path.write_text(content, encoding="utf-8")
    except OSError as failure:
        raise UsageError(f"--save {folder}: {failure.strerror or failure}") from failure
    output.note(f"wrote {plural(len(files), 'file')} to {folder}")
