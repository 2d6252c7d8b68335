"""The two formats that streams leave and enter servers in: bytes in, items out, and back."""
