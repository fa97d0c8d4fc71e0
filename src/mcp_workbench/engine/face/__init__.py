"""What the client sees. A face turns a request into a decision and does no I/O: no files, sockets or processes.

- `proxy`, `flat`, `dynamic` and `auto` are the faces, `base` is their common part, `decisions` what they can decide;
  the table of faces is `engine/faces.py`, next to this package.
- For `proxy`: `open_request` and `identifier` read arguments, `paths` resolves the path of a tool, `suggestions`
  names those that may be meant, `opening` and `toolbox_search` write the results of `open_toolbox`, `pins` adds pinned
  tools and `app_tools` those with a user interface, `split_use_tool` has separate tools for reading and writing.
- Around `use_tool`: `argument_check` before a call, `kept_results` after it; `call_values` reads those of several.
- `restricted_face` is a face for a role from which something is hidden.
- `client_behaviour` is what is known of clients once they are connected.
- `gate` is asked which face a principal sees, and before anything kept for it is used.
- `view` is what one client has opened, `use` what it needed; `links` and `tasks` record which server issued a link or
  a task, `merged_skills` combines the skills of several servers.
- `renamed` and `wording` write definitions and results, `error_context` puts the path of a tool before its own error,
  `address_remarks` the remarks of `check` about addresses.
"""
