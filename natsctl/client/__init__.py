"""The client side: a typed manager over nats-py, contexts, backups and archives."""
