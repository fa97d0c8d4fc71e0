"""Commands for people: parse, print, exit status.

`main` finds the command, `serve` is the lean one that clients start; each other command is the module of its name, run
by `commands`. `flags` parses command lines, `settings` has the options that commands share, `engine` reaches servers
for them. `screen`, `wrapping` and `complain` print; `arguments`, `tool_schema` and `result_content` serve `call`.
`token_report` is what `tokens` shows, `tokens_page` and `html_page` show it in a browser.
"""
