"""Rules that refuse an option without effect next to the other options, or without them.

The table of `source_options` has the kinds of reads and writes that know an option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.source_options import CONNECTION, EARLIEST, LATEST, READING, Options

_NEEDS: Final = {
    "maxTriggerDelay": ("minOffsetsPerTrigger",),
    "startingOffsetsByTimestampStrategy": ("startingTimestamp", "startingOffsetsByTimestamp"),
    "valueMode": ("payloadCompression",),
}
"""An option, and the options that give it an effect."""
_EXCLUSIVE: Final = (
    ("retryTimeout", "numRetries"),
    ("credentials", "credentialsContent"),
    ("nkey", "nkeyContent"),
    ("tlsCa", "tlsCaContent"),
    ("tlsCert", "tlsCertContent"),
    ("tlsKey", "tlsKeyContent"),
)
_OF_SERVER_READS: Final = (
    *(option.name for option in CONNECTION), "transport", "fetchMessages", "fetchBytes", "fetchTimeout",
    "startingOffsetsByTimestampStrategy", "maxRecordsPerPartition",
)  # fmt: skip
_OF_ACKED_READS: Final = ("consumer", "createConsumer", "includeMetadata")
_NOT_OF_ACKED_READS: Final = (
    "streamPattern", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "transport", "commitConsumer", "minOffsetsPerTrigger", "maxTriggerDelay",
    "failOnDataLoss", "fetchMessages", "fetchBytes", "fetchTimeout", "maxRecordsPerPartition",
)  # fmt: skip
_OF_SUBJECT_TABLES: Final = ("subject", "failOnDataLoss")


def check_combination(options: Options) -> None:
    """Raise OptionError for an option without effect next to the other options of this read or write."""
    for name, needed in _NEEDS.items():
        if options.given(name) and not any(map(options.given, needed)):
            raise OptionError(f"option {name} has no effect without {' or '.join(needed)}")
    for group in _EXCLUSIVE:
        present = [name for name in group if options.given(name)]
        if len(present) > 1:
            raise OptionError(f"options {present[0]} and {present[1]} exclude each other: give one of them")
    if options.given("backup"):
        _refuse(options, _OF_SERVER_READS, "with backup: no server is asked")
    if options.given("idempotence") and options["idempotence"] == "none":
        _refuse(options, ("messageIds", "writeId"), "with idempotence=none: no ids are made")


def check_acked(options: Options) -> None:
    """Raise OptionError for an option that reading with acknowledgement does not have, or that only it has."""
    if options["ackMode"] != "explicit":
        present = [name for name in _OF_ACKED_READS if options.given(name)]
        if present:
            raise OptionError(f"option {present[0]} has no effect without ackMode=explicit")
        return
    if not options["consumer"]:
        raise OptionError("option ackMode needs a consumer: name a durable pull consumer in option consumer")
    _refuse(options, _NOT_OF_ACKED_READS, "with ackMode: the consumer decides what to read")


def check_subject_table(options: Options, stream: str) -> None:
    """Raise OptionError for an option that the counts of a stream's subjects do not depend on."""
    others = [option.name for option in READING if option.name not in _OF_SUBJECT_TABLES]
    _refuse(options, others, f"on {stream}: it has the counts of the server")


def _refuse(options: Options, names: Sequence[str], where: str) -> None:
    present = [name for name in names if options.given(name)]
    if present:
        raise OptionError(f"option {present[0]} has no effect {where}")


def check_order(options: Options) -> None:
    """Raise OptionError for a batch that ends before it begins; one that ends just before its start is empty."""
    since_ns, until_ns = options["startingTimestamp"], options["endingTimestamp"]
    if since_ns is not None and until_ns is not None and until_ns < since_ns:
        raise OptionError("option endingTimestamp is before startingTimestamp")
    by_since = options["startingOffsetsByTimestamp"] or {}
    by_until = options["endingOffsetsByTimestamp"] or {}
    if since_ns is None and until_ns is None:
        for stream in by_since.keys() & by_until.keys():
            if by_until[stream] < by_since[stream]:
                raise OptionError(f"option endingOffsetsByTimestamp is before startingOffsetsByTimestamp for {stream}")
    first, last = options["startingOffsets"], options["endingOffsets"]
    if since_ns is None and until_ns is None and isinstance(first, Mapping) and isinstance(last, Mapping):
        for stream in first.keys() & last.keys() - by_since.keys() - by_until.keys():
            if not {first[stream], last[stream]} & {EARLIEST, LATEST} and last[stream] < first[stream] - 1:
                raise OptionError(
                    f"option endingOffsets ({last[stream]}) is before startingOffsets ({first[stream]}) for {stream}"
                )
