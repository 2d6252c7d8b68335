"""nats.conf: its syntax, and the options that its keys set; one module per block."""
