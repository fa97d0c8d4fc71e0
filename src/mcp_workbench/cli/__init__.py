"""Commands for people: parse, print, exit status.

A command line goes `main` → `dispatch` → `usage` (how a command is called: its options and help) → `commands` (what it
does: one module for each). `serve` is apart, because clients start it and wait: it imports next to nothing. All else
here is what several commands need:

- The command line: `flags` parses it, `settings` has what it says of the configuration and the log, `arguments` turns
  its words into those of a tool.
- The terminal: `screen` and `wrapping` lay out, `error_output` says what went wrong, `consent` asks yes or no,
  `elicitation` asks what servers want to know, `result_content` and `result_output` show what they answer,
  `terminal_images` with images in it.
- Servers: `engine` reaches them in this process, `shared_engine` in the shared workbench; `interactive_client` shows
  their progress and questions. `unlisted_servers` stand in no file, `prompts_and_resources` lists what they have,
  `server_preview` says what an entry starts, `mcp_registry` looks them up, `check_references` sees that what they refer
  to is there, `process_memory` how much memory they take.
- Files: `own_configuration` edits ours, `secret_store` keeps the secrets that stood in entries; `client_files` finds
  and changes those of MCP clients, `edit_preview` shows what changes, `client_commands` runs clients' own commands.
- Serving: `http_token` is the token of `serve --http`, `http_callers` who else may call it; `service` is the unit that
  starts the shared workbench with the system, `serving_context` what a client of it is served with.
- Parts of one command: `doctor_checks`, `doctor_clients` and `diagnosis` of `doctor`, `token_report` and `tokens_page`
  of `tokens`, `completion_words` of `completion`, `top_view` of `top`, `demo_client` of `demo`.
"""
