"""The system account: the requests of `nats server …` and Surveyor, and the events."""
