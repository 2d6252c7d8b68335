"""Messages published and received, stored and live."""
