"""Who is calling, and what they may do: keys, identities, rules, and the steps that apply them.

- `definition_lock`: `workbench.lock` while a workbench runs. `lock_file` is its format, `lock_difference` what differs
  and what to look at in it (`suspicion`), `packages` the versions that commands name, `installed_packages` those that
  are installed, `definition_store` what was locked, in full.
- `identities`: what is known of principals but their names. `credentials`: the result of checking a token, as values.
- `bearer_tokens` finds out whose a token is: one of `named_keys`, a JWT (`jwt_tokens`, with the `jwks` of its issuer)
  or an opaque one (`introspection`); `claims` judges what either says.
- `identity_assertions` signs who the user is, for servers; `token_exchange` gets tokens for them from the user's own.
- `proxy_header` and `unix_users` recognise people without a token.
- `policy`: rules, and the one function that decides by them (`globs`, `argument_conditions`, `uri_spellings`);
  `rules_in_force` applies those of a configuration. `limit_step` counts what is used, `policy_findings` are rules that
  can never take effect.
- `approval` holds what the user is to be asked about, `approval_question` is what is asked.
Does not know transports: what must be fetched is fetched by a function that it is given. Imported where configured.
"""
