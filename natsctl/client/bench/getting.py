"""Clients that read a stream without a consumer, many messages with one request."""

from __future__ import annotations

import json
import time

from natsctl.api import headers
from natsctl.client.bench.asking import NOT_FOUND, too_few
from natsctl.client.bench.client import Client, failed_status
from natsctl.client.bench.messages import command

END_OF_BATCH = b"NATS/1.0 204"


async def get_batches(client: Client) -> None:
    """Read with batched direct gets, one after the other; the latency is that of a batch."""
    load, tally, inbox = client.load, client.tally, client.new_inbox()
    state = (await client.manager.stream_info(load.stream)).value.state
    subject = f"{client.manager.connection.target.api_prefix}.DIRECT.GET.{load.stream}"
    place = state.first_seq + client.first

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        nonlocal place
        if header.startswith(END_OF_BATCH):
            place = int(headers.get(header, headers.LAST_SEQUENCE) or 0) + 1
            tally.stop()
        elif header.startswith(NOT_FOUND):
            tally.fail(too_few(load.stream, state.messages, load.total))
        elif header.startswith(b"NATS/1.0 "):
            tally.fail(failed_status(subject, header))
        else:
            tally.add(1, len(body))

    await client.link.listen(inbox.decode(), take, tally)
    await client.start()
    while tally.msgs < client.share:
        done = tally.msgs
        step = min(load.batch, client.share - done)
        wanted = {"seq": place, "batch": step, "next_by_subj": load.filter[0] if load.filter else ">"}
        before = time.perf_counter_ns()
        client.link.post(command(subject.encode(), json.dumps(wanted).encode(), inbox))
        tally.go_on()
        await tally.reach(done + step + 1, client.idle_s, client.idle_s)
        tally.latencies.add(time.perf_counter_ns() - before)
        if tally.msgs == done:
            raise too_few(load.stream, state.messages, load.total)
    tally.end()
