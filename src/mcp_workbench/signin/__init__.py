"""OAuth towards servers: the flow without I/O, tokens at rest, and the header that comes of them.

Does not know who asks for it. Imported only for a server that wants somebody to sign in, or has been signed in to.
"""
