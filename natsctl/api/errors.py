"""Exceptions by who must act, each with the exit code a command ends with; codes of the JetStream API by name.

The module imports nothing heavy, for the sake of commands that only fail.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from natsctl.hints import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from natsctl.api.catalogue import ApiError


class ErrCode:
    """Every `err_code` that nats-server sends, as plain numbers: an enumeration of them takes a fifth of an import.

    A name is nats-server's constant without `JS` and `Err`: `JSStreamNotFoundErr` is `STREAM_NOT_FOUND`.
    Codes, descriptions and constants lie in `errors.json`. Source: nats-server, server/jetstream_errors_generated.go.
    """

    ACCOUNT_RESOURCES_EXCEEDED = 10002
    BAD_REQUEST = 10003
    CLUSTER_INCOMPLETE = 10004
    CLUSTER_NO_PEERS = 10005
    CLUSTER_NOT_ACTIVE = 10006
    CLUSTER_NOT_ASSIGNED = 10007
    CLUSTER_NOT_AVAIL = 10008
    CLUSTER_NOT_LEADER = 10009
    CLUSTER_REQUIRED = 10010
    CLUSTER_TAGS = 10011
    CONSUMER_CREATE = 10012
    CONSUMER_NAME_EXIST = 10013
    CONSUMER_NOT_FOUND = 10014
    SNAPSHOT_DELIVER_SUBJECT_INVALID = 10015
    CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT = 10016
    CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT = 10017
    CONSUMER_DURABLE_NAME_NOT_SET = 10018
    CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = 10019
    CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = 10020
    STREAM_EXTERNAL_API_OVERLAP = 10021
    STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS = 10022
    INSUFFICIENT_RESOURCES = 10023
    STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ = 10024
    INVALID_JSON = 10025
    MAXIMUM_CONSUMERS_LIMIT = 10026
    MAXIMUM_STREAMS_LIMIT = 10027
    MEMORY_RESOURCES_EXCEEDED = 10028
    MIRROR_CONSUMER_SETUP_FAILED = 10029
    MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = 10030
    MIRROR_WITH_SOURCES = 10031
    MIRROR_WITH_START_SEQ_AND_TIME = 10032
    MIRROR_WITH_SUBJECT_FILTERS = 10033
    MIRROR_WITH_SUBJECTS = 10034
    NO_ACCOUNT = 10035
    CLUSTER_UNSUPPORT_FEATURE = 10036
    NO_MESSAGE_FOUND = 10037
    NOT_EMPTY_REQUEST = 10038
    NOT_ENABLED_FOR_ACCOUNT = 10039
    CLUSTER_PEER_NOT_MEMBER = 10040
    RAFT_GENERAL = 10041
    RESTORE_SUBSCRIBE_FAILED = 10042
    SEQUENCE_NOT_FOUND = 10043
    CLUSTER_SERVER_NOT_MEMBER = 10044
    SOURCE_CONSUMER_SETUP_FAILED = 10045
    SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = 10046
    STORAGE_RESOURCES_EXCEEDED = 10047
    STREAM_ASSIGNMENT = 10048
    STREAM_CREATE = 10049
    STREAM_DELETE = 10050
    STREAM_GENERAL_ERROR = 10051
    STREAM_INVALID_CONFIG = 10052
    STREAM_LIMITS = 10053
    STREAM_MESSAGE_EXCEEDS_MAXIMUM = 10054
    STREAM_MIRROR_NOT_UPDATABLE = 10055
    STREAM_MISMATCH = 10056
    STREAM_MSG_DELETE_FAILED = 10057
    STREAM_NAME_EXIST = 10058
    STREAM_NOT_FOUND = 10059
    STREAM_NOT_MATCH = 10060
    STREAM_REPLICAS_NOT_UPDATABLE = 10061
    STREAM_RESTORE = 10062
    STREAM_SEQUENCE_NOT_MATCH = 10063
    STREAM_SNAPSHOT = 10064
    STREAM_SUBJECT_OVERLAP = 10065
    STREAM_TEMPLATE_CREATE = 10066
    STREAM_TEMPLATE_DELETE = 10067
    STREAM_TEMPLATE_NOT_FOUND = 10068
    STREAM_UPDATE = 10069
    STREAM_WRONG_LAST_MSG_ID = 10070
    STREAM_WRONG_LAST_SEQUENCE = 10071
    TEMP_STORAGE_FAILED = 10072
    TEMPLATE_NAME_NOT_MATCH_SUBJECT = 10073
    STREAM_REPLICAS_NOT_SUPPORTED = 10074
    PEER_REMAP = 10075
    NOT_ENABLED = 10076
    STREAM_STORE_FAILED = 10077
    CONSUMER_CONFIG_REQUIRED = 10078
    CONSUMER_DELIVER_TO_WILDCARDS = 10079
    CONSUMER_PUSH_MAX_WAITING = 10080
    CONSUMER_DELIVER_CYCLE = 10081
    CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = 10082
    CONSUMER_SMALL_HEARTBEAT = 10083
    CONSUMER_PULL_REQUIRES_ACK = 10084
    CONSUMER_PULL_NOT_DURABLE = 10085
    CONSUMER_PULL_WITH_RATE_LIMIT = 10086
    CONSUMER_MAX_WAITING_NEGATIVE = 10087
    CONSUMER_HB_REQUIRES_PUSH = 10088
    CONSUMER_FC_REQUIRES_PUSH = 10089
    CONSUMER_DIRECT_REQUIRES_PUSH = 10090
    CONSUMER_DIRECT_REQUIRES_EPHEMERAL = 10091
    CONSUMER_ON_MAPPED = 10092
    CONSUMER_FILTER_NOT_SUBSET = 10093
    CONSUMER_INVALID_POLICY = 10094
    CONSUMER_INVALID_SAMPLING = 10095
    STREAM_INVALID = 10096
    STREAM_HEADER_EXCEEDS_MAXIMUM = 10097
    CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = 10098
    CONSUMER_WQ_MULTIPLE_UNFILTERED = 10099
    CONSUMER_WQ_CONSUMER_NOT_UNIQUE = 10100
    CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL = 10101
    CONSUMER_NAME_TOO_LONG = 10102
    CONSUMER_BAD_DURABLE_NAME = 10103
    CONSUMER_STORE_FAILED = 10104
    CONSUMER_EXISTING_ACTIVE = 10105
    CONSUMER_REPLACEMENT_WITH_DIFFERENT_NAME = 10106
    CONSUMER_DESCRIPTION_TOO_LONG = 10107
    CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS = 10108
    STREAM_SEALED = 10109
    STREAM_PURGE_FAILED = 10110
    STREAM_ROLLUP_FAILED = 10111
    CONSUMER_INVALID_DELIVER_SUBJECT = 10112
    STREAM_MAX_BYTES_REQUIRED = 10113
    CONSUMER_MAX_REQUEST_BATCH_NEGATIVE = 10114
    CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = 10115
    CONSUMER_MAX_DELIVER_BACKOFF = 10116
    STREAM_INFO_MAX_SUBJECTS = 10117
    STREAM_OFFLINE = 10118
    CONSUMER_OFFLINE = 10119
    NO_LIMITS = 10120
    CONSUMER_MAX_PENDING_ACK_EXCESS = 10121
    STREAM_MAX_STREAM_BYTES_EXCEEDED = 10122
    STREAM_MOVE_AND_SCALE = 10123
    STREAM_MOVE_IN_PROGRESS = 10124
    CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = 10125
    CONSUMER_REPLICAS_EXCEEDS_STREAM = 10126
    CONSUMER_NAME_CONTAINS_PATH_SEPARATORS = 10127
    STREAM_NAME_CONTAINS_PATH_SEPARATORS = 10128
    STREAM_MOVE_NOT_IN_PROGRESS = 10129
    STREAM_NAME_EXIST_RESTORE_FAILED = 10130
    CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = 10131
    CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = 10132
    REPLICAS_COUNT_CANNOT_BE_NEGATIVE = 10133
    CONSUMER_REPLICAS_SHOULD_MATCH_STREAM = 10134
    CONSUMER_METADATA_LENGTH = 10135
    CONSUMER_DUPLICATE_FILTER_SUBJECTS = 10136
    CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = 10137
    CONSUMER_OVERLAPPING_SUBJECT_FILTERS = 10138
    CONSUMER_EMPTY_FILTER = 10139
    SOURCE_DUPLICATE_DETECTED = 10140
    SOURCE_INVALID_STREAM_NAME = 10141
    MIRROR_INVALID_STREAM_NAME = 10142
    MIRROR_WITH_FIRST_SEQ = 10143
    SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED = 10144
    SOURCE_INVALID_SUBJECT_FILTER = 10145
    SOURCE_INVALID_TRANSFORM_DESTINATION = 10146
    SOURCE_OVERLAPPING_SUBJECT_FILTERS = 10147
    CONSUMER_ALREADY_EXISTS = 10148
    CONSUMER_DOES_NOT_EXIST = 10149
    MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED = 10150
    MIRROR_INVALID_SUBJECT_FILTER = 10151
    MIRROR_OVERLAPPING_SUBJECT_FILTERS = 10152
    CONSUMER_INACTIVE_THRESHOLD_EXCESS = 10153
    MIRROR_INVALID_TRANSFORM_DESTINATION = 10154
    STREAM_TRANSFORM_INVALID_SOURCE = 10155
    STREAM_TRANSFORM_INVALID_DESTINATION = 10156
    PEDANTIC = 10157
    STREAM_DUPLICATE_MESSAGE_CONFLICT = 10158
    CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = 10159
    CONSUMER_INVALID_PRIORITY_GROUP = 10160
    CONSUMER_EMPTY_GROUP_NAME = 10161
    CONSUMER_INVALID_GROUP_NAME = 10162
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY = 10163
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT = 10164
    MESSAGE_TTL_INVALID = 10165
    MESSAGE_TTL_DISABLED = 10166
    STREAM_TOO_MANY_REQUESTS = 10167
    MESSAGE_INCR_DISABLED = 10168
    MESSAGE_INCR_MISSING = 10169
    MESSAGE_INCR_PAYLOAD = 10170
    MESSAGE_INCR_INVALID = 10171
    MESSAGE_COUNTER_BROKEN = 10172
    MIRROR_WITH_COUNTERS = 10173
    ATOMIC_PUBLISH_DISABLED = 10174
    ATOMIC_PUBLISH_MISSING_SEQ = 10175
    ATOMIC_PUBLISH_INCOMPLETE_BATCH = 10176
    ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH = 10177
    CONSUMER_PUSH_WITH_PRIORITY_GROUP = 10178
    ATOMIC_PUBLISH_INVALID_BATCH_ID = 10179
    STREAM_MIN_LAST_SEQ = 10180
    CONSUMER_ACK_POLICY_INVALID = 10181
    CONSUMER_REPLAY_POLICY_INVALID = 10182
    CONSUMER_ACK_WAIT_NEGATIVE = 10183
    CONSUMER_BACK_OFF_NEGATIVE = 10184
    REQUIRED_API_LEVEL = 10185
    MIRROR_WITH_MSG_SCHEDULES = 10186
    SOURCE_WITH_MSG_SCHEDULES = 10187
    MESSAGE_SCHEDULES_DISABLED = 10188
    MESSAGE_SCHEDULES_PATTERN_INVALID = 10189
    MESSAGE_SCHEDULES_TARGET_INVALID = 10190
    MESSAGE_SCHEDULES_TTL_INVALID = 10191
    MESSAGE_SCHEDULES_ROLLUP_INVALID = 10192
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = 10193
    STREAM_OFFLINE_REASON = 10194
    CONSUMER_OFFLINE_REASON = 10195
    CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = 10196
    CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE = 10197
    MIRROR_WITH_ATOMIC_PUBLISH = 10198
    ATOMIC_PUBLISH_TOO_LARGE_BATCH = 10199
    ATOMIC_PUBLISH_INVALID_BATCH_COMMIT = 10200
    ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE = 10201
    CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT = 10202
    MESSAGE_SCHEDULES_SOURCE_INVALID = 10203
    CONSUMER_INVALID_RESET = 10204
    BATCH_PUBLISH_DISABLED = 10205
    BATCH_PUBLISH_INVALID_PATTERN = 10206
    BATCH_PUBLISH_INVALID_BATCH_ID = 10207
    BATCH_PUBLISH_UNKNOWN_BATCH_ID = 10208
    MIRROR_WITH_BATCH_PUBLISH = 10209
    ATOMIC_PUBLISH_TOO_MANY_INFLIGHT = 10210
    BATCH_PUBLISH_TOO_MANY_INFLIGHT = 10211
    MESSAGE_SCHEDULES_SCHEDULER_INVALID = 10212
    MIRROR_DURABLE_CONSUMER_CFG_INVALID = 10213
    MIRROR_CONSUMER_REQUIRES_ACK_FC = 10214
    SOURCE_DURABLE_CONSUMER_CFG_INVALID = 10215
    SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED = 10216
    SOURCE_CONSUMER_REQUIRES_ACK_FC = 10217
    CONSUMER_ACK_FC_REQUIRES_PUSH = 10218
    CONSUMER_ACK_FC_REQUIRES_FC = 10219
    CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING = 10220
    CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT = 10221
    CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER = 10222
    MESSAGE_SCHEDULES_TIME_ZONE_INVALID = 10223
    CONSUMER_STREAM_IDENTITY_MISMATCH = 10225
    MESSAGE_SOURCE_HDR_NOT_ALLOWED = 10227
    SOURCE_CONSUMER_FLOW_CONTROL_STALLED = 10228


class ExitCode(enum.IntEnum):
    """Exit status of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    NOT_AUTHORISED = 6
    NOTHING_RECEIVED = 7
    DRIFT = 10
    INTERRUPTED = 130


NOT_FOUND_CODES: Final = frozenset(
    {
        ErrCode.CONSUMER_NOT_FOUND,
        ErrCode.NO_MESSAGE_FOUND,
        ErrCode.SEQUENCE_NOT_FOUND,
        ErrCode.STREAM_NOT_FOUND,
        ErrCode.STREAM_TEMPLATE_NOT_FOUND,
        ErrCode.CONSUMER_DOES_NOT_EXIST,
    }
)
CONFLICT_CODES: Final = frozenset(
    {
        ErrCode.CONSUMER_CREATE,
        ErrCode.CONSUMER_NAME_EXIST,
        ErrCode.STREAM_MIRROR_NOT_UPDATABLE,
        ErrCode.STREAM_NAME_EXIST,
        ErrCode.STREAM_SUBJECT_OVERLAP,
        ErrCode.STREAM_WRONG_LAST_MSG_ID,
        ErrCode.STREAM_WRONG_LAST_SEQUENCE,
        ErrCode.CONSUMER_EXISTING_ACTIVE,
        ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED,
        ErrCode.CONSUMER_ALREADY_EXISTS,
        ErrCode.STREAM_DUPLICATE_MESSAGE_CONFLICT,
        ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
    }
)
UNAVAILABLE_CODES: Final = frozenset({ErrCode.NO_ACCOUNT, ErrCode.NOT_ENABLED_FOR_ACCOUNT, ErrCode.NOT_ENABLED})


class NatsctlError(Exception):
    """Base of every failure natsctl reports; the text is for a person."""

    exit_code: ClassVar[int] = ExitCode.FAILED
    subject: str = ""
    """The subject of the failed request or message, or ""."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class UsageError(NatsctlError):
    """The user must change a flag, a file or a value."""

    exit_code = ExitCode.USAGE


class NotFoundError(NatsctlError):
    """Something that was named does not exist."""

    exit_code = ExitCode.NOT_FOUND


class ConflictError(NatsctlError):
    """Something exists already, or was changed meanwhile."""

    exit_code = ExitCode.CONFLICT


class ApiResponseError(NatsctlError):
    """A server answered an API request with an error; `subject` is the request's."""

    def __init__(self, error: ApiError, subject: str = "", *, hint: str = "") -> None:
        super().__init__(error.description, hint=hint)
        self.error = error
        self.subject = subject

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error,), self.__dict__

    @property
    def err_code(self) -> int:
        """Return the `err_code`, 0 from servers that send none."""
        return self.error.err_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # by error, where the others are by class
        """Return the exit code of the design's table for this error."""
        return exit_code_of(self.error)


class UnreachableError(NatsctlError):
    """No server, no answer in time, or no JetStream there."""

    exit_code = ExitCode.UNREACHABLE


class NotAuthorisedError(NatsctlError):
    """The server refused the credentials or the subject."""

    exit_code = ExitCode.NOT_AUTHORISED


class NothingReceivedError(NatsctlError):
    """The wait ended without a message."""

    exit_code = ExitCode.NOTHING_RECEIVED


class ProtocolError(NatsctlError):
    """The other side broke the protocol."""


class StorageError(NatsctlError):
    """A disk or a file failed or is damaged."""


@contextmanager
def file_errors(where: object, kind: type[Exception] = StorageError) -> Iterator[None]:
    """Raise StorageError, or an error of another kind, for an OSError: the system's reason after `where`."""
    try:
        yield
    except OSError as failure:
        raise kind(f"{where}: {failure.strerror or failure}") from failure


def exit_code_of(error: ApiError) -> ExitCode:
    """Return the exit code for an API error, by `err_code`, or by `code` for servers of 2020 without it."""
    if error.err_code in NOT_FOUND_CODES or (not error.err_code and error.code == 404):
        return ExitCode.NOT_FOUND
    if error.err_code in CONFLICT_CODES:
        return ExitCode.CONFLICT
    if error.err_code in UNAVAILABLE_CODES or (not error.err_code and error.code == 503):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED


def install_command(packages: str, prefix: str = sys.prefix, python: str = sys.executable) -> str:
    """Return the command that adds packages to the environment that natsctl runs in, as pipx, uv or pip made it."""
    from importlib.util import find_spec
    from pathlib import Path
    from shutil import which

    if Path(prefix, "pipx_metadata.json").exists():
        return f"pipx inject natsctl {packages}"
    if Path(prefix, "uv-receipt.toml").exists() or (find_spec("pip") is None and which("uv")):
        return f"uv pip install --python {python} {packages}"
    if find_spec("pip") is None:
        return "this installation has no pip: install natsctl by pipx, uv or pip instead (docs/how-to/install.md)"
    return f"{python} -m pip install {packages}" if prefix != sys.base_prefix else f"pip install {packages}"


MAX_SUGGESTIONS: Final = 3
SUGGESTION_CUTOFF: Final = 0.7
"""Least similarity of a name that is suggested, from 0 to 1 as `difflib` counts."""


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `word`, best first, at most three.

    Case is ignored, and prefixes match. Of a mapping, one name for each value is returned: a command is not suggested a
    second time by its alias.
    """
    import difflib

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.lower(), name)
    folded = word.lower()
    most = len(by_folded) if isinstance(known, Mapping) else MAX_SUGGESTIONS
    near = difflib.get_close_matches(folded, by_folded, max(most, 1), SUGGESTION_CUTOFF)
    near += [name for name in sorted(by_folded) if len(folded) > 1 and name.startswith(folded) and name not in near]
    found: dict[object, str] = {}
    for name in (by_folded[name] for name in near):
        found.setdefault(id(known[name]) if isinstance(known, Mapping) else name, name)
    return list(found.values())[:MAX_SUGGESTIONS]
