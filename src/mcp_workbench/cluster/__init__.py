"""Several equal instances behind a balancer: what they leave for each other in Valkey or Redis.

Imported only if `cluster` is configured. In the order in which one reads them: `seal` (what the state server sees),
`valkey_link` (one connection, every wait bounded), `lease` (one instance at a time changes a value), `state` (the
interface of `engine.lasting_state`), `examination` (a look from outside, for commands).
"""
