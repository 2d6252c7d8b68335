"""Cases that hold the rows *same* of docs/natscli.md: each line is run by `nats` and by natsctl, and compared.

Both run on one server, each in an account and a folder of its own. Compared are the exit status (0 or not), the keys
and types of what `-j` prints, which words of a vocabulary stdout has (in order of appearance), and what is stored
afterwards: configurations, states and messages of streams, consumers, and files. A row of the page is covered by a line
that uses its command or flag; `rows_of` reads them from the line.

natscli_cases.yaml has the groups. A line starts with marks: `!` fails, `*` may end with any status, `=` also prints the
same, `+` prints JSON without `-j`, `@` is run by the user of the system account, `~` ignores the order of lines and
words, `?` leaves the words out, `%` runs at a terminal until it prints the pattern `until`.
"""

import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from natsctl.testing.process import ServerProcess
from tests.support import commands
from tests.support.request_differential import Reference

WITHIN_S: Final = 10.0
PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)
LINES_AT_ONCE: Final = 6
"""Pauses before what is stored is read again if it differs: mirrors and sources follow their origins late."""
ACCOUNTS: Final = {"nats": "A", "natsctl": "B"}
CONFIG: Final = """
server_tags: ["az:1"]
http: "127.0.0.1:-1"
accounts {
  SYS { users: [{ user: s, password: p }] }
  A { jetstream: enabled, users: [{ user: a, password: p }, { user: t, password: p }] }
  B { jetstream: enabled, users: [{ user: b, password: p }] }
}
system_account: SYS
"""
_ROW: Final = re.compile(r"^\| `([^`]+)` \| (?:`[^`]+`|–) \| (same|differs on purpose|not here) \|")
_ZERO: Final = "0001-01-01T00:00:00Z"
_MARKS: Final = "!=~@?%+*"
_OWN: Final = re.compile("/natsctl/|/manifest.json$|/.natsctl.lock$")
"""Files that only natsctl writes."""
_VARYING: Final = {
    "created", "ts", "cluster", "first_ts", "last_ts", "last_active", "id", "active", "lag", "pause_remaining",
    "consumer_count", "bytes",
}  # fmt: skip
_MASKS: Final = (
    (r"\x1b\[[0-9;?]*[a-zA-Z]", ""),
    (r"\b[UANOSCX][A-Z2-7]{55,57}\b", "KEY"),
    (r"_INBOX\.[\w.]+", "INBOX"),
    (r"\b(?=\w*\d|[a-z]*[A-Z]\w*[a-z])[A-Za-z0-9]{22}\b|\b[0-9a-f]{32}\b", "NUID"),
    (r"Generated password: \S+", "Generated password: RANDOM"),
    (r"\$2a\$\d\d\$[./A-Za-z0-9]{53}", "HASH"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d{8}-\d{6}", "TIME"),
)


def masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = re.sub(pattern, mask, text)
    return text


@dataclass(frozen=True)
class Outcome:
    """How a line ended with one tool; `stored` is what a later command finds."""

    status: int
    out: str
    err: str
    stored: Any = None


@dataclass(frozen=True)
class Case:
    """A line, with what is done while it runs (until both print `until`), and what it reads from stdin.

    `during` begins when the tool has subscribed to `hears`, and has made a consumer if it `reads` from one.
    """

    line: str
    marks: str = ""
    during: Sequence[str] = ()
    until: str = ""
    stdin: str = ""
    hears: str = ""
    reads: bool = False


@dataclass
class Group:
    """Cases in order, after `setup` with the `nats` tool in both accounts."""

    name: str
    cases: list[Case]
    differs: list[Case]
    """Lines of rows that differ on purpose: something has to differ."""
    words: str = r"(?!)"
    setup: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False
    """Whether natsctl's server answers the same lines, too."""
    cluster: bool = False
    """Whether the servers are a cluster of three."""
    bodies: bool = True
    """Whether messages are compared, and not only counted."""
    login: bool = True
    """Whether the environment has the URL of the server."""
    at_once: bool = False
    """Whether lines change nothing that another one prints, so that they run side by side: most wait for servers."""


def groups_of(document: Mapping[str, Any]) -> Iterator[Group]:
    for name, given in document.items():
        rest = {key: value for key, value in given.items() if key not in ("lines", "differs")}
        lines, differs = ([*_cases(given.get(key, ()))] for key in ("lines", "differs"))
        yield Group(name, lines, differs, **rest)


def _cases(lines: Iterable[Any]) -> Iterator[Case]:
    """Read cases: each is a line, or a mapping with the line below `run`, repeated for the words of `each`."""
    for given in lines:
        row: Mapping[str, Any] = {"run": given} if isinstance(given, str) else given
        rest: dict[str, Any] = {key: value for key, value in row.items() if key not in ("run", "each")}
        for word in row.get("each", ("",)):
            line = row["run"].replace("{each}", word).lstrip(_MARKS)
            yield Case(line.strip(), row["run"][: len(row["run"]) - len(row["run"].lstrip(_MARKS))], **rest)


# Rows


def rows_of_page(page: str) -> dict[str, str]:
    """Return the kind of each row by the words of the tool."""
    return {found[1]: found[2] for line in page.splitlines() if (found := _ROW.match(line))}


class Facts:
    """Commands and flags of the tool, as its help has them."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._commands = document["commands"]
        self._paths = {
            (*path.split()[:-1], name): path
            for path, fact in self._commands.items()
            for name in (path.split()[-1], *fact.get("aliases", ()))
        }
        self._flags = {path: fact.get("flags", {}) for path, fact in self._commands.items()}
        self._flags[""] = document["global_flags"]

    def rows_of(self, line: str) -> set[str]:
        """Return the rows that a line uses: its command, those above it, and its flags."""
        words = shlex.split(line)
        path, used = "", set()
        for word in words:
            longer = self._paths.get((*path.split(), word))
            if longer is None:
                break
            path = longer
            used.add(path)
        flags = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
        return used | {row for word in flags if (row := self._row(path, word))}

    def _row(self, path: str, word: str) -> str:
        while True:
            flags = self._flags[path]
            negated = word.removeprefix("--no-")
            for name, fact in flags.items():
                short = f"-{chr(fact['short'])}" if "short" in fact else ""
                if word in (f"--{name}", short) or (negated == name and word[2:] not in flags):
                    spelled = f"{'--[no-]' if fact.get('negatable') else '--'}{name}"
                    return " ".join(part for part in (path, short, spelled) if part)
            if not path:
                return ""
            path = path.rpartition(" ")[0]


# Runs


class Side:
    def __init__(self, tool: str, folder: Path, server: ServerProcess) -> None:
        self.tool, self.folder, self.server = tool, folder / tool, server
        self.account = ACCOUNTS[tool]
        self.program = [sys.executable, "-m", "natsctl"] if tool == "natsctl" else [shutil.which("nats") or "nats"]
        self.address = urlsplit(server.url).netloc
        ports = json.loads(next(server.store_dir.glob("*.ports")).read_text())
        self._monitor = ports["monitoring"][0]
        self._messages: dict[str, tuple[Any, list[Any]]] = {}
        self.home = self.cwd = self.folder
        self.login = self._bodies = True
        self._readers = 0

    def begin(self, group: Group) -> None:
        """Give a group an empty account and a folder with its files."""
        with closing(Reference(f"nats://{self.account.lower()}:p@{self.address}")) as asked:
            while not (names := asked.ask("STREAM.NAMES")) or "error" in json.loads(names):
                time.sleep(0.1)  # a new cluster has no leader yet
            for name in json.loads(names)["streams"] or ():
                asked.ask(f"STREAM.DELETE.{name}")
        self.server.await_removals()
        self._messages.clear()
        self.home = self.folder / re.sub(r"\W", "_", group.name)
        self.cwd = self.home / "work"
        self.cwd.mkdir(parents=True)
        for name, text in group.files.items():
            (self.cwd / name).write_text(self._filled(text))
        self.login, self._bodies = True, group.bodies
        for done in self._do(group.setup):
            if done.returncode:
                raise AssertionError(f"{done.args}: {done.stdout!r} {done.stderr!r}")
        self.login = group.login

    def _filled(self, line: str) -> str:
        return line.replace("{address}", self.address).replace("{user}", self.account.lower())

    def environment(self, user: str) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG", "PATH"))}
        url = {"NATS_URL": f"nats://{user}:p@{self.address}"} if self.login else {}
        home = {name: str(self.home / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
        return {**kept, **home, **url, "HOME": str(self.home), "TERM": "dumb", "COLUMNS": "200", "EDITOR": "true"}

    def _do(self, lines: Iterable[str]) -> list[subprocess.CompletedProcess[bytes]]:
        """Run lines with the `nats` tool."""
        return [
            subprocess.run(
                [shutil.which("nats") or "nats", *shlex.split(self._filled(line.lstrip("@")))],
                env=self.environment("s" if line.startswith("@") else self.account.lower()), cwd=self.cwd,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False,
            )
            for line in lines
        ]  # fmt: skip

    def run(self, case: Case) -> Outcome:
        user = "s" if "@" in case.marks else self.account.lower()
        self._readers = self._consumers() if case.reads else 0
        words = [*self.program, *shlex.split(self._filled(case.line))]
        return Outcome(*(self._at_terminal if "%" in case.marks else self._in_pipes)(case, words, user))

    def _at_terminal(self, case: Case, words: list[str], user: str) -> tuple[int, str, str]:
        environment = {**self.environment(user), "TERM": "xterm"}
        view = commands.spawn(words, env=environment, cwd=str(self.cwd), timeout=WITHIN_S, dimensions=(60, 200))
        try:
            if case.during:
                self._subscribed(view.isalive, user, case)
                self._do(case.during)
            found = view.expect([case.until, commands.ended(), commands.late()])
            return found, "", "" if found == 0 else str(view.before)[-1500:]
        finally:
            view.close(force=True)

    def _in_pipes(self, case: Case, words: list[str], user: str) -> tuple[int, str, str]:
        printed = Path(tempfile.mkdtemp(dir=self.folder))
        with (printed / "out").open("wb+") as out, (printed / "err").open("wb+") as err:
            process = subprocess.Popen(
                words, env=self.environment(user), cwd=self.cwd, stdin=subprocess.PIPE, stdout=out, stderr=err
            )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(case.stdin.encode())
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                if case.during:
                    self._subscribed(lambda: process.poll() is None, user, case)
                    self._do(case.during)
                if case.until:
                    self._await(process, case.until, (printed / "out", printed / "err"))
                    process.send_signal(signal.SIGINT)
                    process.wait(WITHIN_S)
                    status = 0
                else:
                    status = process.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                process.kill()
                process.wait()
        texts = [(printed / name).read_text(errors="replace") for name in ("out", "err")]
        return status, texts[0], texts[1]

    def _subscribed(self, alive: Callable[[], bool], user: str, case: Case) -> None:
        """Wait until the tool has subscribed; only the library of clients tells those of the system account apart."""
        account = "SYS" if user == "s" else self.account
        until_s = time.monotonic() + WITHIN_S
        while alive() and time.monotonic() < until_s:
            connections = self._get(f"connz?acc={account}&subs=1")["connections"] or ()
            ours = [
                connection for connection in connections if (connection.get("lang") == "go") is (self.tool == "nats")
            ]
            subjects = [subject for connection in ours for subject in connection.get("subscriptions_list") or ()]
            if (
                subjects
                and re.search(case.hears, " ".join(subjects))
                and (not case.reads or self._consumers() > self._readers)
            ):
                return
            time.sleep(0.02)

    def _consumers(self) -> int:
        """Return the number of consumers without a lasting name."""
        details = self._get(f"jsz?acc={self.account}&consumers=1&config=1").get("account_details") or ()
        streams = [stream for detail in details for stream in detail.get("stream_detail") or ()]
        consumers = [consumer for stream in streams for consumer in stream.get("consumer_detail") or ()]
        return sum(not consumer["config"].get("durable_name") for consumer in consumers)

    def _await(self, process: subprocess.Popen[bytes], pattern: str, files: Iterable[Path]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while time.monotonic() < until_s:
            ended = process.poll() is not None
            if re.search(pattern, "".join(file.read_text(errors="replace") for file in files)):
                return
            if ended:
                break
            time.sleep(0.02)
        raise subprocess.TimeoutExpired(process.args, WITHIN_S)

    # What is stored

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._monitor}/{path}", timeout=WITHIN_S) as answer:
            return json.load(answer)

    def stored(self) -> Any:
        """Return streams with consumers and messages, and the files of the folder."""
        accounts = self._get(f"jsz?acc={self.account}&streams=1&consumers=1&config=1").get("account_details") or [{}]
        streams = {}
        for stream in accounts[0].get("stream_detail") or ():
            name = stream["name"]
            if not self._bodies:
                streams[name] = {"config": _steady(stream["config"]), "messages": stream["state"]["messages"]}
                continue
            if self._messages.get(name, ("",))[0] != stream["state"]:
                self._messages[name] = (stream["state"], self._read(name, stream["state"]))
            consumers = _by_name(_steady(stream.get("consumer_detail") or ()))
            streams[name] = {**_steady(stream), "consumer_detail": consumers, "messages": self._messages[name][1]}
        files = {str(file.relative_to(self.home)) for file in self.home.rglob("*") if file.is_file()}
        claims = {masked(str(file)): _claims(file.read_text()) for file in sorted(self.home.rglob("*.jwt"))}
        contexts = {file.name: _parsed(file.read_text()) for file in self.home.rglob("nats/context/*.json")}
        return {
            "streams": streams,
            "files": {re.sub(r"/[A-Z0-9]{2}/KEY", "/KEY", masked(name)): "" for name in files if not _OWN.search(name)},
            "claims": {name.removeprefix(str(self.home)): claim for name, claim in claims.items()},
            "contexts": contexts,
        }

    def _read(self, name: str, state: Mapping[str, Any]) -> list[Any]:
        found = []
        with closing(Reference(f"nats://{self.account.lower()}:p@{self.address}")) as asked:
            for seq in range(state["first_seq"], state["last_seq"] + 1)[-20:]:
                answer = json.loads(asked.ask(f"STREAM.MSG.GET.{name}", b'{"seq":%d}' % seq))
                message = answer.get("message", {})
                headers = base64.b64decode(message.get("hdrs", "")).decode()
                headers = re.sub(r"(Nats-Stream-Source: \S+ \d+).*|(?<=Nats-Incr: )\+", r"\1", headers)
                body = base64.b64decode(message.get("data", "")).decode(errors="replace")
                lines = sorted(headers.splitlines())
                found.append([masked(message.get("subject", "")), *map(masked, lines), _parsed(masked(body))])
        return found


def _claims(token: str) -> Any:
    """Return what a JWT claims, without what differs from run to run."""
    body = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    claims["nats"]["revocations"] = [masked(key) for key in claims["nats"].get("revocations", ())]
    for kind in ("imports", "exports"):
        claims["nats"].get(kind, []).sort(key=lambda one: str(one["name"]))
    return {key: _steady(item) for key, item in claims.items() if key not in ("iat", "jti", "exp")}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _by_name(consumers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return consumers by name: those without a lasting name are numbered, and those that only serve a reader left out.

    natsctl removes these when it ends, the tool leaves that to the server.
    """
    found: dict[str, Any] = {}
    others = 0
    for consumer in sorted(consumers, key=lambda one: json.dumps(one["config"])):
        config = consumer["config"]
        name = consumer.pop("name")
        if not config.get("durable_name"):
            if config["ack_policy"] == "none":
                continue
            config.pop("name", None)
            name, others = f"ephemeral {others}", others + 1
        found[name] = consumer
    return found


def _steady(value: Any) -> Any:
    if isinstance(value, list):
        return [_steady(item) for item in value]
    if isinstance(value, dict):
        items = {key: item for key, item in value.items() if key not in _VARYING and not key.startswith("natsctl.")}
        return {masked(key): _steady(item) for key, item in items.items() if item != _ZERO}
    return masked(value) if isinstance(value, str) else value


# Comparison


def differences(case: Case, group: Group, theirs: Outcome, ours: Outcome) -> list[str]:
    """Return how natsctl's outcome of a line differs from that of the tool, and from what the line expects."""
    found = []
    fails = "!" in case.marks
    for tool, outcome in (("nats", theirs), ("natsctl", ours)):
        if (outcome.status != 0) is not fails and ("*" not in case.marks or outcome.status == 124):
            found.append(f"{tool} ends with {outcome.status}: {outcome.out[-600:]}{outcome.err[-600:]}")
    if not fails:
        found += _printed(case, group, theirs.out, ours.out)
    return [*found, *_unequal(theirs.stored, ours.stored, "stored")]


def _printed(case: Case, group: Group, theirs: str, ours: str) -> Iterator[str]:
    if "+" in case.marks or re.search(r"(^|\s)(-j|--json)\b", case.line):
        try:
            start = re.search(
                r"^[\[{]", theirs, re.MULTILINE
            )  # the tool writes text before the documents of some commands
            documents = _documents(theirs[start.start() :] if start else theirs, strict=False), _documents(ours)
            yield from _missing(_shape(documents[0]), _shape(documents[1]), "json")
        except ValueError as error:
            yield f"not JSON: {error}:\n{theirs[:600]}\n{ours[:600]}"
    arranged: Callable[[Iterable[str]], list[str]] = sorted if "~" in case.marks else list
    lines = [arranged(masked(text).strip().splitlines()) for text in (theirs, ours)]
    if "=" in case.marks and lines[0] != lines[1]:
        yield f"printed\n{theirs[:1500]}\n--- natsctl\n{ours[:1500]}"
    words = [arranged(dict.fromkeys(re.findall(group.words, masked(text)))) for text in (theirs, ours)]
    if "?" not in case.marks and words[0] != words[1]:
        yield f"words {words[0]} - natsctl {words[1]}\n{theirs[:1500]}\n--- natsctl\n{ours[:1500]}"


def _documents(text: str, strict: bool = True) -> list[Any]:
    """Return the JSON documents of an output; unless `strict`, up to text that follows them."""
    found: list[Any] = []
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest and (strict or not found or rest[0] in "[{"):
        document, end = decoder.raw_decode(rest)
        found.append(document)
        rest = rest[end:].lstrip()
    return found


def _shape(value: Any) -> Any:
    """Return keys and types of a document: those of the items of a list are merged."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items() if item != _ZERO}
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for item in value:
            shape = _shape(item)
            merged = _merged(merged, shape if isinstance(shape, dict) else {"": shape})
        return {"[]": merged}
    return "number" if type(value) in (int, float) else type(value).__name__


def _merged(shape: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {key for key in shape if isinstance(shape[key], dict) and isinstance(other.get(key), dict)}
    return {**shape, **other, **{key: _merged(shape[key], other[key]) for key in both}}


def _missing(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    """Find what a program that reads the tool's documents misses in natsctl's, which may have more keys."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs:
            yield from _missing(theirs[key], ours.get(key), f"{path}.{key}")
    elif theirs != ours and not (theirs in ("NoneType", {"[]": {}}) or ours == "NoneType"):
        yield f"{path}: {str(theirs)[:300]} - natsctl {str(ours)[:300]}"


def _unequal(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            yield from _unequal(theirs.get(key, "-"), ours.get(key, "-"), f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _unequal(one, other, f"{path}[{index}]")
    elif theirs != ours:
        yield f"{path}: {str(theirs)[:300]} - natsctl {str(ours)[:300]}"


class Pair:
    def __init__(self, folder: Path, server: ServerProcess) -> None:
        self.sides = [Side(tool, folder, server) for tool in ACCOUNTS]
        self._pool = ThreadPoolExecutor(2 * LINES_AT_ONCE)
        self._known: set[str] = set()

    def begin(self, group: Group) -> None:
        self._known.clear()
        list(self._pool.map(lambda side: side.begin(group), self.sides))

    def compare_all(self, group: Group) -> dict[str, list[str]]:
        with ThreadPoolExecutor(LINES_AT_ONCE if group.at_once else 1) as lines:
            found = lines.map(lambda case: self.compare(case, group), group.cases)
            return {case.line: faults for case, faults in zip(group.cases, found, strict=True) if faults}

    def compare(self, case: Case, group: Group, *, settled: bool = True) -> list[str]:
        """Run a line with both; return what differs, without what an earlier line of the group has left."""
        # The user of the system account sees the other tool's connections: these lines run one after the other.
        apart = "@" in case.marks and not group.at_once
        mapped: Callable[..., Iterable[Outcome]] = map if apart else self._pool.map
        theirs, ours = mapped(lambda side: side.run(case), self.sides)
        for pause_s in PAUSES_S if settled else (0.0,):
            stored = self._pool.map(lambda side: side.stored(), self.sides)
            outcomes = [replace(one, stored=state) for one, state in zip((theirs, ours), stored, strict=True)]
            found = differences(case, group, *outcomes)
            if not any(text not in self._known and text.startswith("stored") for text in found):
                break
            time.sleep(pause_s)
        fresh = [text for text in found if text not in self._known]
        self._known.update(text for text in found if text.startswith("stored"))
        return fresh
