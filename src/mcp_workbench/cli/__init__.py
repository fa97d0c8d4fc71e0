"""Commands for people: parse, print, exit code."""
