"""What the client sees. A face turns a request into a decision and does no I/O: no files, sockets or processes.

- `proxy`, `flat`, `dynamic` and `auto` are the faces, `base` what they share, `decisions` what they can decide; the
  table of faces is `faces.py` beside this package. `flat_instructions` is what `flat` says of its servers,
  `tool_marks` what its tools carry for clients that defer them.
- Of `proxy`: `open_request` and `identifier` read arguments, `paths` finds the tool that a path names, `opening` and
  `toolbox_search` write the answers of `open_toolbox`, `pins` are the tools beside the two,
  `split_use_tool` makes three of them.
- Around `use_tool`: `argument_check` before a call, `kept_results` after it.
- `restricted_face` is a face as a role sees it, from which something is hidden.
- `view` is what one client has opened; `links` and `tasks` know which server gave out what.
- `renamed` and `wording` write definitions and results, `address_remarks` what `check` says of addresses.
"""
