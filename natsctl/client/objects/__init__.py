"""Object buckets."""
