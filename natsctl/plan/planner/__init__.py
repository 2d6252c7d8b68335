"""How documents and an account become a plan: settled by the server's rules, compared, judged, put in order."""
