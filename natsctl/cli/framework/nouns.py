"""Table of the nouns: the first words of a command line, as data that costs nothing to import.

The commands that they stand for are in `commands.py`.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Noun(NamedTuple):
    """A first word of the command line, its aliases and its line in root help."""

    name: str
    aliases: tuple[str, ...]
    help: str

    @property
    def words(self) -> tuple[str, ...]:
        """Return the name and its aliases."""
        return (self.name, *self.aliases)


NOUNS = (
    Noun("account", ("a", "act"), "Show JetStream use and limits of the account"),
    Noun("stream", ("str", "st", "s", "ms"), "Create, list, show, edit, purge, back up and remove streams"),
    Noun("consumer", ("con", "obs", "c"), "Create, list, show, read from and remove consumers"),
    Noun("publish", ("pub",), "Publish messages"),
    Noun("request", ("req",), "Send a request and show its answers"),
    Noun("subscribe", ("sub",), "Show messages as they arrive"),
    Noun("kv", (), "Create key-value buckets, read, write and watch their keys"),
    Noun("object", ("obj",), "Create object buckets, store files in them and fetch them"),
    Noun("reply", (), "Answer requests with a text, an echo or a program"),
    Noun("trace", (), "Show which servers, clients and streams a message reaches"),
    Noun("events", ("event", "e"), "Show advisories and metrics as they arrive"),
    Noun("backup", (), "Back up every stream's configuration, with --data also messages, and look into backups"),
    Noun("restore", (), "Restore a configuration backup"),
    Noun("migrate", (), "Move streams to another server or cluster"),
    Noun("validate", (), "Check documents of streams, consumers and buckets without a server"),
    Noun("export", (), "Write the account, or some of its streams, as documents"),
    Noun("convert", (), "Convert Terraform or Kubernetes configurations to documents"),
    Noun("plan", (), "Show what apply would change"),
    Noun("diff", (), "Show how streams, consumers and buckets differ from documents"),
    Noun("apply", (), "Create and change streams, consumers and buckets as documents describe"),
    Noun("destroy", (), "Remove the streams, consumers and buckets that documents describe"),
    Noun("sql", (), "Query streams, buckets and backups with SQL"),
    Noun("pipeline", (), "Keep tables and streams up to date with Spark's Declarative Pipelines"),
    Noun("spark", (), "Check that Spark can run here, and make it start faster"),
    Noun("errors", ("err", "error"), "Explain JetStream's errors by number"),
    Noun("schema", (), "Show the JSON schemas of -j and of the API, and validate documents"),
    Noun("cheat", (), "Show example command lines by topic"),
    Noun("completion", (), "Install or print shell completion for bash, zsh and fish"),
    Noun("context", ("ctx",), "Create, list, choose and check contexts: servers and logins by name"),
    Noun("server", ("srv", "sys", "system"), "Run natsctl's own server, inspect and manage others"),
    Noun("cluster", (), "Run a cluster of nats-servers here, or write the files of one"),
    Noun("jwt", (), "Show the claims of JWTs"),
    Noun("audit", (), "Find a deployment's faults"),
    Noun("auth", (), "Manage the operators, accounts and users of decentralised logins"),
    Noun("bench", (), "Benchmark a server: publishing, subscribing, streams, buckets, services"),
    Noun("counter", ("ctr",), "Read and change counters that are kept in streams"),
    Noun("service", ("micro",), "List, query and run services of the micro protocol"),
    Noun("rtt", (), "Measure round trips to every address of the servers"),
    Noun("latency", ("lat",), "Measure how long messages take between two servers"),
    Noun("top", (), "Show a server's activity and its connections, live"),
    Noun("tour", (), "Run the ORDERS scenario from start to end on a temporary server"),
)

HEADINGS = (
    ("Streams and their contents", ("stream", "consumer", "kv", "object", "counter")),
    ("Messages", ("publish", "subscribe", "request", "reply", "service", "trace")),
    ("Desired state", ("apply", "plan", "diff", "destroy", "validate", "export", "convert")),
    ("Streams on Spark", ("sql", "pipeline", "spark")),
    ("Backups and moves", ("backup", "restore", "migrate")),
    (
        "Servers and accounts",
        ("server", "cluster", "account", "events", "top", "rtt", "latency", "audit", "auth", "jwt", "bench"),
    ),
    ("natsctl itself", ("context", "completion", "schema", "errors", "cheat", "tour")),
)
"""Headings of root help, and the nouns below each; nouns without a heading come last."""

BY_WORD: Mapping[str, Noun] = {word: noun for noun in NOUNS for word in noun.words}
"""Every noun by its name and its aliases."""
