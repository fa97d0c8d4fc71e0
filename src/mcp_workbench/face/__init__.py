"""What the client sees. A face turns a request into a decision and does no I/O: no files, sockets or processes.

`proxy`, `flat` and `dynamic` are the faces, `base` what they share, `decisions` what they can decide; the table of
faces is `faces.py` beside this package. Of `proxy`: `request` and `identifier` read arguments, `paths` finds what a
path means, `opening` and `finding` write the answers of `open_toolbox`, `checking` and `kept_results` stand around
`use_tool`, `pins` are the tools beside the two. `view` is what one client has opened; `links` and `tasks` know which
server gave out what.
"""
