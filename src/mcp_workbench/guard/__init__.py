"""Who is calling, and what they may do: keys, identities, rules, and the steps that apply them.

- `definition_lock`: `workbench.lock` while a workbench runs. `lock_file` is its format, `lock_difference` compares with
  it and points out what to review (`suspicion`), `packages` reads the versions named by commands, `installed_packages`
  those that are installed, `definition_store` keeps the locked definitions in full.
- `identities`: what is known about principals besides their names. `credentials`: the result of checking a token.
- `bearer_tokens` finds out who a token belongs to: one of `named_keys`, a JWT (`jwt_tokens`, with the `jwks` of its
  issuer) or an opaque one (`introspection`); `claims` judges the claims of both.
- `identity_assertions` signs who the user is, for servers; `token_exchange` gets tokens for them in exchange for the
  user's.
- `proxy_header` and `unix_users` recognise users without a token.
- `policy`: rules, and the one function that decides by them (`globs`, `argument_conditions`, `uri_spellings`);
  `rules_in_force` applies those of a configuration. `limit_step` counts usage, `policy_findings` are rules that can
  never take effect.
- `approval` holds calls until the user has been asked, `approval_question` is the question.
Knows nothing about transports: HTTP requests are made by a function that is passed in. Imported where configured.
"""
