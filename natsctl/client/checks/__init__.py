"""What monitoring asks: checks with thresholds, each of which ends OK, WARNING, CRITICAL or UNKNOWN."""
