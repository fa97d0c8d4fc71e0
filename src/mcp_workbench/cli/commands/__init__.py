"""What each command does: one module per command, with the same name and a `run(parsed)` that returns the exit status.

- Set up: `init`, `install`, `uninstall`, `undo`, `add`, `remove`, `doctor`, `check`, `secret`, `login`, `logout`,
  `auth`, `sandbox`, `completion`, `schema`.
- Use: `list`, `open`, `find`, `call`, `prompt`, `resource`, `tokens`, `demo`.
- Run: `up`, `down`, `restart`, `status`, `page`, `top`, `logs`, `reload`. (`serve` is `cli.serve`: this package is
  not on the start-up path.)
- Team: `lock`, `audit`, `approve`, `policy`, `key`, `trust`.

How a command is called is in `cli.usage`; what several of them need is one package up.
"""
