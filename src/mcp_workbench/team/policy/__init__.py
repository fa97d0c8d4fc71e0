"""What a caller may do: rules, limits, and asking the user first.

- `policy`: rules, and the one function that decides by them (`globs`, `uri_spellings`);
  `rules_in_force` applies those of a configuration, `policy_findings` are rules that can never take effect.
- `limit_step` (with `shared_counts` of other instances) counts usage.
- `approval` holds calls until the user has been asked, `approval_question` is the question, `approval_socket` takes
  answers from a terminal, `shared_approvals` those of other instances.
"""
