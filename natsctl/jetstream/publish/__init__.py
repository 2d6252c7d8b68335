"""From a published message to the log: checks, limits, ids, batches, counters, republishing."""
