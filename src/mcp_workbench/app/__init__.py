"""The composition root: builds the parts of the program for one configuration, and owns what runs.

- `gateway`: one configuration in force, from the catalogue to the steps around a call; `live` keeps it up to date with
  its file; `team_gate` is what its users see and may do, `users` what each of them but our own is shown.
- `runtime`: what a process has once: processes, connections, sign-ins, the task group. `server_links` starts a
  program or reaches for an address, `foreign_secrets` looks for secrets in what arrives there, `client_sign_ins`
  begins sign-ins for clients, `use_memory` keeps what users need, `watching` answers `top`, `metrics_page`
  Prometheus; `saved_tokens` counts what lists leave out, for both; `traces` begins to send traces.
- `server_access`: the servers of a configuration without any client, for `login` and `logout`.
- `optional_parts`: whether the parts are installed without which the engine serves, too.
- `page_serving`: the page in the browser; `page_workbench` is what it shows and does, with `page_client` for calls,
  `page_hosts` for refused hosts, `page_lock` for changed definitions and `page_audit` for the audit.
- `serving`: serves clients over stdio or HTTP, then shuts down in order; `http_callers` are those who may call over
  HTTP, `http_token` is the token that they need; `cluster_instance` is our part in a cluster of several workbenches.
"""
