"""What a stream or consumer configuration becomes on a server, and which ones it refuses: rules without I/O."""
