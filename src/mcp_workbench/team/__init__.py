"""Who is calling, and what they may do. Imported where it is configured.

- `identity`: keys, tokens, proxies and local users prove who is calling; what servers are told about it.
- `policy`: rules, limits and approvals. `access` applies those of a configuration to one gateway.
- `lock` notices changed definitions, `audit` writes down who called what. `oversight` applies both to one gateway.

Knows nothing about transports: HTTP requests are made by a function that is passed in.
"""
