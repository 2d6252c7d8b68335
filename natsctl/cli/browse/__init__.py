"""The full-screen browser: `natsctl browse`."""
