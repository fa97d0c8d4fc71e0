"""The user's configuration: where the file is, what is in it, and what is wrong with it.

    choose (trust) ─ load ─┬─ msgspec, or jsonc when there are comments or mistakes ─ a plain document
                           └─ validate ─ server ─ keys ─ kinds, mappings ─ reading (expand, redact) ─ model

`choose.choose` finds the file to use and checks that it may be used, `load.load` turns it into a
`model.WorkbenchConfig` or raises `problems.ConfigProblems` with everything that is wrong at once, `schema.json_schema`
describes the file to editors, `redact.Redactor` keeps secrets out of logs. `keys` is the single table of settings, from
which validation and schema are derived; `server_keys`, and `oauth_keys`, `client_keys`, `audit_keys`, `auth_keys` and
`policy_keys`, which `members` reads, are parts of it, and `foreign_keys` are those of other clients. `auth_model`
defines who may call over HTTP, `fixed_settings` what cannot change while clients are connected. `encodings` finds
secrets in any encoding, `exposed_arguments` secrets in command lines,
`environment` decides which variables a server gets, `program_paths` finds which programs its `PATH` leads to;
`jsonc_edit` changes a JSON text in place, `state_folder` is where we store our own files.

The package knows nothing that runs. This module imports nothing, so that importing `engine.config.model` loads nothing
else.
"""
