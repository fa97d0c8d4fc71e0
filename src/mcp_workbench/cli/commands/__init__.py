"""What each command does: one module per command, with the same name and a `run(parsed)` that returns the exit status.

`cli.usage` lists them in groups, and says which are actions of others (`auth login` is `login`). `serve` is in
`cli.serve`: this package is not on the start-up path.

How a command is called is in `cli.usage`; what several of them need is one package up.
"""
