"""Toolboxes, servers and what they offer: filters, exposed names, and the cache on disk.

`catalog` is the whole, `entry` one server in it, `offer` what a server lists; `names`, `filters` and `uris` determine
which items are shown, under which name, and who owns a resource address; `skills` writes the entries of
skills, `task_tools` finds tools that need a task.
`manifests` caches offers on disk, `tool_index` what is computed from them, and `held_names` who had which name; apart
from these, only `stateful` reads a file, a table of the package. `replacement` compares two configurations and plans
the change; `offer_changes` compares two offers; `restricted_catalog` is the part that a role may see; `hidden_text`
finds invisible characters. `registry` shares servers between the catalogues of a process, `stateful` lists servers that
must not be shared; `shared_definitions` stores definitions listed to several users once. Knows nothing about
connections.
"""
