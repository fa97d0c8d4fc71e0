"""Connections to the servers behind us: their life, their supervision, and the pool that shares them.

Refuses to know who is calling and what a face shows.
"""
