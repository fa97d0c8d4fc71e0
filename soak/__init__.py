"""The long form of the fault suite: a crowd of clients, many servers, random kills, large messages, for long.

`make soak` runs it, an hour by default, and writes docs/internals/soak.md. Its short form is in `tests/faults`.
"""
