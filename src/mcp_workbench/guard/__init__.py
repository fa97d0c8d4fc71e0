"""Who is calling, and what they may do: keys, identities, rules, and the steps that apply them.

- `identity`: what is known of a principal beside its name.
Does not know transports: what must be fetched is fetched by a function that it is given. Imported where configured.
"""
