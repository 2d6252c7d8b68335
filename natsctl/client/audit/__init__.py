"""Audits of a deployment: documents gathered from its servers into one file, and checks of them."""
