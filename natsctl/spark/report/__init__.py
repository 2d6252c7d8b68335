"""A report on all messages of a stream: subjects, sizes, rates over time, what is there twice and what is missing."""
