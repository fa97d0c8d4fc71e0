"""The audit: who called what, in lines that are chained by hashes.

`audit_step` is a step around requests and what it keeps of one. `audit_lines` and `audit_arguments` make its lines,
`audit_writer` is the thread that writes them to `audit_file` or `audit_streams`; `audit_chain` reads and verifies them.
"""
