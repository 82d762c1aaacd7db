"""Observers of memory and barriers: each kind of finding in one file."""
