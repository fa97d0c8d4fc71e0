"""Commands for people: parse, print, exit status.

- `main` finds the command; `serve` is the lean one that clients start. `commands` runs the others, each the module of
  its name: `auth`, `call`, `check`, `demo`, `down`, `list`, `login`, `logout`, `open`, `reload`, `restart`, `schema`,
  `status`, `tokens`, `trust`, `up`. `client_context` is what a client of the shared workbench is served with.
- `flags` parses command lines, `settings` has the options that commands share, `engine` reaches servers for them,
  `demo_client` for the demo. `http_token` is the token of `serve --http`, `client_settings` what to paste into clients.
- `screen`, `wrapping` and `error_output` print.
- `arguments`, `tool_schema` and `result_content` serve `call`.
- `token_report` is what `tokens` shows; `tokens_page` and `html_page` show it in a browser.
"""
