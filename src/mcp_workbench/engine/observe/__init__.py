"""Logs and status, for people and machines. Takes no part in decisions.

`log.py`: the destination and format of logs, with secrets redacted and repetition limited.
`rotated_log.py`: a log file of limited size.
`call_watch.py`: durations of calls, measured by a step that exists only while `top` runs.
`status_socket.py`: the status of a running workbench, for other processes of the same user.
"""
