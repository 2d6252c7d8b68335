"""What the system account answers and tells: the requests of `nats server …` and Surveyor, and the events."""
