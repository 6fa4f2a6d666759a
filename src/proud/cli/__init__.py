"""The command `proud`: one file per command, which calls and prints."""
