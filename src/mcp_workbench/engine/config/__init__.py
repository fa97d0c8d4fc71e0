"""The user's configuration: where the file is, what is in it, and what is wrong with it.

    choose (trust) ─ load ─┬─ msgspec, or jsonc when there are comments or mistakes ─ a plain document
                           └─ validate ─ server ─ model ─ setting, kinds, mappings ─ reading (expand, redact)

`choose.choose` finds the file to use and checks that it may be used, `load.load` turns it into a
`model.WorkbenchConfig` or raises `problems.ConfigProblems` with everything that is wrong at once, `schema.json_schema`
describes the file to editors, `redact.Redactor` keeps secrets out of logs. Every setting is declared once, as a field
of `model`, or of `oauth_settings`, `auth_settings`, `policy_settings`, `audit_settings`, `page_settings`,
`metrics_settings`, `telemetry_settings`, `cluster_settings`, `program_settings`, `sandbox_settings` and
`client_settings`, whose objects `members` reads and which only files that have them load; `setting` says what a
declaration holds and what is derived from it. `foreign_keys` are the keys of other clients. `fixed_settings` keeps what
cannot change while clients are connected. `encodings` finds secrets in any encoding, `exposed_arguments` secrets in
command lines, `environment` decides which variables a server gets, `program_paths` finds which programs its `PATH`
leads to; `host_names` reads the hosts that a server may reach; `jsonc_edit` changes a JSON text in place,
`state_folder` is where we store our own files.

The package knows nothing that runs. This module imports nothing.
"""
