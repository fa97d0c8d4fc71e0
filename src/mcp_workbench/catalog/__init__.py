"""What there is: toolboxes, servers, the tools they offer, filters, names, and what is remembered on disk.

`catalog` is the whole, `entry` one server in it, `offer` what a server lists; `names`, `filters` and `uris` say who has
what under which name. `manifests` keeps offers on disk and `tool_index` what is worked out of them: these two are
where files are read. `replacement` compares two configurations and plans the change; `offer_changes` compares two lists
of tools, `restricted_catalog` is what a role may see of the whole, `hidden_text` finds characters that people do not
see. `registry` knows servers that several catalogues of a process show, `stateful` those that must not be shared;
`shared_definitions` keeps what is listed to several users once.
Refuses to know connections.
"""
