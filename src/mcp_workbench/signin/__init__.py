"""OAuth towards servers: the flow without I/O, tokens at rest, and the header that comes of them.

- `sign_ins`: everything of one workbench; `signed_in_headers`: a server's header, refreshed when it is due.
- `flow`: the sign-in as generators, without I/O: `discovery`, `client_registration`, `challenge`, `tokens` are parts,
  `flow_io` its requests and answers; `flow_runner` carries it out.
- `sign_in_target`: whose sign-in it is, and which of the stored ones belong to it.
- `callback`: the page that the browser comes back to; `profiles`: servers that deviate from the specification.
- `store`, `store_location`, `sealing`: tokens at rest; `assertion`: a client that proves itself with a key.
- `grant_end`: when a sign-in ends for good, and when to say so.
Does not know who asks for it. Imported only for a server that wants somebody to sign in, or has been signed in to.
"""
