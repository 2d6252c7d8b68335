"""`natsctl sql`: queries over streams, buckets and backups."""
