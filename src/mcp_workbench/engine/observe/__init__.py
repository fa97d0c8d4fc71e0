"""Logs and status, for people and machines. Takes no part in decisions.

`log.py`: the destination and format of logs, with secrets redacted and repetition limited.
`rotated_log.py`: a log file of limited size; `log_tail.py`: the latest lines, for whoever follows them.
`call_figures.py`: counts all calls, for whoever wants figures; `call_record.py`: one call, for those who listen.
`ended_calls.py`: calls that have ended, for those who look now and then; `shown_calls.py`: calls as people see them.
`day_ring.py`: what was counted during the last day, in buckets of ten seconds.
`recent_calls.py`: the latest calls, kept only while `top` runs.
`process_memory.py`: the memory of servers' processes, read only for whoever shows it.
`status_socket.py`: the status of a running workbench, for other processes of the same user.
"""
