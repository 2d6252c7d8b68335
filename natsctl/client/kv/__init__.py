"""Key-value buckets."""
