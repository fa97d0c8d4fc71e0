"""What the user wrote: where the file is, what it says, what is wrong with it.

    choose (trust) ─ load ─┬─ msgspec, or jsonc when there are comments or mistakes ─ a plain document
                           └─ validate ─ server ─ keys ─ kinds, mappings ─ reading (expand, redact) ─ model

`choose.choose` finds the file that is in force and sees that it may be used, `load.load` turns it into a
`model.WorkbenchConfig` or raises `problems.ConfigProblems` with everything that is wrong at once, `schema.json_schema`
describes the file to editors, `redact.Redactor` keeps secrets out of logs. `keys` is the one table of settings, from
which validation and schema are made; `server_keys`, and `oauth_keys`, `client_keys`, `audit_keys`, `auth_keys` and
`policy_keys`, which `members` reads, are parts of it, and `foreign_keys` those of other clients. `auth_model` is who
may call over HTTP, `fixed_settings` what stays as it is while clients are connected. `encodings` finds secrets however
they are written, `environment` says which variables a server gets; `jsonc_edit` changes a JSON text in place,
`state_folder` is where we keep files of our own.

The package knows nothing that runs. This module imports nothing: whoever needs only `config.model` loads nothing else.
"""
