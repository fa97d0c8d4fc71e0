"""One client: its era, its handshake, its requests under way, and what servers ask of it.

Refuses to know which face is shown and what lies behind it.
"""
