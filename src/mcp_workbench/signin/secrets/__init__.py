"""Secrets by reference: resolves `${file:…}`, `${keyring:…}`, `${cmd:…}` and `envFile`, and accesses the keychain.

- `resolve`: turns a configured server into one that can be started; `servers`: the resolved servers of one workbench.
- Where values come from: `secret_files`, `dotenv`, `program`, `keychain` (`keychain_child` accesses it,
  `keychain_names` records which entries are ours, `private_files` takes its place where there is none).

Secrets are fetched when a server starts, for that server only. Knows nothing about who uses them. Imported only for
servers with references, and for the system's keychain.
"""
