"""From a client's request to a connection: the one way to a server.

- `router.py`: what a session may ask for; has the face decide and carries the decision out
- `routed_call.py`: what the router knows of a client's request
- `caller_connections.py`: the connection that a request takes, and waiting until it is ready
- `guard.py`: the steps around every request that reaches a server; `wanted_item.py`: what is not there
- `subscriptions.py`: resources that clients subscribe to; `task_requests.py`: their tasks, with
  `task_lists.py`: lists of tasks, gathered from servers
- `toolboxes.py`, `lists.py`: starting servers to open a toolbox, to search, to give a list; `toolbox_summaries.py`:
  when it is worked out again what tells toolboxes apart
"""
