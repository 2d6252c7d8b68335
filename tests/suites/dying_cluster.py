"""A cluster of three, where a server or natsctl itself is killed in the midst of commands: nothing may be lost.

    python tests/suites/dying_cluster.py                         20 rounds of every command, a server killed in each
    python tests/suites/dying_cluster.py --only backup restore --rounds 50 --seed 7
    python tests/suites/dying_cluster.py --replacements          a replacement killed at every message it sends

Every command runs in a process of its own with all three addresses. Its messages (requests, publishes, acks) are
counted in a first run without a death; in the others one server, any of the three, gets SIGKILL before or after a
random one of them. A command must end with the exit status and the result that it has without a death, and a read that
waits for nobody must not fail. With `--replacements` the process of the command is killed instead, before or after each
of its messages in turn, and another process, with another HOME, applies again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from natsctl.cli.main import run as run_main
from natsctl.client.connection import Connection
from tests.support.commands import Done
from tests.support.servers import Cluster

MESSAGES: Final = 4000
FEW: Final = 50
RANDOM: Final = "{{Random 1000 1000}}"
"""A body that does not compress, so that a backup has many chunks."""
BODY: Final = "x" * 1000
WHOLE_WITHIN_S: Final = 60.0
COMMAND_WITHIN_S: Final = 200
KILLED: Final = 137
OnMessage = Callable[[int, bool], None]
"""Called before and after each message with its number, from 1, and whether it was sent."""


class Doing(NamedTuple):
    """A command, what prepares it, and what has to hold afterwards; an empty answer means that it does."""

    words: str
    prepare: tuple[str, ...] = ()
    check: Callable[[World, Done], str] = lambda world, done: ""
    codes: tuple[int, ...] = (0,)


class World:
    """The cluster, a folder for files, and commands as processes."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def run(self, line: str, on_message: OnMessage | None = None, home: str = "home") -> Done:
        """Run a command line in a process of its own; `{}` in it stands for the folder of files."""
        out, err = self.folder / "out", self.folder / "err"
        child = os.fork()
        if child == 0:
            self._be(line.replace("{}/", f"{self.folder}/"), out, err, home, on_message)
        _, status = os.waitpid(child, 0)
        return Done(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text())

    def _be(self, line: str, out: Path, err: Path, home: str, on_message: OnMessage | None) -> None:
        """Be the command, to its end."""
        code = 99
        try:
            signal.alarm(COMMAND_WITHIN_S)
            for descriptor, path in ((1, out), (2, err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            (self.folder / home).mkdir(exist_ok=True)
            os.environ.update(HOME=str(self.folder / home), NATS_URL=self.cluster.url(), NO_COLOR="1")
            if on_message is not None:
                watch_messages(on_message)
            code = run_main(shlex.split(line))
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def must(self, line: str) -> Done:
        """Run a command that has to succeed."""
        for _ in range(5):
            done = self.run(line)
            if done.code == 0:
                return done
            print(f"  again: {line}: {done}", flush=True)
            time.sleep(1)
        raise RuntimeError(f"{line}: {done}")

    def await_whole(self) -> None:
        """Wait until every replica of every stream is there and has it all."""
        until_s = time.monotonic() + WHOLE_WITHIN_S
        while (why := self._not_whole()) and time.monotonic() < until_s:
            time.sleep(0.5)
        if why:
            print(f"  not whole after {WHOLE_WITHIN_S:g} s: {why}", flush=True)

    def _not_whole(self) -> str:
        for name in self.run("str ls -a -n").out.split():
            done = self.run(f"str info {name} -j")
            cluster = done.json.get("cluster") or {} if done.code == 0 else {}
            late = [one for one in cluster.get("replicas") or () if not one.get("current")]
            if not cluster.get("leader") or late:
                return f"{name}: {done.err or late}"
        return ""

    def info(self, stream: str) -> dict[str, Any]:
        """What the server says of a stream."""
        return dict(self.must(f"str info {stream} -j").json)


def watch_messages(on_message: OnMessage) -> None:
    """Have every message that this process sends counted."""
    request, publish, sent = Connection.request, Connection.publish, 0
    inside = False

    async def requested(self: Connection, *words: Any, **more: Any) -> Any:
        nonlocal sent, inside
        sent += 1
        number = sent
        on_message(number, False)
        inside = True
        try:
            answer = await request(self, *words, **more)
        finally:
            inside = False
        on_message(number, True)
        return answer

    async def published(self: Connection, *words: Any, **more: Any) -> None:
        nonlocal sent
        if inside and more.get("reply"):
            return await publish(self, *words, **more)
        sent += 1
        number = sent
        on_message(number, False)
        await publish(self, *words, **more)
        on_message(number, True)
        return None

    Connection.request, Connection.publish = requested, published  # type: ignore[assignment,method-assign]


def counted(world: World, line: str) -> tuple[int, Done]:
    """Run a command, and return how many messages it sends."""
    path = world.folder / "count"
    path.write_text("0")
    done = world.run(line, lambda number, sent: None if sent else path.write_text(str(number)) and None)
    return int(path.read_text()), done


def verified(world: World, done: Done) -> str:
    """Return why a backup is not whole."""
    shown = world.run("backup verify {}/b -j")
    return "" if shown.code == 0 else f"verify: {shown}"


def restored(world: World, done: Done) -> str:
    """Return what a restored stream lacks."""
    return holds(world, "KEPT", MESSAGES, {"C": 100})


def holds(world: World, stream: str, messages: int, floors: dict[str, int]) -> str:
    """Return what a stream lacks: messages, consumers and their ack floors, replicas."""
    info = world.info(stream)
    found = (info["state"]["messages"], info["state"]["last_seq"], info["config"]["num_replicas"])
    if found != (messages, messages, 3):
        return f"{stream} has {found}"
    for name, floor in floors.items():
        said = world.must(f"con info {stream} {name} -j").json
        if said["ack_floor"].get("stream_seq", 0) != floor:
            return f"{stream} > {name}: {said['ack_floor']}"
    return ""


def account_restored(world: World, done: Done) -> str:
    """Return what an account lacks that was restored."""
    names = set(world.must("str ls -a -n").out.split())
    if names != {"KEPT", "FEW", "KV_CONF", "OBJ_FILES"}:
        return f"streams {names}"
    return restored(world, done) or holds(world, "FEW", FEW, {})


def applied(world: World, done: Done) -> str:
    """Return what an apply has left to do."""
    world.await_whole()
    again = world.run("plan -f {}/new.json")
    return "" if again.code == 0 else f"second plan: {again}"


def replaced(world: World, done: Done) -> str:
    """Return what a replaced stream lacks."""
    wrong = applied(world, done) or holds(world, "FEW", FEW, {"F": 7})
    left = [name for name in world.must("str ls -a -n").out.split() if name.startswith("natsctl-replaced")]
    return wrong or (f"left: {left}" if left else "")


def printed(text: str) -> Callable[[World, Done], str]:
    """Return a check for a text on stdout."""
    return lambda world, done: "" if text in done.out else f"no {text!r} in {done.out[:300]!r}"


def long(world: World, done: Done) -> str:
    """Return why the output is not all that was asked for."""
    return "" if len(done.out) > 100_000 else f"{len(done.out)} bytes"


def has(stream: str, **state: int) -> Callable[[World, Done], str]:
    """Return a check for the state of a stream."""

    def check(world: World, done: Done) -> str:
        found = world.info(stream)["state"]
        return "" if all(found.get(key) == value for key, value in state.items()) else f"{stream}: {found}"

    return check


def absent(words: str) -> Callable[[World, Done], str]:
    """Return a check that something is not found any more."""
    return lambda world, done: "" if (found := world.run(words)).code == 3 else f"{words}: {found}"


def there(words: str, text: str = "") -> Callable[[World, Done], str]:
    """Return a check that a command succeeds, and prints a text."""
    return lambda world, done: "" if text in world.must(words).out else f"{words}: no {text!r}"


GONE: Final = "str rm KEPT -f"
T: Final = "T --subjects t.* --replicas 3 --defaults"
DOINGS: Final[dict[str, Doing]] = {
    "backup": Doing("str backup KEPT {}/b --chunk-size 64KB -j", ("rm b",), verified),
    "restore": Doing("str restore {}/kept -j", (GONE,), restored),
    "account backup": Doing("account backup {}/b -j", ("rm b",), verified),
    "account restore": Doing("account restore {}/all -f -j", ("clear",), account_restored),
    "plan": Doing("plan -f {}/new.json", ("clear new",), codes=(10,)),
    "apply": Doing("apply -f {}/new.json", ("clear new",), applied),
    "replace": Doing("apply -f {}/new.json --allow-replace --keep-messages --yes", ("clear new", "turn"), replaced),
    "export": Doing("export", (), printed("name: KEPT")),
    "str info": Doing("str info KEPT -j", (), printed(f'"messages": {MESSAGES}')),
    "str ls": Doing("str ls -a -n", (), printed("KEPT")),
    "str report": Doing("str report -j", (), printed("KEPT")),
    "str get": Doing("str get KEPT 5 -j", (), printed('"seq": 5')),
    "str view": Doing("str view KEPT 100 --raw", (), long),
    "str subjects": Doing("str subjects KEPT -j", (), printed("KEPT.a")),
    "con ls": Doing("con ls KEPT -n", (), printed("C")),
    "con info": Doing("con info KEPT C -j", (), printed('"num_ack_pending"')),
    "con report": Doing("con report KEPT -j", (), printed("C")),
    "con next": Doing("con next FEW G --count 20 --raw --no-ack", (), printed("x")),
    "account info": Doing("account info -j", (), printed("streams")),
    "kv get": Doing("kv get CONF a --raw", (), printed("1")),
    "kv ls": Doing("kv ls CONF", (), printed("a")),
    "kv history": Doing("kv history CONF a -j", (), printed('"a"')),
    "obj get": Doing("obj get FILES f -O {}/got --force", (), lambda world, done: same_file(world)),
    "obj ls": Doing("obj ls FILES -j", (), printed('"f"')),
    "kv put": Doing("kv put CONF b 2", (), there("kv get CONF b --raw", "2")),
    "kv del": Doing("kv del CONF c -f", ("kv put CONF c 3",), absent("kv get CONF c")),
    "obj put": Doing("obj put FILES {}/file --name g -f", (), there("obj info FILES g -j", '"g"')),
    "pub": Doing("pub t.x body --count 200 --jetstream", ("rm-T", f"str add {T}"), has("T", messages=200)),
    "str add": Doing(f"str add {T}", ("rm-T",), there("str info T")),
    "str edit": Doing("str edit T --description d -f", ("rm-T", f"str add {T}"), there("str info T -j", '"d"')),
    "str purge": Doing("str purge T -f", ("rm-T", f"str add {T}", "pub t.a x --jetstream"), has("T", messages=0)),
    "str rm": Doing("str rm T -f", ("rm-T", f"str add {T}"), absent("str info T")),
    "con add": Doing("con add T D --pull --defaults", ("rm-T", f"str add {T}"), there("con info T D")),
    "con rm": Doing("con rm T D -f", ("rm-T", f"str add {T}", "con add T D --pull --defaults"), absent("con info T D")),
    "con pause": Doing("con pause T D 1h -f", ("rm-T", f"str add {T}", "con add T D --pull --defaults"),
                       there("con info T D -j", '"paused": true')),
}  # fmt: skip


def same_file(world: World) -> str:
    """Return why the object that was read is another one."""
    same = (world.folder / "got").read_bytes() == (world.folder / "file").read_bytes()
    return "" if same else "another file"


def new_documents(folder: Path, storage: str, count: int = 3) -> None:
    """Write documents with new streams, and FEW with a storage."""
    streams = {
        f"N{number}": {"subjects": [f"n{number}"], "num_replicas": 3, "consumers": {"C": {"ack_policy": "explicit"}}}
        for number in range(1, count + 1)
    }
    few = {"subjects": ["FEW.*"], "num_replicas": 3, "storage": storage}
    consumers = {name: {"ack_policy": "explicit"} for name in ("F", "G")}
    document = {"owner": "dying", "streams": {**streams, "FEW": {**few, "consumers": consumers}}}
    (folder / "new.json").write_text(json.dumps(document))


def fill(world: World) -> None:
    """Make what commands work on, and the backups that they restore."""
    new_documents(world.folder, "file")
    (world.folder / "file").write_bytes(os.urandom(1_000_000))
    lines = (
        "str add KEPT --subjects KEPT.* --replicas 3 --defaults",
        "con add KEPT C --pull --ack explicit --defaults",
        f"pub KEPT.a '{RANDOM}' --count {MESSAGES}",
        "con next KEPT C --count 100 --ack --raw",
        "str add FEW --subjects FEW.* --replicas 3 --defaults",
        "con add FEW F --pull --ack explicit --defaults",
        "con add FEW G --pull --ack explicit --defaults",
        f"pub FEW.a {BODY} --count {FEW}",
        "con next FEW F --count 7 --ack --raw",
        "kv add CONF --replicas 3",
        "kv put CONF a 1",
        "obj add FILES --replicas 3",
        "obj put FILES {}/file --name f -f",
        "str backup KEPT {}/kept",
        "account backup {}/all",
    )
    for line in lines:
        world.must(line)


def prepare(world: World, doing: Doing) -> None:
    """Make the state that a command begins with."""
    for line in doing.prepare:
        if line == "rm b":
            shutil.rmtree(world.folder / "b", ignore_errors=True)
        elif line == "clear":
            world.cluster.clear()
        elif line == "clear new":
            for name in ("N1", "N2", "N3"):
                world.run(f"str rm {name} -f")
            new_documents(world.folder, world.info("FEW")["config"]["storage"])
        elif line == "turn":
            new_documents(world.folder, "memory" if world.info("FEW")["config"]["storage"] == "file" else "file")
        elif line == "rm-T":
            world.run("str rm T -f")
        else:
            world.must(line)


def one_round(world: World, name: str, most: int, chance: random.Random) -> str:
    """Run a command during which one server dies, and return what is wrong."""
    doing = DOINGS[name]
    prepare(world, doing)
    world.await_whole()
    victim, at, late = chance.randrange(3), chance.randrange(1, most + 1), chance.random() < 0.5
    server = world.cluster.servers[victim]
    pid = server.pid

    def on_message(number: int, sent: bool) -> None:
        if number == at and sent == late:
            os.kill(pid, signal.SIGKILL)

    begun = time.monotonic()
    done = world.run(doing.words, on_message)
    took_s = time.monotonic() - begun
    server.kill()
    server.start()
    world.await_whole()
    where = f"{name}: n{victim + 1} {'after' if late else 'before'} message {at} of {most}, {took_s:.1f} s"
    if done.code not in doing.codes:
        return f"{where}: exit {done.code}: {done.err[-400:]} {done.out[-200:]}"
    wrong = doing.check(world, done)
    print(f"  {where}{': ' + done.err.strip()[:160] if done.err else ''}", flush=True)
    return f"{where}: {wrong}" if wrong else ""


def nodes(world: World, names: list[str], rounds: int, chance: random.Random) -> int:
    """Kill a server in each round of each command; return how many rounds went wrong."""
    bad: Counter[str] = Counter()
    for name in names:
        prepare(world, DOINGS[name])
        world.await_whole()
        most, done = counted(world, DOINGS[name].words)
        if done.code not in DOINGS[name].codes or (wrong := DOINGS[name].check(world, done)):
            print(f"{name}: wrong without a death: {done} {wrong}", flush=True)
            bad[name] += rounds
            continue
        for _ in range(rounds):
            if wrong := one_round(world, name, most, chance):
                bad[name] += 1
                print(f"WRONG {wrong}", flush=True)
        print(f"{name}: {rounds - bad[name]} of {rounds} rounds, {most} messages each", flush=True)
    return sum(bad.values())


def turn(world: World) -> None:
    """Write a document that asks for FEW in the other storage."""
    new_documents(world.folder, "memory" if world.info("FEW")["config"]["storage"] == "file" else "file", count=0)


def replacements(world: World) -> int:
    """Kill a replacement at each of its messages; return how many are not finished whole by the next run."""
    words = "apply -f {}/new.json --allow-replace --keep-messages --yes"
    turn(world)
    most, done = counted(world, words)
    if done.code:
        raise RuntimeError(str(done))
    bad = 0
    for at in range(1, most + 1):
        for late in (False, True):
            turn(world)

            def on_message(number: int, sent: bool, at: int = at, late: bool = late) -> None:
                if number == at and sent == late:
                    os.kill(os.getpid(), signal.SIGKILL)

            killed = world.run(words, on_message)
            again = world.run(words, home="another")
            wrong = "" if killed.code in (-signal.SIGKILL, 0) and again.code == 0 else f"{killed} {again}"
            wrong = wrong or replaced(world, again)
            bad += bool(wrong)
            print(f"{'WRONG ' if wrong else ''}{'after' if late else 'before'} message {at} of {most}: "
                  f"exit {killed.code}, then {again.code} {again.err.strip()[:200]!r} {wrong}", flush=True)  # fmt: skip
    return bad


def main() -> int:
    """Run what the arguments ask for, and return the exit status: 0 when nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each command")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--only", nargs="+", choices=DOINGS, default=list(DOINGS), metavar="COMMAND")
    parser.add_argument("--replacements", action="store_true", help="kill natsctl in the midst of a replacement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dying-") as folder, Cluster(Path(folder) / "cluster") as cluster:
        (Path(folder) / "files").mkdir()
        world = World(cluster, Path(folder) / "files")
        fill(world)
        chance = random.Random(arguments.seed)
        bad = replacements(world) if arguments.replacements else nodes(world, arguments.only, arguments.rounds, chance)
    print(f"{bad} rounds went wrong")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
