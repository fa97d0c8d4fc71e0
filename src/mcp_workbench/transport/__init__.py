"""How messages travel: stdio on both ends, child processes, streamable HTTP on both ends, in memory.

Refuses to know what the messages mean.
"""
