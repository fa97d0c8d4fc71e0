"""Commands for people: parse, print, exit status.

A command line goes `main` → `dispatch` → `usage` (options and help of each command) → `commands` (what each command
does, one module each). `serve` is separate and imports next to nothing, because clients start it and wait for it.
Everything else here is shared by several commands:

- The command line: `flags` parses it, `settings` reads the options about the configuration and the log, `arguments`
  turns its words into a tool's arguments.
- The terminal: `screen` and `wrapping` lay out text, `error_output` reports errors, `consent` asks yes or no,
  `elicitation` asks servers' questions, `result_content` and `result_output` show results.
- Servers: `server_names` finds the one that is meant, `engine` reaches them in this process, `shared_engine` in the
  shared workbench; `interactive_client` shows their progress and questions. `unlisted_servers` are in no file,
  `prompts_and_resources` lists what servers offer, `watched_workbenches` looks into the workbenches that run them.
- Serving: `serving_context` is what the shared workbench serves a client with.
- Parts of single commands: `token_report` for `tokens`, `top_view` and `top_state` for `top`,
  `server_copies` and `attention` for `status` and `top`, `init_update` for `init`, `topics` for `help`, `version` for
  `--version`, `overview` for no command at all. `demo` has the included servers.
"""
