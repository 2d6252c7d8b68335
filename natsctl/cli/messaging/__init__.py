"""Messages published, requested and received: `natsctl publish`, `request`, `reply` and `subscribe`."""
