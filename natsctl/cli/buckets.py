"""Which bucket a command is about: from the command line, else from a list at a terminal; and what may have been meant.

A bucket, key or object that does not exist is never replaced by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure, NatsctlError, UsageError
from natsctl.cli.render.text import safe
from natsctl.cli.suggest import did_you_mean
from natsctl.client.buckets import BucketNotFound, bucket_names

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.buckets import Kind
    from natsctl.client.kv.bucket import KeyNotFound
    from natsctl.client.objects.bucket import ObjectNotFound

BucketName = Annotated[str | None, typer.Argument(metavar="BUCKET", help="the bucket", show_default=False)]
TheBucket = Annotated[str, typer.Argument(metavar="BUCKET", help="the bucket", show_default=False)]

_NO_JETSTREAM = "buckets are streams: they need an account with JetStream (natsctl account info)"
MAX_SUGGESTED_FROM = 5_000
"""Keys or objects that are read to find what may have been meant; larger buckets would make an error wait."""
HINTS: dict[int, str] = {
    ErrCode.NOT_ENABLED_FOR_ACCOUNT: _NO_JETSTREAM,
    ErrCode.NOT_ENABLED: _NO_JETSTREAM,
    ErrCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM: "the value is too large: kv edit --max-value-size raises the limit",
    ErrCode.STREAM_STORE_FAILED: "the bucket is full: raise --max-bucket-size with edit, or remove something",
    ErrCode.STREAM_SEALED: "the bucket is sealed: it is read-only",
}
"""What to do about the server's refusals, by err_code."""


def pick_bucket(session: Session, kind: Kind, given: str | None) -> str:
    """The bucket that was given, or that the person picks. Raises UsageError where nobody can pick."""
    if given:
        return given
    if not session.interactive:
        raise UsageError("a bucket is needed: give BUCKET")
    from natsctl.cli.prompts.ask import prompt_name

    with suggesting(session):
        names = session.run(lambda manager: bucket_names(manager, kind))
    if not names:
        raise UsageError(f"no {kind.noun}s are defined")
    return prompt_name("Select a Bucket", names)


def check_key_or_all(argument: str, given: str | None, whole: bool, doing: str) -> None:
    """Raise UsageError unless either a key or object, or --all was given: nothing is widened by what is missing."""
    if given is None and not whole:
        raise UsageError(f"{argument} is missing", hint=f"--all would {doing}")
    if given is not None and whole:
        raise UsageError(f"{argument} and --all exclude each other")


@contextmanager
def suggesting(session: Session) -> Iterator[None]:
    """Give an error about a bucket, key or object that does not exist the hint which one may have been meant."""
    from natsctl.client.kv.bucket import KeyNotFound
    from natsctl.client.objects.bucket import ObjectNotFound

    try:
        yield
    except BucketNotFound as failure:
        failure.hint = failure.hint or _bucket_hint(session, failure)
        raise
    except KeyNotFound as failure:
        failure.hint = failure.hint or _key_hint(session, failure)
        raise
    except ObjectNotFound as failure:
        failure.hint = failure.hint or _object_hint(session, failure)
        raise
    except ApiFailure as failure:
        failure.hint = failure.hint or HINTS.get(failure.err_code, "")
        raise


def _bucket_hint(session: Session, failure: BucketNotFound) -> str:
    kind = failure.kind
    names = _asked(lambda: session.run(lambda manager: bucket_names(manager, kind)))
    if not names:
        return f"no {kind.noun}s are defined" if names is not None else ""
    return safe(did_you_mean(failure.bucket, names) or f"natsctl {kind.word} ls shows the buckets there are")


def _key_hint(session: Session, failure: KeyNotFound) -> str:
    from natsctl.client.kv.watch import keys

    bucket = failure.bucket
    if failure.last is not None:
        return safe(f"natsctl kv history {bucket.name} {failure.key} shows what it held")
    listing = f"natsctl kv ls {bucket.name} shows the keys there are"
    if bucket.info.value.state.num_subjects > MAX_SUGGESTED_FROM:
        return safe(listing)
    found = _asked(lambda: session.run(lambda _: keys(bucket)))
    if failure.key in (found or ()):
        return safe(f"natsctl kv history {bucket.name} {failure.key} shows the revisions that are kept")
    return safe(did_you_mean(failure.key, found or ()) or (listing if found else f"bucket {bucket.name} has no keys"))


def _object_hint(session: Session, failure: ObjectNotFound) -> str:
    from natsctl.client.objects.watch import objects

    bucket = failure.bucket
    listing = f"natsctl object ls {bucket.name} shows the objects there are"
    if bucket.info.value.state.num_subjects > MAX_SUGGESTED_FROM:
        return safe(listing)
    found = _asked(lambda: [one.name for one in session.run(lambda _: objects(bucket))])
    return safe(
        did_you_mean(failure.name, found or ()) or (listing if found else f"bucket {bucket.name} has no objects")
    )


def _asked(ask: Callable[[], list[str]]) -> list[str] | None:
    """What was asked for a hint, None where even that fails: the failure before it is what has to be told."""
    try:
        return ask()
    except NatsctlError:
        return None
