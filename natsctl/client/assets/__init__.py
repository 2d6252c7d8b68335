"""What is known of streams and consumers beyond one request: searches, purges, leaders."""
