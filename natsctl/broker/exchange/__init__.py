"""What accounts give each other: exports, imports, responses, mappings."""
