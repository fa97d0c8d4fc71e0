"""Our own HTTP endpoint: who may come in, and which answer leaves on which stream.

Refuses to know what the messages mean: a session is made for each client, and for each request of a modern one.
"""
