"""A plan carried out: what each change sends, in which order, and what became of it."""
