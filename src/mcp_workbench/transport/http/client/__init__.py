"""Servers that have a `url`: what is sent to them and what comes back. Refuses to know what the messages mean."""
