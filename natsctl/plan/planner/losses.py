"""What an update makes vanish: told from a stream's state, which the plan has anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from natsctl.api.units import format_duration, format_size, plural
from natsctl.plan.change import Change
from natsctl.plan.planner.compare import moment
from natsctl.plan.world import Live

Config = Mapping[str, Any]


def losses(change: Change, live: Live, new: Config, now_ns: int) -> list[str]:
    """Sentences on messages that go with an update."""
    if change.consumer:
        return []
    state = live.info.get("state") or {}
    if not state.get("messages"):
        return []
    changed = {one.path.partition(".")[0].partition("[")[0] for one in change.differences}
    return [*_by_limits(changed, state, new, now_ns), *_by_interest(changed, state, new)]


def _by_limits(changed: set[str], state: Config, new: Config, now_ns: int) -> Iterator[str]:
    messages, size = int(state["messages"]), int(state.get("bytes") or 0)
    makes_room = new.get("discard", "old") == "old"
    limits = ("max_msgs", "max_bytes", "max_msgs_per_subject")
    most, most_bytes, per_subject = (int(new.get(name) or 0) for name in limits)
    if "max_msgs" in changed and makes_room and 0 < most < messages:
        yield f"the oldest {plural(messages - most, 'message')} of {messages:,} go: max_msgs becomes {most:,}"
    if "max_bytes" in changed and makes_room and 0 < most_bytes < size:
        yield f"the oldest messages go, {format_size(size - most_bytes)} of {format_size(size)}: max_bytes is less"
    subjects = int(state.get("num_subjects") or 0)
    if "max_msgs_per_subject" in changed and per_subject > 0 and subjects * per_subject < messages:
        least = messages - subjects * per_subject
        yield f"at least {plural(least, 'message')} of {messages:,} go: max_msgs_per_subject becomes {per_subject:,}"
    if "max_age" in changed:
        yield from _by_age(messages, state, int(new.get("max_age") or 0), now_ns)


def _by_age(messages: int, state: Config, age_ns: int, now_ns: int) -> Iterator[str]:
    first, last = moment(state.get("first_ts")), moment(state.get("last_ts"))
    if not age_ns or not isinstance(first, int) or not isinstance(last, int) or now_ns - first <= age_ns:
        return
    if now_ns - last > age_ns:
        yield f"all {plural(messages, 'message')} go: they are older than {format_duration(age_ns)}"
    else:
        yield f"of {plural(messages, 'message')} those older than {format_duration(age_ns)} go"


def _by_interest(changed: set[str], state: Config, new: Config) -> Iterator[str]:
    if "retention" not in changed or new.get("retention") != "interest":
        return
    messages = int(state["messages"])
    if state.get("consumer_count"):
        yield f"of {plural(messages, 'message')} those go that no consumer waits for: retention becomes interest"
    else:
        yield f"all {plural(messages, 'message')} may go: retention becomes interest, and there is no consumer"
