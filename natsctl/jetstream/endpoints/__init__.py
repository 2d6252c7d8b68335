"""The verbs of $JS.API and the functions that serve them."""
