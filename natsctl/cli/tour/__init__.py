"""`natsctl tour`: the ORDERS scenario, run for real."""
