"""Context economy: the right tool for the fewest tokens.

- Finding: `index` ranks tools for a query, using their `fields`, `terms`, `synonyms`, `actions` and `postings`, and
  the `learned_needs` of the user; `search_answer` presents the best. `distinctive_words` characterises toolboxes.
- Presenting: `forms` has every form of a `tool` (`signature`, `lean_schema`, `prose`, `shared_arguments`);
  `budget_ladder` picks the one that fits, `named_tools` shows tools by name, `instructions` introduces toolboxes.
- Counting: `tokens`, `costs`. Checking arguments: `quick_check` for the common case, `arguments` for the rest.
- Reading large results: `result_pieces`, `select`, `value_shape`; `records` for text that is a table.

Pure functions on values. Knows nothing about connections, sessions, files or clients. Import these modules inside the
function that needs them: almost nothing here belongs on the start-up path.
"""
