"""Context economy: the right tool for the fewest tokens.

- Finding: `index` ranks tools by need, over the `fields`, `terms`, `synonyms` and `postings` of them; `search_answer`
  shows the best. `distinctive_words` tells toolboxes apart; `shared_words` finds names near a wrong one.
- Showing: `forms` has every form of a `tool` (`signature`, `lean_schema`, `prose`, `shared_arguments`); `budget_ladder`
  picks the one that fits, `named_tools` shows the ones asked for, `instructions` introduces toolboxes.
- Counting: `tokens`, `costs`. Checking arguments: `quick_check` for the common case, `arguments` for the rest.
- Reading large results: `result_pieces`, `select`, `value_shape`.

Pure functions on values. Refuses to know connections, sessions, files and who is asking. Import the module you need
inside the function that needs it: next to nothing here is on the start-up path.
"""
