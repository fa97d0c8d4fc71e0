"""How we are doing, for people and machines; takes no part in decisions.

`log.py`: where logs go, in which form, with secrets blacked out and floods bounded.
`rotated_log.py`: a log file that stays within its size.
`status_socket.py`: the status of a running workbench for other processes of the same user.
"""
