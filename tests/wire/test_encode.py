"""What is encoded is parsed as the same."""

from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.client import encode_pub, encode_sub, encode_unsub
from natsctl.wire.ops import CONNECT, PING, PONG, PUB, SUB, UNSUB, Op, encode_err, encode_info
from natsctl.wire.parser import Parser

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
word = st.text("abcXYZ.*>_$#09", min_size=1, max_size=20).map(str.encode)
header = st.sampled_from([b"", HEADER])
BARE: dict[Op, bytes] = {
    (PING,): b"PING\r\n",
    (PONG,): b"PONG\r\n",
    (CONNECT, b'{"verbose":false}'): b'CONNECT {"verbose":false}\r\n',
}
ENCODE = {PUB: encode_pub, SUB: encode_sub, UNSUB: encode_unsub}
client_ops = st.one_of(
    st.tuples(st.just(PUB), word, st.one_of(st.just(b""), word), header, st.binary(max_size=300)),
    st.tuples(st.just(SUB), word, st.one_of(st.just(b""), word), word),
    st.tuples(st.just(UNSUB), word, st.integers(0, 10**8)),
    st.sampled_from([*BARE]),
)


@given(st.lists(client_ops, max_size=8))
def test_what_a_client_writes_the_server_reads(ops: list[Op]) -> None:
    assert Parser().feed(b"".join(BARE.get(op) or ENCODE[op[0]](*op[1:]) for op in ops)) == ops


def test_err_texts_stay_on_their_line() -> None:
    assert encode_err("a\r\nPING") == b"-ERR 'a  PING'\r\n"


def test_info_ends_with_a_blank_like_the_reference() -> None:
    assert encode_info(b"{}") == b"INFO {} \r\n"
