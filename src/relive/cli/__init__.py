"""The command line: `main` picks a command, each command is one file."""
