"""The command `proud`: one file per command, which parses, calls and prints."""
