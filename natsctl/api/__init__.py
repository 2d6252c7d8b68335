"""The JetStream contract as typed data: one model for both sides of the wire, without I/O."""
