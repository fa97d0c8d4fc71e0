"""The long form of the fault suite: a crowd of clients, many servers, random kills, large messages, for an hour.

`make soak` runs it and writes docs/soak.md. The short form, with the same parts, is in `tests/faults`.
"""
