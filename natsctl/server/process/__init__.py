"""The server as a process: flags, signals, log lines, files, lame duck."""
