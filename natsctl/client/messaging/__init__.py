"""Messages on their way out and in, stored and live."""
