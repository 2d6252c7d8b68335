"""Values of arguments and flags, by metavar: fixed words, files, contexts, and names on the server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from natsctl.cli.completion.entry import ANY_FILE, Candidate
from natsctl.cli.completion.place import Place

_FILE = re.compile(r"\b(FILE|FOLDER|DIR|PATH|TARGET|DESTINATION_FILE)\b")
_WORD = re.compile(r"[a-z][a-z0-9_-]*\Z")

Source = Callable[[Place, str, float], Iterator[Candidate]]


def values_of(place: Place, metavar: str, deadline_s: float, current: str) -> Iterator[Candidate]:
    """Yield the values that the metavar stands for there; nothing for free text."""
    bare = metavar.strip("[]").removesuffix("...").strip("[]")
    # `SUBJECT[,SUBJECT]` takes several with commas, of which the last one is being typed.
    several = bare.partition("[,")[0] if "[," in bare else ""
    if several and "," in current:
        before, _, last = current.rpartition(",")
        for one in values_of(place, several, deadline_s, last):
            yield Candidate(f"{before},{one.word}", one.meaning)
        return
    bare = several or bare
    if (place.noun, bare) in _BY_NOUN:
        yield from _BY_NOUN[place.noun, bare](place, current, deadline_s)
    elif bare in _SOURCES:
        yield from _SOURCES[bare](place, current, deadline_s)
    elif _FILE.search(bare):
        yield Candidate(ANY_FILE)
    else:
        yield from (Candidate(word) for word in bare.split("|") if "|" in bare and _WORD.match(word))


def _contexts(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.contexts import Contexts

    known = Contexts(os.environ)
    selected = known.selected()
    return (Candidate(name, "selected" if name == selected else "") for name in known.names())


def _errors(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.api.catalogue import entries

    return (Candidate(str(number), entry.description) for number, entry in entries().items())


def _schemas(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.schema.kinds import kinds

    for id in kinds():
        yield Candidate(id)
        yield Candidate(id.rpartition(".")[2])


def _topics(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.cheat import TOPICS

    return (Candidate(topic.name, topic.title) for topic in TOPICS)


def _shells(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.completion.scripts import SHELLS

    return (Candidate(shell) for shell in SHELLS)


def _keys_of_contexts(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.context_file import EMPTY

    return (Candidate(key) for key in EMPTY)


def _on_server(kind: str) -> Source:
    def names(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
        from natsctl.cli.completion.live import names_of

        return (Candidate(name) for name in names_of(kind, place, current, deadline_s))

    return names


_SOURCES: dict[str, Source] = {
    "CONTEXT": _contexts,
    "CODE": _errors,
    "TOPIC": _topics,
    "SHELL": _shells,
    "STREAM": _on_server("stream"),
    "CONSUMER": _on_server("consumer"),
    "TEMPLATE": _on_server("template"),
    "BUCKET": _on_server("bucket"),
    "KEY": _on_server("key"),
    "OBJECT": _on_server("object"),
    "SUBJECT": _on_server("subject"),
    "FILTER": _on_server("subject"),
    "NAME|JSON": _on_server("stream"),
}
"""Sources of the words, by metavar."""

_BY_NOUN: dict[tuple[str, str], Source] = {
    ("stream", "SOURCE"): _on_server("stream"),
    ("stream", "NAME"): _on_server("stream"),
    ("consumer", "SOURCE"): _on_server("consumer"),
    ("object", "BUCKET"): _on_server("store"),
    ("kv", "FILTER"): _on_server("key"),
    ("schema", "ID"): _schemas,
    ("context", "KEY"): _keys_of_contexts,
    ("context", "NAME"): _contexts,
}
"""The same, where a noun means something else by it."""
