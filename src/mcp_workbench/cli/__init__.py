"""Commands for people: parse, print, exit status.

- `usage` declares every command: its options, its help. `main` finds the one that is meant; `serve` is the lean one
  that clients start. `commands` reads the command line of the others by their declarations, then imports the module
  of the command's name and calls its `run`: `add`, `approve`, `audit`, `auth`, `call`, `check`, `completion`, `demo`,
  `doctor`, `down`, `find`, `init`, `install`, `key`, `list`, `lock`, `login`, `logout`, `logs`, `open`, `policy`,
  `prompt`, `reload`, `remove`, `resource`, `restart`, `schema`, `secret`, `status`, `tokens`, `top`, `trust`, `undo`,
  `uninstall`, `up`.
- `client_files` finds and changes the files of MCP clients, `edit_preview` shows what changes, `client_commands` runs
  their own commands.
- `own_configuration` edits our own file for `add` and `remove`, `secret_store` keeps the secrets that stood in entries,
  `mcp_registry` looks servers up by name, `server_preview` says what an entry starts before it does.
- `flags` parses command lines, `settings` says what options that commands share mean, `engine` reaches servers for them
  (`shared_engine` through the shared workbench),
  `demo_client` for the demo. `http_token` is the token of `serve --http`, `http_callers` who else may call it.
- `service` is the unit that starts the shared workbench with the system, `serving_context` what a client of it is
  served with.
- `screen`, `wrapping` and `error_output` print, `consent` asks whoever is at the terminal.
- `arguments` and `result_content` serve `call`; `check_references` serves `check`.
- `interactive_client` is what `call`, `find`, `prompt` and `resource` have in common, `elicitation` puts servers'
  questions to the user, `unlisted_servers` are those in no file, `prompts_and_resources` lists them, `result_output`
  and `terminal_images` show what comes back. `completion_words` is what `completion` completes with.
- `doctor_checks` and `doctor_clients` are what `doctor` looks at, `diagnosis` what it says.
- `top_view` is the picture that `top` shows, `process_memory` what servers take.
- `token_report` is what `tokens` shows; `tokens_page` shows it in a browser.
"""
