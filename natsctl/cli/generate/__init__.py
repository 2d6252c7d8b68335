"""What is made of the commands' own declarations: pages of docs/, completion scripts and their tables."""
