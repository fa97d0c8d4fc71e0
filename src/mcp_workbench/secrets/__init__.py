"""Secrets by reference: what `${file:…}`, `${keyring:…}`, `${cmd:…}` and `envFile` stand for, and the keychain.

- `resolve`: from a server as it was written to one that can be started; `servers`: those of one workbench.
- Where values come from: `secret_files`, `dotenv`, `program`, `keychain` (`keychain_child` speaks to it,
  `keychain_names` remembers which entries are ours).

Everything is fetched when a server starts, for that server alone. Refuses to know who uses it. Imported only for a
server that refers to something, and for the system's keychain.
"""
