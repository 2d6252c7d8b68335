"""The entry point: finds the noun in a static table, loads only its module, and ends with the design's exit codes.

`natsctl --help` and `--version` come from the tables alone, without Typer.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Noun(NamedTuple):
    """A first word of the command line.

    `where` is what it stands for, as in a row of verbs: a package with `VERBS`, or a command of its own. `alone` is the
    command of a noun with verbs that may also go without one.
    """

    name: str
    aliases: tuple[str, ...]
    help: str
    where: str
    alone: str = ""
    examples: tuple[str, ...] = ()
    answer: str = ""
    """What -j prints where the noun is a command, as in a row of verbs."""


NOUNS = (
    Noun("account", ("a", "act"), "Show JetStream use and limits of the account", "account"),
    Noun("stream", ("str", "st", "s", "ms"), "Create, list, show, edit, purge, back up and remove streams", "stream"),
    Noun("consumer", ("con", "obs", "c"), "Create, list, show, read from and remove consumers", "consumer"),
    Noun(
        "publish",
        ("pub",),
        "Publish messages",
        "messaging.publish:publish",
        examples=(
            'natsctl publish ORDERS.new "hello" --wait',
            "cat order.json | natsctl publish ORDERS.new",
        ),
        answer="messaging.publish:Published|PubAck*",
    ),
    Noun(
        "request",
        ("req",),
        "Send a request and show its answers",
        "messaging.request_reply:request",
        examples=("natsctl request ORDERS.new hello",),
        answer="messaging.request_reply:Response*",
    ),
    Noun(
        "subscribe",
        ("sub",),
        "Show messages as they arrive",
        "messaging.subscribe:subscribe",
        examples=('natsctl subscribe "ORDERS.*" --count 3',),
        answer="messaging.bodies:Message*|messaging.subscribe:Counted[]",
    ),
    Noun("kv", (), "Create key-value buckets, read, write and watch their keys", "kv"),
    Noun("object", ("obj",), "Create object buckets, store files in them and fetch them", "object"),
    Noun(
        "reply",
        (),
        "Answer requests with a text, an echo or a program",
        "messaging.request_reply:reply",
        examples=(
            "natsctl reply time.now --command date",
            "natsctl reply 'weather.>' --command \"curl -s wttr.in/{{1}}?format=3\"",
        ),
        answer="messaging.request_reply:Answered*",
    ),
    Noun(
        "trace",
        (),
        "Show which servers, clients and streams a message reaches",
        "messaging.request_reply:trace",
        examples=("natsctl trace ORDERS.new",),
        answer="messaging.request_reply:Traced",
    ),
    Noun(
        "events",
        ("event", "e"),
        "Show advisories and metrics as they arrive",
        "events:events",
        examples=(
            "natsctl events --short",
            "natsctl events --js-metric --consumer ORDERS.NEW --count 1 -j",
        ),
        answer="messaging.receive:Happened*|messaging.receive:CloudEvent*",
    ),
    Noun(
        "backup",
        (),
        "Back up every stream's configuration, with --data also messages, and look into backups",
        "backup",
        alone="backup.accounts:backup",
        examples=("natsctl backup ./saved --data",),
        answer="backup.answers:ConfigurationBackup",
    ),
    Noun(
        "restore",
        (),
        "Restore a configuration backup",
        "backup.accounts:restore",
        examples=("natsctl restore ./saved --update-streams",),
        answer="backup.answers:ConfigurationBackup",
    ),
    Noun(
        "validate",
        (),
        "Check documents of streams, consumers and buckets without a server",
        "desired.sources:validate",
        answer="desired.sources:Validated",
        examples=("natsctl validate -f orders.yaml", "natsctl validate -f deploy/ --var ENV=staging -j"),
    ),
    Noun(
        "export",
        (),
        "Write the account, or some of its streams, as documents",
        "desired.export:export",
        answer="plan.export.export:PlainDocument|plan.export.export:TypedDocument[]|plan.export.folder:FilesWritten",
        examples=(
            "natsctl export > account.yaml",
            "natsctl export 'ORDERS*' --output streams/ --force",
        ),
    ),
    Noun("convert", (), "Convert Terraform or Kubernetes configurations to documents", "desired.convert"),
    Noun(
        "plan",
        (),
        "Show what apply would change",
        "desired.plan:plan",
        answer="plan.saved:SavedPlan",
        examples=("natsctl plan -f orders.yaml", "natsctl plan -f deploy/ --prune --out changes.json"),
    ),
    Noun(
        "diff",
        (),
        "Show how streams, consumers and buckets differ from documents",
        "desired.plan:diff",
        answer="desired.plan:Drift",
        examples=("natsctl diff -f orders.yaml",),
    ),
    Noun(
        "apply",
        (),
        "Create and change streams, consumers and buckets as documents describe",
        "desired.apply:apply",
        answer="desired.apply:Applied",
        examples=(
            "natsctl apply -f orders.yaml",
            "natsctl apply -f deploy/ --prune --owner shop",
            "natsctl apply --plan changes.json",
        ),
    ),
    Noun(
        "destroy",
        (),
        "Remove the streams, consumers and buckets that documents describe",
        "desired.apply:destroy",
        answer="desired.apply:Applied",
        examples=("natsctl destroy -f orders.yaml --yes",),
    ),
    Noun(
        "sql",
        (),
        "Query streams, buckets and backups with SQL",
        "sql:sql",
        answer="cli.sql:Rows|cli.sql:Explained",
        examples=(
            'natsctl sql "select subject, count(*) from ORDERS group by 1"',
            "natsctl sql 'select string(value) from ORDERS where seq > 100' --limit 9 -j",
            "natsctl sql @report.sql --csv",
        ),
    ),
    Noun("pipeline", (), "Keep tables and streams up to date with Spark's Declarative Pipelines", "pipeline"),
    Noun("spark", (), "Check that Spark can run here, and make it start faster", "spark"),
    Noun("errors", ("err", "error"), "Explain JetStream's errors by number", "errors"),
    Noun("schema", (), "Show the JSON schemas of -j and of the API, and validate documents", "schema"),
    Noun(
        "cheat",
        (),
        "Show example command lines by topic",
        "cheat:cheat",
        examples=("natsctl cheat stream",),
        answer="cheat:Topic[]",
    ),
    Noun("completion", (), "Install or print shell completion for bash, zsh and fish", "completion"),
    Noun("context", ("ctx",), "Create, list, choose and check contexts: servers and logins by name", "context"),
    Noun("server", ("srv", "sys", "system"), "Run natsctl's own server, inspect and manage others", "server"),
    Noun("bench", (), "Benchmark a server: publishing, subscribing, streams, buckets, services", "bench"),
    Noun("counter", ("ctr",), "Read and change counters that are kept in streams", "counter"),
    Noun("service", ("micro",), "List, query and run services of the micro protocol", "service"),
    Noun(
        "rtt",
        (),
        "Measure round trips to every address of the servers",
        "latency:rtt",
        answer="client.rtt:Trips[]",
        examples=("natsctl rtt 10",),
    ),
    Noun(
        "latency",
        ("lat",),
        "Measure how long messages take between two servers",
        "latency:latency",
        answer="client.latency:LatencyReport",
        examples=("natsctl latency --server-b other:4222 --rate 5000 --duration 10s",),
    ),
    Noun(
        "top",
        (),
        "Show a server's activity and its connections, live",
        "top:top",
        answer="client.system.top:TopView*",
        examples=("natsctl top SRV1 --sort msgs_to", "natsctl top -o connections.csv"),
    ),
    Noun("tour", (), "Run the ORDERS scenario from start to end on a temporary server", "tour:tour"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    # Nothing that is imported becomes garbage; collection starts again when the command starts its work.
    gc.disable()
    _open_missing()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Boxes, arrows and names must not fail where the output is not UTF-8; stderr is that way already.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_missing() -> None:
    """Put the null device where the caller closed stdin, stdout or stderr, before a socket gets the free number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free number is this one, as those below are open by now.
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115, PTH123  # stays open


def run(words: list[str]) -> int:
    """The exit code of one command line; what it has to say was written to stdout and stderr."""
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()  # whoever read us has gone and wants no more
        return 0
    except KeyboardInterrupt:
        from natsctl.api.exit_codes import ExitCode

        return ExitCode.INTERRUPTED
    except Exception as failure:
        return _failed(failure, words)
    return code


def _failed(failure: Exception, words: Sequence[str]) -> int:
    """The exit code of a failure, told on stderr; what is no NatsctlError shows its traceback under --trace."""
    from natsctl.api.errors import NatsctlError, UsageError
    from natsctl.cli.globals import wants_json
    from natsctl.cli.output import exit_code_of, laid_out, render_error, stderr_width, tell

    if isinstance(failure, UnicodeEncodeError):
        # Words that are no text reach as far as the wire or a file, as bodies and paths may be any bytes.
        near = failure.object[max(0, failure.start - 20) : failure.end + 20]
        failure = UsageError(f"not UTF-8 text: {near.encode('utf-8', 'backslashreplace').decode()}")
    if "--trace" in words and not isinstance(failure, NatsctlError):
        import traceback

        traceback.print_exception(failure)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    as_json = wants_json(words)
    tell(laid_out(render_error(failure, as_json), None if as_json else stderr_width()))
    return exit_code_of(failure)


def _drop_stdout() -> None:
    """Send what is left of stdout nowhere: flushed once more at exit, it would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words in (["--help"], ["-h"], ["help"]):
        return _show_root_help()
    if words[0] == "__complete":
        from natsctl.cli.completion.entry import answer

        return answer(words[1:])
    if words[:2] == ["server", "run"]:
        return _serve(words[2:])
    if words[0] == "help":
        words = [*words[1:], "--help"]
    from natsctl.cli.globals import leading

    given, rest = leading(words)
    if "version" in given:
        from natsctl import __version__

        print(__version__)
        return 0
    if not rest:
        return _show_root_help()
    noun = _noun(rest[0])
    if noun is None:
        return _run_other(rest, given)
    if [noun.name, *rest[1:2]] == ["server", "run"]:
        return _serve(rest[2:])
    from natsctl.cli.typer_run import run_noun

    return run_noun(noun, rest[1:], given)


def _serve(words: Sequence[str]) -> int:
    """The exit status of the server that `server run` asks for.

    Its flags are nats-server's, not Typer's: loading Typer would only double the time to a ready server, which itself
    enables garbage collection.
    """
    from natsctl.cli.server.provisioned import serve

    return serve(words)


def _noun(word: str) -> Noun | None:
    return next((noun for noun in NOUNS if word == noun.name or word in noun.aliases), None)


def _run_other(words: Sequence[str], given: dict[str, Any]) -> int:
    """Become the program that the first word names; raises UsageError where there is none."""
    from natsctl.cli.programs import program_of, programs, run_program

    if path := program_of(words[0]):
        run_program(path, words[1:], given)
    from natsctl.api.errors import UsageError
    from natsctl.cli.suggest import did_you_mean

    known: dict[str, Any] = {name: noun for noun in NOUNS for name in (noun.name, *noun.aliases)}
    known.update((name, name) for name in programs())
    raise UsageError(f"unknown command {words[0]!r}", hint=did_you_mean(words[0], known) or "see natsctl --help")


def _show_root_help() -> int:
    from natsctl.cli.programs import programs
    from natsctl.cli.root_help import render_root_help

    print(render_root_help(NOUNS, programs()))
    return 0
