"""Parts of benchmarks that need no server: sums of latencies, shares, commands."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError, NothingReceivedError, UnreachableError, UsageError
from natsctl.client.bench.benchmark import decode_line, encode_line
from natsctl.client.bench.client import CommandBuilder, Latencies, answer_failure, command
from natsctl.client.bench.load import KINDS, Load
from natsctl.client.bench.report import ClientResult, csv_text, report
from natsctl.client.dial import NotListeningError

times = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)


def gathered(values: list[int]) -> Latencies:
    made = Latencies()
    for value in values:
        made.add(value)
    return made


@given(times)
def test_percentiles_are_within_one_part_in_128(values: list[int]) -> None:
    found = gathered(values)
    for percent in (10.0, 50.0, 90.0, 100.0):
        exact = sorted(values)[max(0, -(-len(values) * int(percent) // 100) - 1)]
        assert exact * (1 - 1 / 128) - 1 <= found.percentile(percent) <= exact
    spread = found.spread()
    assert spread is not None
    assert (spread.min_ns, spread.max_ns, spread.avg_ns) == (min(values), max(values), round(sum(values) / len(values)))
    assert spread.stddev_ns == pytest.approx(statistics.pstdev(values), rel=0.01, abs=max(values) * 1e-5 + 1)


@given(times, times)
def test_merged_latencies_are_those_of_both(one: list[int], two: list[int]) -> None:
    merged = decode_line(encode_line(gathered(one)))
    merged.merge(gathered(two))
    assert merged.spread() == gathered(one + two).spread()
    assert merged.counts == gathered(one + two).counts


@given(times)
def test_bins_hold_every_value_once_and_grow(values: list[int]) -> None:
    bins = gathered(values).bins()
    assert sum(count for _, count in bins) == len(values)
    ends = [end for end, _ in bins]
    assert ends == sorted(set(ends))
    assert ends[-1] > max(values) * (1 - 1 / 128)


@given(st.sampled_from(sorted(KINDS)), st.integers(1, 50), st.integers(50, 1000))
def test_shares_cover_all_messages_once(kind: str, clients: int, msgs: int) -> None:
    load = Load(kind=kind, subject="x", clients=clients, msgs=msgs)
    shares = [load.share(number) for number in range(clients)]
    assert sum(count for _, count in shares) == load.total
    if load.about.shared:
        assert [first for first, _ in shares] == [sum(count for _, count in shares[:n]) for n in range(clients)]
    else:
        assert shares == [(0, msgs)] * clients


def test_messages_that_differ_are_made_one_by_one() -> None:
    make = CommandBuilder(Load(kind="pub", subject="s", payload=b"x", multisubject=True, multisubjectmax=2))
    assert make.many(3, 3) == b"PUB s.1 1\r\nx\r\nPUB s.0 1\r\nx\r\nPUB s.1 1\r\nx\r\n"
    same = CommandBuilder(Load(kind="pub", subject="s", size=3))
    assert same.many(0, 2) == same.one(0) * 2
    assert same.one(0, b"r") == same.one(1, b"r") == command(b"s", same.body, b"r")
    assert len({CommandBuilder(Load(kind="pub", subject="s", payload=b"", dedup=True)).one(n) for n in range(3)}) == 3


def test_answers_that_refuse_are_told_from_acks() -> None:
    assert answer_failure("s", b"", b'{"stream":"S","seq":1}') is None
    failure = answer_failure(
        "s", b"", b'{"error":{"code":400,"err_code":10071,"description":"wrong"},"stream":"S","seq":0}'
    )
    assert isinstance(failure, ApiResponseError)
    assert failure.err_code == 10071
    assert isinstance(answer_failure("s", b"NATS/1.0 503\r\n\r\n", b""), UnreachableError)


@pytest.mark.parametrize(
    "failure",
    [
        UsageError("wrong", hint="right"),
        UnreachableError("gone"),
        NothingReceivedError("none"),
        ApiResponseError(ApiError(code=400, err_code=10071, description="wrong last"), "s", hint="h"),
        NotListeningError("nobody listens", hint="start it"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_what_a_worker_fails_with_is_raised_as_if_it_had_happened_here(failure: NatsctlError) -> None:
    told = decode_line(encode_line(failure))
    assert (type(told), str(told), told.hint, told.subject) == (
        type(failure), str(failure), failure.hint, failure.subject,
    )  # fmt: skip
    assert told.exit_code == failure.exit_code


def test_the_total_runs_from_the_first_begin_to_the_last_end() -> None:
    load = Load(kind="pub", subject="s", clients=2, msgs=30)
    one = ClientResult(0, 10, 100, 1_000_000_000, 2_000_000_000, gathered([5]))
    two = ClientResult(1, 20, 200, 1_500_000_000, 4_000_000_000, gathered([7]))
    made = report(load, [two, one], 2, 0)
    assert (made.total.msgs, made.total.bytes, made.total.duration_ns) == (30, 300, 3_000_000_000)
    assert (made.total.msgs_per_s, made.total.bytes_per_s) == (10, 100)
    assert [part.client for part in made.each] == [1, 2]
    assert [line.split(",")[1:3] for line in csv_text(made).splitlines()[1:]] == [["P0", "10"], ["P1", "20"]]


def test_a_client_that_got_nothing_does_not_stretch_the_total() -> None:
    load = Load(kind="service serve", subject="s", clients=2, msgs=10)
    busy = ClientResult(0, 10, 100, 5_000_000_000, 6_000_000_000, Latencies())
    idle = ClientResult(1, 0, 0, 1_000_000_000, 1_000_000_000, Latencies())
    assert report(load, [busy, idle], 2, 0).total.duration_ns == 1_000_000_000
