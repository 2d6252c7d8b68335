"""Example command lines by topic: `natsctl cheat`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from natsctl.api.errors import ExitCode, NatsctlError, UsageError
from natsctl.api.model import Model
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.flags import Json, session_of


class TopicText(NamedTuple):
    """Lines about one thing: pairs of what a line does, and the line."""

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
            ("which subjects it holds", "natsctl stream subjects ORDERS"),
            ("one message, and the last one of a subject", "natsctl stream get ORDERS 1"),
            ("", "natsctl stream get ORDERS --last-for ORDERS.new"),
            ("see what a change would do; 10 says that it differs", "natsctl stream edit ORDERS --max-age 30d -f"),
            ("take a setting away again", "natsctl stream edit ORDERS --unset max-age -f"),
            ("keep the configuration as a file, and make a stream of it", "natsctl stream info ORDERS -j"),
            (
                "another stream like it, on other subjects",
                "natsctl stream copy ORDERS ARCHIVE --subjects 'ARCHIVE.*' --max-age 2y",
            ),
            ("what a purge would remove, without removing it", "natsctl stream purge ORDERS --keep 2 --dry-run"),
            ("remove old messages, one message, and the stream", "natsctl stream purge ORDERS --keep 2 -f"),
            ("", "natsctl stream rmm ORDERS 5 -f"),
            ("", "natsctl stream rm ORDERS -f"),
            ("a stream that may be gone already", "natsctl stream rm ORDERS -f --missing-ok"),
        ),
    ),
    TopicText(
        "consumer",
        "create consumers, read with them, pause and remove them",
        (
            ("something to read", _MADE),
            ("", _SOME),
            ("a consumer that work is pulled from", "natsctl consumer add ORDERS NEW --pull --filter ORDERS.new"),
            (
                "a consumer that pushes to a subject",
                "natsctl consumer add ORDERS MONITOR --target monitor.ORDERS --ack none --deliver last",
            ),
            ("take a message and acknowledge it", "natsctl consumer next ORDERS NEW"),
            ("take two, as one JSON document per line", "natsctl consumer next ORDERS NEW --count 2 -j"),
            ("a batch with a single request", "natsctl consumer fetch ORDERS NEW --count 2 --wait 1s"),
            ("where it stands", "natsctl consumer info ORDERS NEW"),
            ("all of them", "natsctl consumer report ORDERS"),
            ("stop and start deliveries", "natsctl consumer pause ORDERS NEW 1h -f"),
            ("", "natsctl consumer resume ORDERS NEW -f"),
            ("deliver more often, and nothing else", "natsctl consumer edit ORDERS NEW --max-deliver 20 -f"),
            ("another one like it, from its own start", "natsctl consumer copy ORDERS NEW AGAIN"),
            ("remove it", "natsctl consumer rm ORDERS NEW -f"),
        ),
    ),
    TopicText(
        "publish",
        "publish messages, with headers, many, into streams",
        (
            ("a message", "natsctl publish greetings hello"),
            ("with headers", "natsctl publish greetings hello -H Lang:en -H Tone:kind"),
            ("stdin, where no body is given", "natsctl publish greetings"),
            ("a stream that stores", _MADE),
            ("wait until the stream has it", "natsctl publish ORDERS.new 'order 1' --jetstream"),
            ("an id, so that it is stored once", "natsctl publish ORDERS.new 'order 2' -J -H Nats-Msg-Id:2"),
            ("many, numbered", _SOME),
            ("for scripts", "natsctl publish ORDERS.new 'order 3' -J -j"),
        ),
    ),
    TopicText(
        "subscribe",
        "show messages, live and stored",
        (
            ("something stored", _MADE),
            ("", _SOME),
            ("what comes, until three have come", "natsctl subscribe 'greetings.>' --count 3 &"),
            ("", "natsctl publish greetings.world hello --count 3 --quiet"),
            ("what is stored, then end", "natsctl subscribe --stream ORDERS --all --terminate-at-end"),
            ("the last message of each subject", "natsctl subscribe 'ORDERS.>' --last-per-subject --count 1"),
            ("bodies only, one JSON document per line", "natsctl subscribe --stream ORDERS --all --count 2 -j"),
            ("until nothing comes for a second", "natsctl subscribe --stream ORDERS --all --count 5 --wait 1s"),
        ),
    ),
    TopicText(
        "request",
        "ask and answer",
        (
            ("answer two requests with what they asked", "natsctl reply 'service.echo' --echo --count 2 &"),
            ("ask; 5 says that nobody answers", "natsctl request service.echo hello"),
            ("for scripts", "natsctl request service.echo hello -j"),
            ("the JetStream API is asked the same way", "natsctl request '$JS.API.INFO'"),
        ),
    ),
    TopicText(
        "kv",
        "key-value buckets",
        (
            ("a bucket with some history", "natsctl kv add CFG --history 5"),
            ("set and read", "natsctl kv put CFG color blue"),
            ("", "natsctl kv get CFG color --raw"),
            ("set only what is new, or what nobody changed", "natsctl kv create CFG size 10"),
            ("", "natsctl kv update CFG color red 1"),
            ("what is there, and what was", "natsctl kv ls CFG -v"),
            ("", "natsctl kv history CFG color"),
            ("what changes, until a second passes without", "natsctl kv watch CFG --count 2"),
            ("go back", "natsctl kv revert CFG color 1 --force"),
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
            ("what is there", "natsctl object ls FILES"),
            ("", "natsctl object info FILES notes.txt"),
            ("fetch it", "natsctl object get FILES notes.txt --output copy.txt"),
            ("delete it, and the bucket", "natsctl object del FILES notes.txt -f"),
            ("", "natsctl object del FILES --all -f"),
        ),
    ),
    TopicText(
        "backup",
        "save streams, look into what was saved, bring them back",
        (
            ("something to save", _MADE),
            ("", _SOME),
            ("one stream, as a folder or as one file", "natsctl stream backup ORDERS saved"),
            ("", "natsctl stream backup ORDERS orders.tgz"),
            ("check it without a server", "natsctl backup verify saved"),
            ("look into it without a server", "natsctl backup inspect saved"),
            ("", "natsctl backup cat saved"),
            ("remove it, and bring it back", "natsctl stream rm ORDERS -f"),
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
            ("something that is there", _MADE),
            ("", "natsctl kv add CFG --history 5"),
            ("all of it as a document, to begin with", "natsctl export --output account.yaml"),
            ("check a document without a server", "natsctl validate -f account.yaml"),
            ("what would be done; 0 nothing, 10 something", "natsctl plan -f account.yaml"),
            ("somebody changes something", "natsctl stream edit ORDERS --max-msgs 7 -f"),
            ("a plan to look at, and to carry out as it is", "natsctl plan -f account.yaml --out fix.json"),
            ("", "natsctl apply --plan fix.json"),
            ("without asking twice: again is nothing to do", "natsctl apply -f account.yaml"),
            ("only what differs", "natsctl diff -f account.yaml"),
            ("remove what the document describes", "natsctl destroy -f account.yaml --adopt --yes"),
        ),
    ),
    TopicText(
        "context",
        "servers and logins by name",
        (
            ("a name for a server", "natsctl context add lab -s nats://lab:4222 --description 'the lab'"),
            ("with a login that is not on the command line", "natsctl context add prod --creds ~/prod.creds"),
            ("what there is", "natsctl context ls"),
            ("use one from now on, or for one command", "natsctl context select lab"),
            ("", "natsctl context info"),
            ("and back", "natsctl context select prod"),
            ("", "natsctl context previous"),
            ("change it", "natsctl context edit lab --js-domain hub"),
            ("check it", "natsctl context validate lab"),
            ("no context, and remove it", "natsctl context unselect"),
            ("", "natsctl context rm lab -f"),
        ),
    ),
    TopicText(
        "server",
        "is it there, is it well, how quick is it",
        (
            ("what the account has and may use", "natsctl account info"),
            ("for monitoring: 0 OK, 1 warning, 2 critical", "natsctl server check connection"),
            ("", "natsctl server check jetstream --format json"),
            ("round trips", "natsctl rtt"),
            ("how much it takes", "natsctl bench pub bench.test --msgs 1000 --size 128"),
            ("what it tells of streams that are made", "natsctl events --js-advisory --count 1 --wait 10s &"),
            ("", _MADE),
        ),
    ),
    TopicText(
        "script",
        "what a script relies on",
        (
            ("never ask; -j is one JSON document on stdout", "natsctl stream ls -j --no-input"),
            ("names only", "natsctl stream ls -n"),
            ("make what may exist", f"{_MADE} --if-not-exists -j"),
            ("remove what may be gone", "natsctl stream rm GONE -f --missing-ok"),
            ("what would be sent", f"{_MADE} --max-age 1d --dry-run"),
            ("times in UTC", "natsctl stream info ORDERS --utc"),
            ("what a command prints, as a JSON schema", "natsctl schema ls --commands"),
            ("", "natsctl schema info stream_info_response"),
            ("what an error number means", "natsctl errors lookup 10059"),
            ("every request and answer, on stderr", "natsctl stream info ORDERS --trace -j"),
        ),
    ),
)


class Line(Model, kw_only=True):
    """One command line and what it does; one that ends in `&` runs beside those that follow."""

    about: str
    command: str


class Topic(Model, kw_only=True):
    """The lines about one thing, in an order in which they can be run."""

    name: str
    title: str
    lines: list[Line]


class UnknownTopicError(NatsctlError):
    """There is no such topic."""

    exit_code = ExitCode.NOT_FOUND


def cheat(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="one of the listed topics")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="show every topic")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="list the names of the topics")] = False,
    save: Annotated[
        str, typer.Option("--save", metavar="FOLDER", help="write each topic to a file in this folder")
    ] = "",
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
        from natsctl.cli.help import columns

        output.emit("\n".join(columns([(one.name, one.title) for one in found])))
        output.note("natsctl cheat TOPIC shows its examples")


def _named(name: str) -> TopicText:
    found = next((one for one in TOPICS if one.name == name.lower()), None)
    if found is None:
        from natsctl.cli.resolve import did_you_mean

        names = [one.name for one in TOPICS]
        raise UnknownTopicError(f"no topic {name}", hint=did_you_mean(name, names) or f"there are {', '.join(names)}")
    return found


def text(topic: TopicText) -> str:
    """Return the lines of a topic, each below a comment that says what it does."""
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
