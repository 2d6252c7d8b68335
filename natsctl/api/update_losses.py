"""Messages and consumer progress that a configuration update removes.

An update counts as a loss if the present state shows that messages are, or may be, removed: the new limit is below the
current size, the first message is older than the new age, or there may be more messages per subject. An update that
removes nothing now is not a loss, even if messages expire sooner later (`max_msgs` 1,000 with 10 messages), nor is a
limit under `discard: new`: it refuses messages instead. Giving up subjects is not a loss, because stored messages stay.
Sealing is one, because it cannot be undone.

A consumer edit is a loss if the consumer skips messages it had to deliver (a removed filter, fewer deliveries while
acks are outstanding), or if it or its state may vanish (a shorter inactivity threshold, memory storage).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import format_duration, format_size, plural

Config = Mapping[str, Any]


class Loss(NamedTuple):
    """A loss by an update: the responsible field, a sentence, and the minimum number of removed messages."""

    field: str
    text: str
    messages: int = 0


def stream_losses(live: Config, new: Config, state: Config, now_ns: int) -> list[Loss]:
    """Return the losses of a stream if its configuration becomes `new`, given its state (from STREAM.INFO)."""
    found = []
    if new.get("sealed") and not live.get("sealed"):
        found.append(Loss("sealed", "a sealed stream accepts no more messages, and cannot be unsealed"))
    if _limit(state, "messages"):
        found += [*_by_limits(live, new, state), *_by_age(live, new, state, now_ns), *_by_interest(live, new, state)]
    return found


def messages_lost(losses: list[Loss]) -> int:
    """Return at least how many messages go: limits overlap, so that the highest count holds."""
    return max((loss.messages for loss in losses), default=0)


def consumer_losses(live: Config, new: Config, info: Config) -> list[Loss]:
    """Return the losses of a consumer if its configuration becomes `new`, given its state (from CONSUMER.INFO)."""
    return [*_by_filter(live, new), *_by_deliveries(live, new, info), *_by_vanishing(live, new)]


def _limit(config: Config, name: str) -> int:
    """Return a limit, 0 for none and for a value that is no number: a server's answer may hold anything."""
    value = config.get(name)
    return max(0, value) if isinstance(value, int) else 0


def _is_lowered(live: Config, new: Config, name: str) -> bool:
    before, after = _limit(live, name), _limit(new, name)
    return after > 0 and (before == 0 or after < before)


def _by_limits(live: Config, new: Config, state: Config) -> Iterator[Loss]:
    messages, size, subjects = (_limit(state, name) for name in ("messages", "bytes", "num_subjects"))
    makes_room = (new.get("discard") or "old") == "old"
    roomier = makes_room and (live.get("discard") or "old") != "old"
    most, most_bytes, each = (_limit(new, name) for name in ("max_msgs", "max_bytes", "max_msgs_per_subject"))
    if makes_room and (roomier or _is_lowered(live, new, "max_msgs")) and 0 < most < messages:
        gone = messages - most
        text = f"removes {gone:,} of {plural(messages, 'message')}, the oldest first: max_msgs becomes {most:,}"
        yield Loss("max_msgs", text, gone)
    if makes_room and (roomier or _is_lowered(live, new, "max_bytes")) and 0 < most_bytes < size:
        gone = max(1, messages * (size - most_bytes) // size)
        text = (
            f"removes the oldest messages, {format_size(size - most_bytes)} of {format_size(size)}: max_bytes shrinks"
        )
        yield Loss("max_bytes", text, gone)
    if _is_lowered(live, new, "max_msgs_per_subject"):
        yield from _by_subject(messages, subjects, each)


def _by_subject(messages: int, subjects: int, each: int) -> Iterator[Loss]:
    """Yield a loss by a limit per subject; a stream's state only has the number of its subjects."""
    least = messages - subjects * each
    if subjects and least > 0:
        text = f"removes at least {least:,} of {plural(messages, 'message')}: max_msgs_per_subject becomes {each:,}"
        yield Loss("max_msgs_per_subject", text, least)
    elif messages - max(0, subjects - 1) > each:
        text = f"may remove some of {plural(messages, 'message')}: max_msgs_per_subject becomes {each:,}"
        yield Loss("max_msgs_per_subject", text)


def _by_age(live: Config, new: Config, state: Config, now_ns: int) -> Iterator[Loss]:
    age_ns = _limit(new, "max_age")
    first, last = _moment(state.get("first_ts")), _moment(state.get("last_ts"))
    if not _is_lowered(live, new, "max_age") or first is None or last is None or now_ns - first <= age_ns:
        return
    messages = _limit(state, "messages")
    if now_ns - last > age_ns:
        text = f"removes everything, {plural(messages, 'message')}: the newest is older than {format_duration(age_ns)}"
        yield Loss("max_age", text, messages)
    else:
        text = f"removes messages older than {format_duration(age_ns)} (of {plural(messages, 'message')})"
        yield Loss("max_age", text, 1)


def _by_interest(live: Config, new: Config, state: Config) -> Iterator[Loss]:
    if (live.get("retention") or "limits") == "interest" or new.get("retention") != "interest":
        return
    messages = plural(_limit(state, "messages"), "message")
    if state.get("consumer_count"):
        text = f"removes messages without an interested consumer (of {messages}): retention becomes interest"
        yield Loss("retention", text)
    else:
        yield Loss(
            "retention", f"may remove everything, {messages}: retention becomes interest, and there is no consumer"
        )


def _filters(config: Config) -> set[str]:
    several = config.get("filter_subjects")
    given = [config.get("filter_subject"), *(several if isinstance(several, list | tuple) else ())]
    return {one for one in given if one and isinstance(one, str)} or {">"}


def _by_filter(live: Config, new: Config) -> Iterator[Loss]:
    from natsctl.api.subjects import is_subset

    after = _filters(new)
    gone = sorted(one for one in _filters(live) if not any(is_subset(one, other) for other in after))
    if gone:
        shown = ", ".join(gone)
        yield Loss("filter_subjects", f"messages of {shown} that the new filters exclude are never delivered")


def _by_deliveries(live: Config, new: Config, info: Config) -> Iterator[Loss]:
    waiting = _limit(info, "num_ack_pending")
    if waiting and _is_lowered(live, new, "max_deliver"):
        most = _limit(new, "max_deliver")
        yield Loss(
            "max_deliver", f"{plural(waiting, 'message')} awaiting acks may be given up: max_deliver becomes {most:,}"
        )


def _by_vanishing(live: Config, new: Config) -> Iterator[Loss]:
    if _is_lowered(live, new, "inactive_threshold"):
        rest = format_duration(_limit(new, "inactive_threshold"))
        yield Loss("inactive_threshold", f"the consumer is removed once it has been unused for {rest}")
    if new.get("mem_storage") and not live.get("mem_storage"):
        yield Loss("mem_storage", "its progress is kept in memory, and lost when the server restarts")


def _moment(text: Any) -> int | None:
    """Return a time in ns since the epoch; None for none, and for a text that is no time."""
    if not isinstance(text, str) or is_zero(text):
        return None
    try:
        return parse_time(text)
    except ValueError:
        return None
