"""What all commands share: flags, parsing, help, completion, sessions, output and prompts."""
