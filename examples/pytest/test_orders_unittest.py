"""The same without pytest: a server for a class of tests."""

from __future__ import annotations

import unittest
from pathlib import Path

import nats

from natsctl.testing.jetstream import JetStreamServer

DOCUMENTS = Path(__file__).parents[1] / "configs" / "orders.yaml"


class OrdersTest(unittest.IsolatedAsyncioTestCase):
    """Orders go into the stream, and reach their consumers."""

    server: JetStreamServer

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(JetStreamServer(DOCUMENTS))

    def setUp(self) -> None:
        self.server.reset()

    async def test_new_orders_wait_for_who_processes_them(self) -> None:
        client = await nats.connect(self.server.url)
        await client.jetstream().publish("ORDERS.received", b"order 1")
        info = await client.jetstream().consumer_info("ORDERS", "NEW")
        self.assertEqual(info.num_pending, 1)
        await client.close()


if __name__ == "__main__":
    unittest.main()
