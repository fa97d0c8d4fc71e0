"""What each command does: one module per command, with the same name and a `run(parsed)` that returns the exit status.

- Set up: `init`, `install`, `uninstall`, `undo`, `completion`, `add`, `remove`, `check`, `schema`, `doctor`, `sandbox`.
- Use: `up`, `down`, `restart`, `reload`, `list`, `open`, `tokens`, `find`, `forget`, `call`, `prompt`, `resource`,
  `demo`.
- Look: `status`, `top`, `page`, `logs`. Sign in: `auth`, `login`, `logout`, `secret`.
- Team: `approve`, `key`, `policy`, `audit`, `lock`, `cluster`, `trust`.

`cli.usage` has them in these groups, and says which are actions of others (`auth login` is `login`). `serve` is in
`cli.serve`: this package is not on the start-up path.

How a command is called is in `cli.usage`; what several of them need is one package up.
"""
