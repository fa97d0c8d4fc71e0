"""Commands for people: parse, print, exit status.

A command line goes `main` → `dispatch` → `usage` (options and help of each command) → `commands` (what each command
does, one module each). `serve` is separate and imports next to nothing, because clients start it and wait for it.
Everything else here is shared by several commands:

- The command line: `flags` parses it, `settings` reads the options about the configuration and the log, `arguments`
  turns its words into a tool's arguments.
- The terminal: `screen` and `wrapping` lay out text, `error_output` reports errors, `consent` asks yes or no,
  `elicitation` asks servers' questions, `result_content` and `result_output` show results, `terminal_images` the images
  in them.
- Servers: `engine` reaches them in this process, `shared_engine` in the shared workbench; `interactive_client` shows
  their progress and questions. `unlisted_servers` are in no file, `prompts_and_resources` lists what servers offer,
  `server_preview` describes what an entry starts, `mcp_registry` looks servers up, `check_references` checks that
  everything they refer to exists, `process_memory` measures their memory, `watched_workbenches` looks into the
  workbenches that run them.
- Files: `own_configuration` edits ours, `secret_store` stores the secrets found in entries; `client_files` finds
  those of MCP clients, `client_changes` changes them and takes that back, `edit_preview` shows the changes,
  `client_commands` runs clients' own commands.
- Serving: `http_token` is the token of `serve --http`, `http_callers` the other callers it accepts; `service` is the
  unit that starts the shared workbench at boot, `serving_context` what it serves a client with.
- Parts of single commands: `doctor_checks`, `doctor_clients` and `diagnosis` for `doctor`, `token_report` and
  `tokens_page` for `tokens`, `completion_words` for `completion`, `top_view` for `top`, `demo_client` for `demo`,
  `server_copies` for `status` and `top`, `overview` for no command at all.
"""
