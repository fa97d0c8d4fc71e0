"""Secrets by reference: what `${file:…}`, `${keyring:…}`, `${cmd:…}` and `envFile` stand for, and the keychain.

Everything is fetched when a server starts, for that server alone. Refuses to know who uses it. Imported only for a
server that refers to something, and for the system's keychain.
"""
