"""Who is calling, and how that is proved.

- `callers`: the authenticator of an HTTP endpoint, which joins everything below with the transport.
- `identities`: what is known about principals besides their names. `credentials`: the result of checking a token.
- `bearer_tokens` finds out who a token belongs to: one of `named_keys` (with `shared_keys` of other machines), a JWT
  (`jwt_tokens`, with the `jwks` of its issuer) or an opaque one (`introspection`); `claims` judges the claims of both.
- `callers` and `unix_users` also recognise users without a token: by a proxy's header, by their socket.
- `user_headers` tell a server who the user is: `identity_assertions` signs it, `token_exchange` gets a token for the
  server in exchange for the user's.
"""
