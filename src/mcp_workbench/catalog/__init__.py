"""What there is: toolboxes, servers, the tools they offer, filters, names, and what is remembered on disk.

Refuses to know connections.
"""
