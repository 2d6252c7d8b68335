"""Consumers: positions, pull and push, acks, redelivery, and what of them is kept."""
