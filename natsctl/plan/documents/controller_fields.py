"""The fields of the Kubernetes controller's resources, as its CRDs name them, and what they are in a configuration.

Source: deploy/crds.yml of nats-io/nack, versions v1beta1 (a part of the fields) and v1beta2.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Field(NamedTuple):
    """The target of a field: a key, or one below another; `below` are the fields of an object, or of each of a list."""

    to: tuple[str, ...]
    below: dict[str, Field] | None = None


def _plain(**names: str) -> dict[str, Field]:
    """Return fields that keep their value, by their names in a configuration."""
    return {name: Field((to,)) for name, to in names.items()}


_TRANSFORM: Final = _plain(source="src", dest="dest")
_PLACEMENT: Final = _plain(cluster="cluster", tags="tags")
_REPUBLISH: Final = _plain(source="src", destination="dest", headersOnly="headers_only")
_ORIGIN: Final = {
    **_plain(name="name", optStartSeq="opt_start_seq", optStartTime="opt_start_time", filterSubject="filter_subject"),
    "externalApiPrefix": Field(("external", "api")),
    "externalDeliverPrefix": Field(("external", "deliver")),
    "subjectTransforms": Field(("subject_transforms",), _TRANSFORM),
}
_ORIGINS: Final = {
    "placement": Field(("placement",), _PLACEMENT),
    "republish": Field(("republish",), _REPUBLISH),
    "mirror": Field(("mirror",), _ORIGIN),
    "sources": Field(("sources",), _ORIGIN),
}

STREAM: Final = {
    **_plain(
        name="name",
        description="description",
        subjects="subjects",
        retention="retention",
        maxConsumers="max_consumers",
        maxMsgs="max_msgs",
        maxMsgsPerSubject="max_msgs_per_subject",
        maxBytes="max_bytes",
        maxAge="max_age",
        maxMsgSize="max_msg_size",
        storage="storage",
        discard="discard",
        discardPerSubject="discard_new_per_subject",
        replicas="num_replicas",
        noAck="no_ack",
        duplicateWindow="duplicate_window",
        compression="compression",
        sealed="sealed",
        denyDelete="deny_delete",
        denyPurge="deny_purge",
        allowDirect="allow_direct",
        allowRollup="allow_rollup_hdrs",
        mirrorDirect="mirror_direct",
        firstSequence="first_seq",
        allowMsgTtl="allow_msg_ttl",
        subjectDeleteMarkerTtl="subject_delete_marker_ttl",
        allowMsgCounter="allow_msg_counter",
        allowAtomicPublish="allow_atomic",
        allowMsgSchedules="allow_msg_schedules",
        persistMode="persist_mode",
        metadata="metadata",
    ),
    **_ORIGINS,
    "subjectTransform": Field(("subject_transform",), _TRANSFORM),
    "consumerLimits": Field(
        ("consumer_limits",), _plain(inactiveThreshold="inactive_threshold", maxAckPending="max_ack_pending")
    ),
}
CONSUMER: Final = _plain(
    streamName="stream",
    durableName="durable_name",
    description="description",
    deliverPolicy="deliver_policy",
    optStartSeq="opt_start_seq",
    optStartTime="opt_start_time",
    deliverSubject="deliver_subject",
    deliverGroup="deliver_group",
    ackPolicy="ack_policy",
    ackWait="ack_wait",
    maxDeliver="max_deliver",
    backoff="backoff",
    filterSubject="filter_subject",
    filterSubjects="filter_subjects",
    replayPolicy="replay_policy",
    sampleFreq="sample_freq",
    maxWaiting="max_waiting",
    rateLimitBps="rate_limit_bps",
    maxAckPending="max_ack_pending",
    flowControl="flow_control",
    headersOnly="headers_only",
    heartbeatInterval="idle_heartbeat",
    maxRequestBatch="max_batch",
    maxRequestExpires="max_expires",
    maxRequestMaxBytes="max_bytes",
    inactiveThreshold="inactive_threshold",
    pauseUntil="pause_until",
    priorityPolicy="priority_policy",
    priorityGroups="priority_groups",
    pinnedTtl="priority_timeout",
    replicas="num_replicas",
    memStorage="mem_storage",
    metadata="metadata",
)
_BUCKET: Final = _plain(
    bucket="bucket",
    description="description",
    ttl="ttl",
    maxBytes="max_bucket_size",
    storage="storage",
    replicas="replicas",
    compression="compression",
)
OBJECT_STORE: Final = {**_BUCKET, **_plain(metadata="metadata"), "placement": _ORIGINS["placement"]}
KEY_VALUE: Final = {
    **_BUCKET,
    **_plain(maxValueSize="max_value_size", history="history", limitMarkerTtl="limit_marker_ttl"),
    **_ORIGINS,
}

CONNECTION: Final = ("account", "creds", "nkey", "servers", "tls", "tlsFirst", "jsDomain")
"""The connection and login of the controller, for which natsctl has flags and contexts."""
LIFE: Final = ("preventDelete", "preventUpdate")
"""The changes that the controller may make to an existing asset."""
DELIVER_POLICIES: Final = {
    "byStartSequence": "by_start_sequence",
    "byStartTime": "by_start_time",
    "lastPerSubject": "last_per_subject",
}
"""Values that the controller spells differently."""
