"""Context economy: the right tool for the fewest tokens.

Owns how tools are searched, shortened, described and checked, as pure functions on values. Refuses to know
connections, sessions, files and who is asking. Nothing here is on the start-up path: import the module you need,
inside the function that needs it.
"""
