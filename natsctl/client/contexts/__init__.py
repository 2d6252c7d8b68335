"""The contexts of the nats tool."""
