"""An account as documents: the shortest that mean the same, in words that read back."""
