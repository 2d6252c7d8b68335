"""How key-value and object buckets are created and changed: the same steps on two tables of flags."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from natsctl.api.config.update_losses import stream_losses
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure
from natsctl.api.stream import StreamConfig
from natsctl.cli.bucket_shown import show_bucket
from natsctl.cli.buckets import pick_bucket, suggesting
from natsctl.cli.consent import confirmed_edit
from natsctl.cli.editing import check_given, preview_edit, show_differences, unset
from natsctl.cli.flags import Config, Flag, Given, apply
from natsctl.cli.render.change import changes
from natsctl.cli.taken import part_of, warn_unless_taken
from natsctl.client.assets.stream_defaults import normalised
from natsctl.client.buckets import BucketNotFound, Kind, bucket_info

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer


def placed_on_tags(config: Config, value: list[str]) -> None:
    """Place the bucket on servers with these tags, none for any."""
    _place(config, "tags", value)


def placed_in_cluster(config: Config, value: str) -> None:
    """Place the bucket in this cluster, none for any."""
    _place(config, "cluster", value)


def _place(config: Config, field: str, value: Any) -> None:
    placement = {key: one for key, one in {**(config.get("placement") or {}), field: value}.items() if one}
    config["placement"] = placement
    if not placement:
        del config["placement"]


def compressed(config: Config, value: bool) -> None:
    """Compress what is stored from now on, or stop doing so."""
    config["compression"] = "s2" if value else "none"


def create_bucket(
    session: Session, kind: Kind, bucket: str, wanted: Config, *, if_not_exists: bool, json: bool
) -> None:
    """Create the bucket and show it; one that exists is shown as it is where that was asked for. Raises ApiFailure."""
    with suggesting(session):
        if if_not_exists and (live := _existing(session, kind, bucket)) is not None:
            show_bucket(kind, live, json, f"Bucket {bucket} exists already")
            return
        try:
            answer = session.run(lambda manager: manager.stream_create(wanted))
        except ApiFailure as failure:
            if failure.err_code == ErrCode.STREAM_NAME_EXIST:
                failure.args = (f"bucket {bucket} exists with another configuration",)
                failure.hint = f"natsctl {kind.word} edit {bucket} changes it, --if-not-exists leaves it alone"
            raise
    made = "was created" if answer.raw.get("did_create", True) else "exists already with this configuration"
    show_bucket(kind, answer, json, f"Bucket {bucket} {made}")
    warn_unless_taken(wanted, answer, json)


def _existing(session: Session, kind: Kind, bucket: str) -> Answer[Any] | None:
    try:
        return session.run(lambda manager: bucket_info(manager, kind, bucket))
    except BucketNotFound:
        return None


def live_bucket(session: Session, kind: Kind, given: str | None) -> Answer[Any]:
    """The bucket that was given, or is picked, as it is now. Raises BucketNotFound, with what may have been meant."""
    name = pick_bucket(session, kind, given)
    with suggesting(session):
        return session.run(lambda manager: bucket_info(manager, kind, name))


def edit_bucket(
    session: Session,
    kind: Kind,
    live: Answer[Any],
    table: Sequence[Flag],
    given: Given,
    unset_fields: Sequence[str] | None,
    fields: Mapping[str, str],
    settle: Callable[[Config], None],
    *,
    force: bool,
    json: bool,
) -> None:
    """Change what the flags say, and nothing else.

    `fields` are a bucket's own words for fields of its stream; `settle` does what follows from others, or refuses.
    """
    check_given(session, given or unset_fields, "give flags such as --description TEXT, or --unset FIELD")
    before = normalised(live.raw["config"])
    wanted = dict(live.raw["config"])
    apply(wanted, table, given)
    own = [fields.get(word.lstrip("-"), word) for text in unset_fields or () for word in text.replace(",", " ").split()]
    unset(wanted, own, table, StreamConfig)
    wanted = normalised(wanted)
    settle(wanted)
    _send(session, kind, live, changes(before, wanted), wanted, force=force, json=json)


def _send(
    session: Session, kind: Kind, live: Answer[Any], found: Sequence[Any], wanted: Config, *, force: bool, json: bool
) -> None:
    """Show what differs, ask, and send the whole configuration."""
    bucket = kind.bucket_of(str(wanted["name"]))

    def send() -> Answer[Any]:
        return session.run(lambda manager: manager.stream_update(wanted))

    if session.dry_run:
        preview_edit(session, found, send, json=json)
        return
    if not found:
        show_bucket(kind, live, json, "No difference in configuration")
        return
    if session.interactive or not json:
        show_differences(found, f"Bucket {bucket}")
    losses = stream_losses(live.raw["config"], wanted, live.raw["state"], time.time_ns())
    if not confirmed_edit(session, f"edit Bucket {bucket}", force, losses):
        return
    answer = send()
    show_bucket(kind, answer, json, f"Bucket {bucket} was updated")
    warn_unless_taken(part_of(wanted, (one.path for one in found)), answer, json, emptied=True)
