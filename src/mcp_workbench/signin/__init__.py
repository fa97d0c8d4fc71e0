"""OAuth as a client of MCP servers: the flow without I/O, stored tokens, and the resulting `Authorization` header.

- `sign_ins`: all sign-ins of one workbench, and the page the browser is redirected to; `signed_in_headers`: the header
  for a server, refreshed before it expires.
- `flow`: the sign-in as generators, without I/O, built from `discovery`, `client_registration`, `challenge` and
  `token_requests`; `flow_io` defines its requests and responses, `flow_runner` performs them.
- `dpop`: tokens bound to a key; `identity_grant`: access with an identity that somebody else vouches for.
- `sign_in_target`: whose sign-in it is, and which stored records belong to it.
- `profiles`: servers that deviate from the specification.
- `store`, `store_location`, `token_encryption`: tokens at rest; `assertion`: clients that authenticate with a key.
- `refresh_turn`: one process at a time refreshes, none sends a token twice; `shared_sign_ins`: the same for the
  instances of a cluster; `back_off`: when a failing authorization
  server is asked again.
- `secrets`: everything that servers refer to: files, `.env` files, programs, the system's keychain.
- `grant_end`: when a grant expires for good, and when to warn about it.
Knows nothing about its callers. Imported only for servers that require a sign-in or already have one.
"""
