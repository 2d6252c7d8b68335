"""What is wrong with a nats.conf, by its text: in words of both servers, and in natsctl's own."""

from __future__ import annotations

NKEY = "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE"
ISSUER = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
A = "accounts { A { exports: [%s] }, B { imports: [%s] } }"
CALLOUT = "authorization { users: [{user: auth, password: pwd}]\n auth_callout { %s } }"
PROXY = "leafnodes { remotes: [{ %s }] }"
WS = "websocket { port: -1, no_tls: true, %s }"

IN_WORDS_OF_BOTH = {
    # accounts and mappings
    'accounts: ["$G"]': '"$G" is a Reserved Account',
    "accounts: [A, A]": "Duplicate Account Entry: A",
    "accounts {A: 1}": "Expected map entries for accounts",
    'accounts {"$G" {}}': '"$G" is a Reserved Account',
    "accounts {A {nkey: x}}": 'Not a valid public nkey for an account: "x"',
    "accounts {A {other: x}}": 'unknown field "other"',
    "accounts {A {limits {x: 1}}}": 'Unknown field "x" parsing account limits',
    "accounts {A {exports: x}}": "Exports should be an array, got ",
    "accounts {A {imports: x}}": "Imports should be an array, got ",
    A % ("x", ""): "Export Items should be a map with type entry, got ",
    A % ("", "x"): "Import Items should be a map with type entry, got ",
    A % ("{service: s, response: x}", ""): 'Unknown response type: "x"',
    A % ("{stream: s, response: single}", ""): "Detected response directive on non-service",
    A % ("{stream: s, latency: l}", ""): "Detected latency directive on non-service",
    A % ("{stream: s, allow_trace: true}", ""): "Detected allow_trace directive on non-service",
    A
    % ("", "{service: {account: B, subject: s}, allow_trace: true}"): "Detected allow_trace directive on a non-stream",
    "accounts {A {msg_trace: 1}}": 'Expected account message trace "msg_trace" to be a string or a map/struct, got ',
    "accounts {A {trace_dest: a.*}}": 'Trace destination "a.*" is not valid',
    "accounts {A {msg_trace: {dest: 1}}}": 'Field "dest" should be a string, got ',
    "accounts {A {msg_trace: {sampling: 0}}}": "Ttrace destination sampling value 0 is invalid, needs to be [1..100]",
    "accounts {A {msg_trace: {sampling: x}}}": 'Invalid trace destination sampling value "x"',
    "accounts {A {msg_trace: {sampling: 1.5}}}": (
        'Trace destination sampling field "sampling" should be an integer or a percentage, got '
    ),
    "accounts {A {msg_trace: {x: 1}}}": 'Unknown field "x" parsing account message trace map/struct "msg_trace"',
    A % ("{service: s, threshold: x}", ""): "Expected response threshold to be a parseable time duration, got",
    A % ("{service: s, latency: {sampling: 0, subject: l}}", ""): "bad sampling percentage, should be 1-100",
    A % ("{service: s, latency: {sampling: x, subject: l}}", ""): "Failed to parse latency sample: strconv.Atoi: ",
    A % ("{service: s, latency: {sampling: 1}}", ""): "Latency subject required, but missing",
    A
    % ("{service: s, latency: s}", ""): 'Error adding service latency sampling for "s" on subject "s": invalid publish',
    A
    % ("{service: s, response: stream, latency: l}", ""): 'sampling for "s" on subject "l": bad service response type',
    A % ("{stream: s, accounts: [X]}", ""): '"X" account not defined for stream export',
    A % ("{service: s, accounts: [X]}", ""): '"X" account not defined for service export',
    A % ("{stream: s, account_token_position: 1}", ""): 'Error adding stream export "s": sublist: invalid subject',
    A % ("{other: s}", ""): 'unknown field "other"',
    A % ("", "{stream: {account: X, subject: s}}"): '"X" account not defined for stream import',
    A % ("", "{service: {account: X, subject: s}}"): '"X" account not defined for service import',
    A % ("", "{service: {account: A}}"): "Expect an account name and a subject",
    A % ("", "{service: x}"): "Service entry should be an account map, got ",
    A % ("", "{stream: x}"): "Stream entry should be an account map, got ",
    A % ("", "{stream: {account: A, subject: s}}"): 'Error adding stream import "s": stream import not authorized',
    A % ("", "{service: {account: A, subject: s}}"): 'Error adding service import "s": service import not authorized',
    A % ("{stream: s}", "{stream: {account: A, subject: s}, prefix: '*'}"): (
        'Error adding stream import "s": stream import prefix can not contain wildcard tokens'
    ),
    A % ("{stream: s}", "{stream: {account: A, subject: s}}, {stream: {account: A, subject: s}, to: t}"): (
        'Error adding stream import "s": stream import already exists'
    ),
    A % ("{service: s}", "{service: {account: A, subject: s}}, {service: {account: A, subject: s}}"): (
        'Duplicate service import subject "s", previously used in import for account "A", subject "s"'
    ),
    A % ('{service: "s.*"}', '{service: {account: A, subject: "s.*"}, to: "t.*.*"}'): (
        'Error adding service import "s.*": failed to create mapping transform for service import subject from '
        '"t.*.*" to "s.*": invalid mapping destination'
    ),
    A % ('{stream: "s.*"}', '{stream: {account: A, subject: "s.*"}, to: t}'): (
        'Error adding stream import "s.*": failed to create mapping transform for stream import subject from "s.*" to '
        '"t": invalid mapping destination: not using all of the token wildcard(s)'
    ),
    'accounts { A { exports: [{service: "q.*"}], imports: [{service: {account: B, subject: "q.*"}}] },'
    ' B { exports: [{service: "q.*"}], imports: [{service: {account: A, subject: "q.*"}}] } }': (
        'Error adding service import "q.*": import forms a cycle'
    ),
    "mappings {foo: [{dest: a, weight: 60}, {dest: b, weight: 60}]}": "total weight needs to be <= 100",
    "mappings {foo: [{dest: a, weight: 60}, {dest: a, weight: 10}]}": 'duplicate entry for "a"',
    "mappings {foo: [{dest: a, weight: 160}]}": "Invalid weight 160 for mapping destination",
    "mappings {foo: [{dest: a, weight: x}]}": 'Invalid weight "x" for mapping destination',
    "mappings {foo: {dest: a}}": 'Missing weight for mapping destination "a"',
    "mappings {foo: [{dest: a, x: 1}]}": 'Unknown field "x" for mapping destination',
    'mappings {"foo..": a}': 'Subject "foo.." is not a valid subject',
    'mappings {"foo.*": "a.$2"}': 'Error adding mapping for "foo.*" to "a.$2" : invalid mapping destination',
    # auth_callout
    CALLOUT % ("issuer: A, auth_users: [auth]"): 'Expected callout user to be a valid public account nkey, got "A"',
    CALLOUT % (f"issuer: U{ISSUER[1:]}, auth_users: [auth]"): (
        f'Expected callout user to be a valid public account nkey, got "U{ISSUER[1:]}"'
    ),
    CALLOUT % (f"issuer: {ISSUER}, auth_users: [auth], xkey: {ISSUER}"): (
        f'Expected callout xkey to be a valid public xkey, got "{ISSUER}"'
    ),
    CALLOUT % ("auth_users: [auth]"): "Authorization callouts require an issuer to be specified",
    CALLOUT % (f"issuer: {ISSUER}"): "Authorization callouts require authorized users to be specified",
    CALLOUT % (f"issuer: {ISSUER}, auth_users: []"): "Authorization callouts require authorized users to be specified",
    CALLOUT % (f"issuer: {ISSUER}, auth_users: auth"): "Expected auth_users field to be an array",
    CALLOUT % (f"issuer: {ISSUER}, auth_users: [auth], allowed_accounts: A"): (
        "Expected allowed accounts field to be an array"
    ),
    CALLOUT
    % (f"issuer: {ISSUER}, auth_users: [auth], no_such: 1"): 'Unknown field "no_such" parsing authorization callout',
    "authorization { users: [{user: auth}]\n auth_callout: x }": "Expected authorization callout to be a map/struct",
    CALLOUT % (f"issuer: {ISSUER}, auth_users: [auth], allowed_accounts: [NOPE]"): (
        'auth_callout allowed account "NOPE" not found in configured accounts'
    ),
    # proxies, of leaf nodes and of clients
    PROXY % "proxy: 1": "Expected proxy to be a map, got",
    PROXY % "proxy { bogus: 1 }": 'unknown field "bogus"',
    PROXY % "proxy { username: u }": "proxy URL must be specified when other proxy options are set",
    PROXY % 'proxy { url: "ftp://a" }': "proxy URL scheme must be http or https, got: ftp",
    PROXY % 'proxy { url: "http://" }': "proxy URL must specify a host",
    PROXY
    % 'proxy { url: "http://a", username: u }': "proxy username and password must both be specified or both be empty",
    PROXY % 'proxy { url: "http://a", timeout: "-1s" }': "proxy timeout must be >= 0",
    PROXY % 'proxy { url: "http://a", tls { insecure: true } }': "proxy TLS configuration requires an https proxy URL",
    PROXY % 'proxy { url: "https://a", tls { verify: true } }': '"verify" is not supported for proxy TLS',
    PROXY % 'url: "wss://hub", proxy { url: "http://a" }': "requires TLS and no TLS configuration is provided",
    "proxies: 1": "expected proxies to be a map/struct, got",
    "proxies { trusted: 1 }": "expected proxies' trusted field to be an array, got",
    'proxies { trusted: ["x"] }': "expected proxies' trusted entry to be a map/struct, got",
    "proxies { trusted: [{ key: X }] }": 'invalid proxy key "X"',
    "proxies { trusted: [{ public_key: X }] }": 'invalid proxy key "X"',
    "proxies { other: 1 }": 'unknown field "other"',
    "proxies { trusted: [{ other: 1 }] }": 'unknown field "other"',
    "jetstream { key: k, cipher: rot13 }": 'Unknown cipher type: "rot13"',
    # tls; %CERT% and %KEY% are files of the test
    "tls { cert_file: 1 }": "error parsing tls config, expected 'cert_file' to be filename",
    "tls { verify: 1 }": "error parsing tls config, expected 'verify' to be a boolean",
    "tls { foo: 1 }": 'error parsing tls config, unknown field "foo"',
    "tls { cert_file: %CERT% }": "missing 'key_file' in TLS configuration",
    "tls { key_file: %KEY% }": "missing 'cert_file' in TLS configuration",
    "tls { cert_file: nope, key_file: %KEY% }": "error parsing X509 certificate/key pair: open nope: no such file",
    "tls { cert_file: %CERT%, key_file: %KEY%, ca_file: nope }": "open nope: no such file or directory",
    "tls { cert_file: %CERT%, key_file: %KEY%, ca_file: %KEY% }": "failed to parse root ca certificate",
    'tls { min_version: "1.1" }': "error parsing tls config: unsupported TLS version: TLS 1.1",
    'tls { min_version: "1.9" }': "error parsing tls config: unknown version: 1.9",
    "tls { min_version: 1.2 }": "error parsing tls config: 'min_version' wrong type: 1.2",
    "tls { cipher_suites: [] }": "error parsing tls config, 'cipher_suites' cannot be empty",
    "tls { cipher_suites: [X] }": "unrecognized cipher X",
    "tls { curve_preferences: [] }": "error parsing tls config, 'curve_preferences' cannot be empty",
    "tls { curve_preferences: [P] }": "unrecognized curve preference P",
    "tls { timeout: x }": "error parsing tls config, 'timeout' time: invalid duration \"x\"",
    "tls { timeout: true }": "error parsing tls config, 'timeout' wrong type",
    "tls { connection_rate_limit: x }": "error parsing tls config, 'connection_rate_limit' wrong type",
    "tls { pinned_certs: [ab] }": "'pinned_certs' key ab does not look like hex-encoded sha256 of DER encoded",
    "tls { handshake_first: x }": 'field "handshake_first"\'s value "x" is invalid',
    "tls { certs: [ {cert_file: a} ] }": "both 'cert_file' and 'cert_key' options are required",
    "tls { certs: [ {cert_file: a, key_file: b} ] }": "error parsing X509 certificate/key pair 1/1: open a: ",
    "tls { certs: [ {cert: a} ] }": 'error parsing tls certs config, unknown field "cert"',
    "tls { verify_cert_and_check_known_urls: true }": "verify_cert_and_check_known_urls not supported in this context",
    "tls { cert_store: WindowsCurrentUser }": "cert_store not compatible with current operating system",
}

OCSP = [
    "ocsp: 5", "ocsp: maybe", "ocsp { mode: sometimes }", "ocsp { mod: auto }", "ocsp_cache: 5",
    "ocsp_cache { type: disk }", "ocsp_cache { type: 5 }", "ocsp_cache { typ: none }",
    "ocsp_cache { local_store: 5 }", "ocsp_cache { preserve_revoked: 1 }", "ocsp_cache { save_interval: soon }",
    "ocsp_cache { save_interval: true }", "tls { ocsp_peer: 5 }", "tls { ocsp_peer { verfy: true } }",
    "tls { ocsp_peer { verify: 1 } }", "tls { ocsp_peer { warn_only: soon } }",
    "tls { ocsp_peer { unknown_is_good: 1 } }", "tls { ocsp_peer { allow_when_ca_unreachable: 1 } }",
    "tls { ocsp_peer { ca_timeout: soon } }", "tls { ocsp_peer { ca_timeout: true } }",
    "tls { ocsp_peer { allowed_clockskew: soon } }", "tls { ocsp_peer { cache_ttl_when_next_update_unset: true } }",
]  # fmt: skip
"""Whole texts are compared."""

IN_OWN_WORDS = {
    # syntax
    "a: 1\nb: {\nc: 1\n": "nats.conf:2: Parse error on line 2: 'the block that opens here is never closed",
    "a: [1, 2": "nats.conf:1: Parse error on line 1: 'the array that opens here is never closed",
    '\n\na: "x': "nats.conf:3: Parse error on line 3: 'the string that opens here is never closed",
    "a:\nb: 1": "nats.conf:1: Parse error on line 1: ''a' has no value'",
    "a: 1\n}\nb: 1": "nats.conf:3: Parse error on line 3: 'expected a top-level value to end",
    "a: [x y]": "expected an item to end with a new line or a comma, not 'y'",
    "a { b: 1 c: 2 }": "expected a value to end",
    "a: 1.5s": "expected a top-level value to end",
    "a: 12-ab": "quote other texts",
    "a: .5": "a number begins with a digit",
    "a: -x": "expected a digit",
    "a: 1kbb": "unknown unit",
    "a: 99999999999999999999": "is out of the range",
    "a: $X": "variable reference for 'X' can not be found",
    "a: 1\0": "a zero byte is no text",
    "a: 2026-13-01T00:00:00Z": "expected Zulu formatted DateTime",
    r'a: "\q"': r"unknown escape \q",
    "include 'none.conf'": "nats.conf:1: error parsing include file 'none.conf'",
    "a " + "{ a " * 100: "too many blocks within blocks",
    "a: " + "[" * 100: "too many blocks within blocks",
    # keys at the top, and JetStream
    "port: 1\nprot: 4222": 'nats.conf:2: unknown field "prot"',
    "port: many": "nats.conf:1: expected a number",
    "jetstream: maybe": "expected enabled, disabled or a block",
    "jetstream { stor_dir: x }": 'unknown field "stor_dir"',
    "jetstream { max_buffered_msgs: many }": "expected a number",
    'jetstream { max_mem: "1GB" }': "expected a size",
    'jetstream { max_file: "12" }': "expected a size",
    "listen: here": 'could not parse address string "here"',
    "accounts { A { users: [{pass: x}] } }": "User entry requires a user",
    "PROT: 4222": 'unknown field "PROT"',
    "jetstream { sync: sometimes }": 'invalid duration "sometimes"',
    # authorization
    "authorization { user: a, password: b, token: c }": "Cannot have a user/pass and token",
    "authorization { user: a, users: [] }": "Can not have a single user/pass and a users array",
    "authorization { token: a, users: [{user: b}] }": "Can not have a token and a users array",
    "authorization { users: [{user: a}, {user: a}] }": 'Duplicate user "a" detected',
    f"authorization {{ users: [{{nkey: {NKEY}}}, {{nkey: {NKEY}}}] }}": f'Duplicate nkey "{NKEY}" detected',
    "authorization { users: {user: a} }": "Expected users field to be an array",
    "authorization { users: [a] }": "Expected user entry to be a map/struct",
    "authorization { users: [{password: a}] }": "User entry requires a user",
    "authorization { users: [{nkey: UABC}] }": "Not a valid public nkey for a user",
    f"authorization {{ users: [{{nkey: A{NKEY[1:]}}}] }}": "Not a valid public nkey for a user",
    f"authorization {{ users: [{{nkey: {NKEY}, user: a}}] }}": "Nkey users do not take usernames or passwords",
    f"authorization {{ users: [{{nkey: {NKEY}, pass: a}}] }}": "Nkey users do not take usernames or passwords",
    "authorization { users: [{user: a, usr: b}] }": 'unknown field "usr"',
    "authorization { usr: a }": 'unknown field "usr"',
    "authorization { users: [{user: a, clients: [X, STANDARD]}] }": 'invalid connection types ["X"]',
    "authorization { users: [{user: a, permissions: x}] }": "Expected permissions to be a map/struct",
    "authorization { users: [{user: a, permissions: {x: y}}] }": 'Unknown field "x" parsing permissions',
    "authorization { users: [{user: a, permissions: {pub: {x: y}}}] }": 'Unknown field name "x" parsing subject',
    "authorization { users: [{user: a, permissions: {pub: 1}}] }": "Expected subject permissions to be a subject",
    "authorization { users: [{user: a, permissions: {pub: a..b}}] }": 'subject "a..b" is not a valid subject',
    'authorization { users: [{user: a, permissions: {pub: "a q"}}] }': 'subject "a q" is not a valid subject',
    'authorization { users: [{user: a, permissions: {sub: "a b c"}}] }': 'subject "a b c" is not a valid subject',
    'authorization { users: [{user: a, permissions: {sub: "a b..c"}}] }': 'queue "b..c" is not a valid queue',
    "authorization { users: [{user: a, permissions: {allow_responses: 1}}] }": "expected a boolean or a map",
    "authorization { users: [{user: a, permissions: {allow_responses: {ttl: 1}}}] }": "not a duration string",
    "authorization { users: [{user: a, permissions: {allow_responses: {ttl: x}}}] }": "error parsing expires",
    "authorization { auth_callout: {} }": "Authorization callouts require an issuer to be specified",
    # leafnodes
    "leafnodes {\n bogus: 1 }": '2: unknown field "bogus"',
    "leafnodes {\n min_version: 2.7.0 }": "2: the minimum version should be at least 2.8.0",
    "leafnodes {\n min_version: new }": "2: invalid leafnode's minimum version",
    "leafnodes { compression {\n levels: 1 } }": '2: unknown field "levels"',
    "leafnodes { compression {\n rtts: [often] } }": '2: error parsing rtts: time: invalid duration "often"',
    "leafnodes { authorization {\n proxy_required: 1 } }": "2: expected true or false",
    "leafnodes {\n remotes: 1 }": "2: expected remotes field to be an array",
    "leafnodes { remotes: [\n { bogus: 1 } ] }": '2: unknown field "bogus"',
    'leafnodes { remotes: [ { url: "a" },\n { url: "a" } ] }': "2: duplicate remote",
    'leafnodes { remotes: [\n { url: "a", nkey: "UABC" } ] }': "2: Remote leafnode nkey is not a valid seed",
    'leafnodes { remotes: [\n { url: "a", deny_imports: "a..b" } ] }': '2: subject "a..b" is not a valid subject',
    "leafnodes { authorization {\n user: u, users: [ { user: v } ] } }": "1: can not have a single user/pass",
    "leafnodes { authorization { users: [\n { user: v }, { user: v } ] } }": 'duplicate user "v" detected',
    # websocket
    WS % "foo: 1": 'unknown field "foo"',
    WS % "authorization { users: [] }": 'unknown field "users"',
    WS % "handshake_timeout: 1.5": "error parsing handshake timeout: unsupported type",
    WS % "headers: 1": "error parsing headers: unsupported type",
}

IN_OWN_WORDS_ALONE = {
    "cluster { port: -1 }": "natsctl cluster run starts a cluster of nats-servers",
    "mqtt { port: -1 }": "mqtt: natsctl server has no MQTT listener",
    "port: 99999": "invalid port 99999",
    "no_auth_user: nobody": 'no_auth_user: "nobody" present, but users/nkeys are not defined',
    "\nNo_Auth_User: nobody\nauthorization { users [{user: a}] }": 'nats.conf:2: no_auth_user: "nobody" not present',
    "default_js_domain { A: hub }": "in non operator mode, `default_js_domain` references non existing account",
    "accounts { A { jetstream: enabled } }\ndefault_js_domain { A: hub }": 'account name "A" with enabled JetStream',
    "default_js_domain { $SYS: hub }": 'system account "$SYS" can not be in default_js_domain',
    'accounts { A {} }\ndefault_js_domain { A: "a b" }': 'account "A" with invalid domain name "a b"',
    "leafnodes {\n port: 70000 }": "2: invalid port",
    "leafnodes {\n compression: zip }": '2: unsupported compression mode "zip"',
    'leafnodes { remotes: [\n { url: "nats://" } ] }': "2: error parsing leafnode url",
    'leafnodes { remotes: [\n { urls: ["ws://a", "tls://b"] } ] }': "2: remote leaf node configuration",
    'leafnodes { remotes: [ { url: "a", account: X } ] }': 'cannot find local account "X" specified in',
    "leafnodes { port: 1, authorization { account: X } }": 'local account "X" specified in leafnode auth',
    WS % "headers { Host: a }": 'websocket: invalid header "Host" not allowed',
    WS % "headers { Sec-WebSocket-X: a }": '"Sec-WebSocket-" prefix not allowed',
    WS % 'headers { X: "a\\r\\nb" }': "has control characters",
    WS % "allowed_origins: [x]": 'unable to parse allowed origin: parse "x": invalid URI for request',
    WS % 'allowed_origins: ["ftp://x"]': "allowed origins must be absolute URLs with http or https scheme",
    WS % 'allowed_origins: ["http://"]': "host is required",
    WS % "no_auth_user: a": 'no_auth_user: "a" present, but users/nkeys are not defined',
    WS % "jwt_cookie: a": 'is required for JWT authentication via cookie "a"',
    WS % "no_tls: false": "websocket requires TLS configuration",
}
"""A check by nats-server finds nothing: it finds out when it starts, or takes what is not served here."""
