"""nats.conf: its syntax, and what each of its keys sets; one file per block."""
