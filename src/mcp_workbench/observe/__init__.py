"""Logs, audit and status, for people and machines. Takes no part in decisions.

`log.py`: the destination and format of logs, with secrets redacted and repetition limited.
`rotated_log.py`: a log file of limited size.
`audit_step.py`: the audit as a step around requests, and what it keeps of one. `audit_lines.py` and
`audit_arguments.py` make its lines, `audit_writer.py` is the thread that writes them to `audit_file.py` or
`audit_streams.py`; `audit_chain.py` reads and verifies them.
`call_watch.py`: durations of calls, measured by a step that exists only while `top` runs.
`approval_socket.py`: where the user approves calls that wait for it.
`status_socket.py`: the status of a running workbench, for other processes of the same user.
"""
