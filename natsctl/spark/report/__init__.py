"""A report on all messages of a stream: subjects, sizes, rates over time, duplicates and gaps."""
