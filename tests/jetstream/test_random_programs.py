"""Random programs of everything a client can do: the same on natsctl and on nats-server.

More of them than in a test run: put other numbers into `SEEDS`.

Left out of the programs, or out of what is compared, with the reason:

* Where a stream drops messages while several come in one chunk, how many of them were delivered before is chance at
  the reference: such chunks go to streams without limits only, without the number pending behind an ack subject.
* Where a message replaces one that is pending, the reference may deliver first or drop first: the ack floor tells.
* A refusal may overtake the acks of messages before it in the same chunk: here an ack waits until its message is
  durable. Answers are compared by message.
* A consumer that is paused, changed or without a match looks at the stream only at its next occasion there: how far it
  looked shows in delivered.stream_seq in memory, after a purge, and in when a request that does not wait is ended.
* Between a message dropped by a limit and the next one delivered because of that, num_pending behind the ack subject
  counts the newest message there already, and here not yet.
* A purge narrower than a consumer's filters moves the ack floor past what is still pending there, by chance.
* A message of a fast batch refused for its Nats-Expected-Last-Msg-Id is never counted off there: pings stand still.
* `replay_policy: original` depends on the time between messages, which differs.
* A file stream that never held a message has sequence 0 among its deleted ones there, and its first sequence is 1 after
  a purge of nothing.
"""

import pytest

from tests.support.differential import AccountServer
from tests.support.random_programs import made, played

SEEDS = (3, 7, 18, 118, 203, 211, 238, 241)


@pytest.mark.reference
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_runs_the_same(seed: int, accounts: AccountServer) -> None:
    difference = played(made(seed), accounts.url())
    assert difference is None, str(difference)
