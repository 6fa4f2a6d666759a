"""The flags of every command, one file each. Imports no torch, so that help is instant."""
