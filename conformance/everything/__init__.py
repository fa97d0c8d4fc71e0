"""What the everything-server offers: the tools, prompts and resources that the conformance suite expects to find.

Written with the official SDK's low-level server, because the suite looks at the exact shape of definitions and results.
Every part works in both eras; which ones are served is `everything_server`'s business.
"""
