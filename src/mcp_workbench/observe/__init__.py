"""How we are doing, for people and machines; takes no part in decisions.

`log.py`: where logs go, in which form, with secrets blacked out and floods bounded.
`rotated_log.py`: a log file that stays within its size.
`audit_step.py`: the audit as a step around requests, and what is kept of one. `audit_lines.py` and `audit_arguments.py`
make its lines, `audit_writer.py` is the thread that writes them, to `audit_file.py` or `audit_streams.py`;
`audit_chain.py` reads and verifies them.
`call_watch.py`: how long calls take, as a step that is there while somebody looks.
`approval_socket.py`: where the user allows calls that wait for it.
`status_socket.py`: the status of a running workbench for other processes of the same user.
"""
