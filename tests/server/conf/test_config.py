import subprocess
from pathlib import Path

import pytest

from natsctl.broker.auth.static_auth import User
from natsctl.server.conf.config import apply, config_digest
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions
from natsctl.server.process.flags import parse_command_line
from natsctl.testing.process import reference_binary
from tests.server.test_example_configs import EXAMPLES, FromFile, certificates


def options(text: str) -> ServerOptions:
    return apply(load_text(text, {}), ServerOptions())


def test_listen_addresses_in_every_form() -> None:
    assert options("listen: 127.0.0.1:-1").host == "127.0.0.1"
    assert options("listen: 127.0.0.1:-1").port == -1
    assert options("listen: 4333").port == 4333
    assert options('http: "localhost:8333"').http_host == "localhost"
    assert options("http_port: 8333").http_port == 8333


@pytest.mark.parametrize(
    "text", ["jetstream: true", "jetstream: enabled", "jetstream {}", "jetstream: {enabled: true}"]
)
def test_jetstream_is_switched_on_in_every_form(text: str) -> None:
    assert options(text).jetstream


def test_jetstream_takes_its_folder_domain_limits_and_sync_policy() -> None:
    given = options("jetstream { store_dir: /s, domain: hub, max_mem: 1GB, max_file: 2TB, sync_interval: 1s }")
    assert (given.store_dir, given.domain) == (Path("/s"), "hub")
    assert (given.max_memory, given.max_storage, given.sync) == (1 << 30, 2 << 40, 1_000_000_000)


def test_limits_of_consumers_and_batches_are_read() -> None:
    given = options("""
        jetstream { limits { max_ack_pending: 7, max_request_batch: 8, default_max_consumers: 9, duplicate_window: "1m",
                             max_ha_assets: 3, batch { max_inflight_per_stream: 2, max_inflight_total: 4, max_msgs: 5,
                                                       timeout: "2s" } } }
    """).jetstream_limits
    assert (given.max_ack_pending, given.max_request_batch, given.default_max_consumers) == (7, 8, 9)
    assert given.max_duplicate_window_ns == 60_000_000_000
    batches = given.batches
    assert (batches.atomic_of_stream, batches.fast_of_stream, batches.atomic_of_server) == (2, 2, 4)
    assert (batches.atomic_size, batches.timeout_ns) == (5, 2_000_000_000)


def test_accounts_have_users_and_limits_of_their_own() -> None:
    given = options("""
        no_auth_user: foo
        accounts {
          A { users: [{user: foo}, {user: bar, password: p}]
              jetstream { max_mem: 64MB, max_file: 32MB, max_streams: 10, max_consumers: 20, max_ack_pending: 100,
                          memory_max_stream_bytes: 2048, store_max_stream_bytes: 4096, max_stream_bytes: true } }
          B { jetstream: enabled }
          C { }
        }
    """)
    assert given.users == (User("foo", "", "A"), User("bar", "p", "A"))
    first, second, third = given.accounts
    assert first.jetstream is not None and second.jetstream is not None and third.jetstream is None
    assert (first.jetstream.max_memory, first.jetstream.max_storage) == (64 << 20, 32 << 20)
    assert (first.jetstream.max_streams, first.jetstream.max_consumers) == (10, 20)
    assert (first.jetstream.memory_max_stream_bytes, first.jetstream.storage_max_stream_bytes) == (2048, 4096)
    assert first.jetstream.max_bytes_required
    assert second.jetstream.max_streams == -1


def test_accounts_have_the_domain_of_another_servers_jetstream() -> None:
    given = options('accounts { A {}, B {} }\ndefault_js_domain { A: hub, B: "" }\n')
    assert given.default_js_domain == (("A", "hub"), ("B", ""))


def test_a_size_of_jetstream_may_be_quoted_with_its_letter() -> None:
    given = options('jetstream { max_mem: "64M", max_file: "2T" }')
    assert (given.max_memory, given.max_storage) == (64 << 20, 2 << 40)


def test_bounds_of_what_one_node_does_not_queue_change_nothing() -> None:
    given = options("""
        jetstream { max_buffered_size: 1Gb, max_buffered_msgs: 20000, info_queue_limit: 9, max_concurrent_io: 8,
            max_outstanding_catchup: 64MB, meta_compact: 5, meta_compact_size: 1MB }
    """)
    assert given == options("jetstream {}")


def test_a_folder_of_the_command_line_and_one_of_the_file_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("jetstream { store_dir: /a }\n")
    with pytest.raises(ConfError, match="Duplicate 'store_dir' configuration"):
        parse_command_line(["-c", str(tmp_path / "x.conf"), "-sd", "/b"])
    (tmp_path / "x.conf").write_text("jetstream { domain: hub }\n")
    given = parse_command_line(["-c", str(tmp_path / "x.conf"), "-sd", "/b"]).options
    assert (given.store_dir, given.domain, given.jetstream) == (Path("/b"), "hub", True)


def test_a_configuration_has_the_digest_that_nats_server_gives_it() -> None:
    block = load_text("# nothing but this\nlisten: 127.0.0.1:-1\n", {})
    assert config_digest(block) == "sha256:b0f7691df1003bd3924dcf3e7766b266cbaab4d564b73d9a581c6f689c6ec533"
    same = load_text("'listen' = \"127.0.0.1:-1\"", {})
    assert config_digest(same) == config_digest(block)
    other = load_text("a: [1.0, 1.5, 2026-01-31T00:00:00Z, <&>, true]", {})
    assert config_digest(other).startswith("sha256:")


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.conf")))
def test_every_example_is_accepted(name: str, tmp_path: Path) -> None:
    server = FromFile(tmp_path, "natsctl", name, {})
    certificates(tmp_path / "etc")
    assert parse_command_line(["-t", "-c", str(server.config)]).action == "check"


@pytest.mark.reference
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.conf")))
def test_nats_server_accepts_every_example(name: str, tmp_path: Path) -> None:
    server = FromFile(tmp_path, "reference", name, {})
    certificates(tmp_path / "etc")
    subprocess.run([str(reference_binary()), "-t", "-c", str(server.config)], capture_output=True, check=True)
