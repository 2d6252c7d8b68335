"""Every key of nats-server's configuration is taken, taken without effect, or refused by name with a reason.

The keys are those of nats-server 2.15.2 (server/opts.go), by the function that reads them there, each with a line in
which it can be tried. Where the sources of that version are in Go's folder of modules, they are compared with the list.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from natsctl.api.versions import SERVER_VERSION
from natsctl.server.conf import config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from tests.support.server_page import REFUSING

PAGE = Path(__file__).parents[3] / "docs" / "not-served.md"
MODULES = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod")
SOURCE = MODULES / f"github.com/nats-io/nats-server/v2@v{SERVER_VERSION}" / "server" / "opts.go"
FUNCTION = re.compile(r"(?m)^func (?:\([^)]*\) )?")
CASE = re.compile(r'case ((?:"[^"]+"(?:,\s*)?)+):')
KEYS: dict[str, tuple[str, str]] = {
    "processConfigFileLine": (
        "{key}: 1",
        "listen client_advertise port server_name host net debug trace trace_verbose trace_headers logtime "
        "logtime_utc mappings maps disable_sublist_cache no_sublist_cache accounts default_sentinel "
        "authorization http https http_port monitor_port https_port http_base_path cluster gateway leaf "
        "leafnodes store_dir storedir jetstream logfile log_file logfile_size_limit log_size_limit "
        "logfile_max_num log_max_num syslog remote_syslog pidfile pid_file ports_file_dir prof_port "
        "prof_block_rate max_control_line max_payload max_pending proxy_protocol max_connections max_conn "
        "max_traced_msg_len max_subscriptions max_subs max_sub_tokens max_subscription_tokens ping_interval "
        "ping_max tls ocsp allow_non_tls write_deadline write_timeout lame_duck_duration "
        "lame_duck_grace_period operator operators roots root root_operators root_operator resolver "
        "account_resolver accounts_resolver resolver_tls resolver_preload resolver_pinned_accounts "
        "no_auth_user system_account system no_system_account no_system no_sys_acc no_header_support trusted "
        "trusted_keys connect_error_reports reconnect_error_reports websocket ws mqtt server_tags "
        "server_metadata feature_flags default_js_domain ocsp_cache no_fast_producer_stall max_closed_clients "
        "proxies",
    ),
    "parseCluster": (
        "cluster {{ {key}: 1 }}",
        "name listen port host net authorization routes tls cluster_advertise advertise no_advertise "
        "connect_retries connect_backoff permissions pool_size accounts compression ping_interval ping_max "
        "write_deadline write_timeout",
    ),
    "parseCompression": (
        "leafnodes {{ compression {{ {key}: 1 }} }}",
        "mode rtt_thresholds thresholds rtts rtt",
    ),
    "parseJetStream": (
        "jetstream {{ {key}: 1 }}",
        "enabled enable strict store store_dir storedir sync sync_interval max_memory_store max_mem_store "
        "max_mem max_file_store max_file domain key ek encryption_key prev_key prev_ek prev_encryption_key "
        "cipher extension_hint limits tpm unique_tag max_outstanding_catchup max_buffered_size "
        "max_buffered_msgs request_queue_limit info_queue_limit meta_compact meta_compact_size "
        "meta_compact_sync max_concurrent_io",
    ),
    "parseJetStreamLimits": (
        "jetstream {{ limits {{ {key}: 1 }} }}",
        "max_ack_pending max_ha_assets max_request_batch default_max_consumers duplicate_window batch",
    ),
    "parseJetStreamLimitsBatch": (
        "jetstream {{ limits {{ batch {{ {key}: 1 }} }} }}",
        "max_inflight_per_stream max_inflight_total max_msgs timeout",
    ),
    "parseJetStreamTPM": (
        "jetstream {{ tpm {{ {key}: 1 }} }}",
        "keys_file encryption_password srk_password pcr cipher",
    ),
    "parseJetStreamForAccount": (
        "accounts {{ A {{ jetstream {{ {key}: 1 }} }} }}",
        "max_memory max_mem mem memory max_store max_file max_disk store disk max_streams streams "
        "max_consumers consumers max_bytes_required max_stream_bytes max_bytes mem_max_stream_bytes "
        "memory_max_stream_bytes disk_max_stream_bytes store_max_stream_bytes max_ack_pending cluster_traffic",
    ),
    "parseLeafNodes": (
        "leafnodes {{ {key}: 1 }}",
        "listen port host net authorization remotes reconnect reconnect_delay reconnect_interval dial_timeout "
        "tls leafnode_advertise advertise no_advertise min_version minimum_version compression "
        "isolate_leafnode_interest isolate write_deadline write_timeout",
    ),
    "parseLeafAuthorization": (
        "leafnodes {{ authorization {{ {key}: 1 }} }}",
        "user username pass password nkey timeout users account proxy_required",
    ),
    "parseLeafUsers": (
        "leafnodes {{ authorization {{ users: [{{ {key}: 1 }}] }} }}",
        "user username pass password account proxy_required",
    ),
    "parseRemoteLeafNodes": (
        "leafnodes {{ remotes: [{{ {key}: 1 }}] }}",
        "no_randomize dont_randomize url urls account local creds credentials nkey seed tls hub deny_imports "
        "deny_import deny_exports deny_export ws_compress ws_compression websocket_compress "
        "websocket_compression ws_no_masking websocket_no_masking jetstream_cluster_migrate "
        "js_cluster_migrate isolate_leafnode_interest isolate request_isolation compression "
        "first_info_timeout dial_timeout disabled proxy ignore_discovered_servers",
    ),
    "parseAccounts": (
        "accounts {{ A {{ {key}: 1 }} }}",
        "nkey imports exports jetstream users default_permissions mappings maps limits msg_trace trace_dest",
    ),
    "parseAccountLimits": (
        "accounts {{ A {{ limits {{ {key}: 1 }} }} }}",
        "max_connections max_conn max_subscriptions max_subs max_payload max_pay max_leafnodes max_leafs",
    ),
    "parseAccountMsgTrace": (
        "accounts {{ A {{ msg_trace {{ {key}: 1 }} }} }}",
        "dest sampling",
    ),
    "parseAccountMapDest": (
        "mappings {{ a: [{{ {key}: 1 }}] }}",
        "dest destination weight cluster",
    ),
    "parseAccount": (
        "accounts {{ A {{ imports: [{{ stream {{ {key}: 1 }} }}] }} }}",
        "account subject",
    ),
    "parseExportStreamOrService": (
        "accounts {{ A {{ exports: [{{ {key}: 1 }}] }} }}",
        "stream service response response_type threshold response_threshold response_max_time response_time "
        "accounts latency account_token_position allow_trace",
    ),
    "parseImportStreamOrService": (
        "accounts {{ A {{ imports: [{{ {key}: 1 }}] }} }}",
        "stream service prefix to share allow_trace",
    ),
    "parseAuthorization": (
        "authorization {{ {key}: 1 }}",
        "user username pass password token timeout users default_permission default_permissions permissions "
        "auth_callout auth_hook proxy_required",
    ),
    "parseAuthCallout": (
        "authorization {{ auth_callout {{ {key}: 1 }} }}",
        "issuer account acc auth_users users xkey key allowed_accounts",
    ),
    "parseUsers": (
        "authorization {{ users: [{{ {key}: 1 }}] }}",
        "nkey user username pass password permission permissions authorization allowed_connection_types "
        "connection_types clients proxy_required",
    ),
    "parseUserPermissions": (
        "authorization {{ permissions {{ {key}: 1 }} }}",
        "pub publish import sub subscribe export publish_allow_responses allow_responses",
    ),
    "parseAllowResponses": (
        "authorization {{ permissions {{ allow_responses {{ {key}: 1 }} }} }}",
        "max max_msgs max_messages max_responses expires expiration ttl",
    ),
    "parseSubjectPermission": (
        "authorization {{ permissions {{ pub {{ {key}: 1 }} }} }}",
        "allow deny",
    ),
    "parseTLS": (
        "tls {{ {key}: 1 }}",
        "cert_file key_file ca_file insecure verify verify_and_map verify_cert_and_check_known_urls "
        "allow_insecure_cipher_suites cipher_suites curve_preferences timeout connection_rate_limit "
        "pinned_certs cert_store cert_match_by cert_match ca_certs_match handshake_first first immediate "
        "cert_match_skip_invalid ocsp_peer certs certificates min_version",
    ),
    "parseSimpleAuth": (
        "websocket {{ authorization {{ {key}: 1 }} }}",
        "user username pass password token timeout",
    ),
    "parseWebsocket": (
        "websocket {{ {key}: 1 }}",
        "listen port host net advertise no_tls tls same_origin allowed_origins allowed_origin allow_origins "
        "allow_origin origins origin handshake_timeout compress compression authorization authentication "
        "jwt_cookie user_cookie pass_cookie token_cookie no_auth_user headers ping_interval",
    ),
    "parseGateway": (
        "gateway {{ {key}: 1 }}",
        "name listen port host net authorization tls advertise connect_retries connect_backoff gateways "
        "reject_unknown reject_unknown_cluster write_deadline write_timeout",
    ),
    "parseGateways": (
        "gateway {{ gateways: [{{ {key}: 1 }}] }}",
        "name tls url urls",
    ),
    "parseMQTT": (
        "mqtt {{ {key}: 1 }}",
        "listen port host net tls authorization authentication no_auth_user ack_wait ackwait js_api_timeout "
        "api_timeout max_ack_pending max_pending max_inflight js_domain stream_replicas consumer_replicas "
        "consumer_memory_storage consumer_inactive_threshold consumer_auto_cleanup reject_qos2_publish "
        "downgrade_qos2_subscribe",
    ),
    "parseProxies": (
        "proxies {{ {key}: 1 }}",
        "trusted",
    ),
    "parseProxiesTrusted": (
        "proxies {{ trusted: [{{ {key}: 1 }}] }}",
        "key public_key",
    ),
}
VALUES = {
    "processConfigFileLine": "mode urls url CACHE FULL MEM MEMORY",
    "parseJetStreamForAccount": "enabled enable disabled disable owner",
    "parseJetStream": "disabled disable",
    "parseRemoteLeafNodes": "username password timeout",
    "parseExportStreamOrService": "single singleton chunk chunked",
    "parseTLS": "true on false off auto auto_fallback",
}
"""Cases of the same functions that are values, or keys of a block within a block that is refused as a whole."""
OTHERS = {"parseWriteDeadlinePolicy", "setJetStreamEkCipher", "ConfigureOptions"}
"""Functions whose cases are values or flags."""
ALL = [(block, line, key) for block, (line, keys) in KEYS.items() for key in keys.split()]


def answer(line: str) -> str:
    """Return the error for a configuration, "" where it is taken."""
    try:
        config.apply(load_text(line, {}), ServerOptions())
    except ConfError as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize(("line", "key"), [(line, key) for _, line, key in ALL])
def test_no_key_of_nats_server_is_unknown(line: str, key: str) -> None:
    assert "unknown field" not in answer(line.format(key=key)).lower()


def test_a_key_that_nats_server_does_not_have_is_unknown_in_every_block() -> None:
    refused = ("cluster", "gateway", "mqtt", "tpm")
    lines = [line for line, _ in KEYS.values() if not any(block in line for block in refused)]
    assert len(lines) > 20
    known = [line for line in lines if "unknown field" not in answer(line.format(key="no_such_key")).lower()]
    assert known == []


@pytest.mark.reference
@pytest.mark.skipif(not SOURCE.is_file(), reason=f"the sources of nats-server {SERVER_VERSION} are not here")
def test_the_list_has_every_key_of_the_sources() -> None:
    found: dict[str, set[str]] = {}
    for text in FUNCTION.split(SOURCE.read_text(encoding="utf-8"))[1:]:
        keys = {key for case in CASE.findall(text) for key in re.findall('"([^"]+)"', case)}
        name = text.partition("(")[0]
        if keys and name not in OTHERS:
            found[name] = keys - set(VALUES.get(name, "").split())
    assert found == {name: set(keys.split()) for name, (_, keys) in KEYS.items()}


def test_the_page_names_what_is_refused_and_nothing_else() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("<!-- refused keys -->")[2].partition("\n\n")[0]
    spans = [span for row in table.splitlines()[3:] for span in re.findall(r"`([^`]+)`", row.split("|")[2])]
    named = {word for span in spans for word in re.findall(r"\w+", span)}
    assert {key for keys in REFUSING for key in re.findall(r"\w+", keys)} - named == set()
    lines = [span for span in spans if ":" in span or "{" in span]
    assert len(lines) >= len(REFUSING)
    assert [line for line in lines if not answer(line)] == []
