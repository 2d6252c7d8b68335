"""`natsctl cheat`: lines to start from."""
