"""natsctl."""
