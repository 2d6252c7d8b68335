"""Commands of desired state: they read documents, compare them with an account, and apply them."""
