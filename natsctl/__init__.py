"""natsctl: command-line administration, an included server core and tools for NATS JetStream."""

__version__ = "0.3.0"
