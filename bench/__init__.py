"""How fast the workbench is, measured against nothing and against the least that could stand in its place.

Owns the yardsticks (a raw echo server, a raw client, a bare forwarder), the measurements and the report. Refuses to
know the workbench's insides: it is started as a command, like any other gateway, and seen through its pipes and /proc.
"""
