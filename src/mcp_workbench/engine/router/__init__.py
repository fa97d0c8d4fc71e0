"""From a client's request to a connection: the only way to a server.

- `router.py`: the operations of a session; lets the face decide, and carries out the decision
- `routed_call.py`: a client's request as the router sees it
- `caller_connections.py`: the connection for a request, and waiting until it is ready
- `call_list.py`: several calls for one request
- `step_runner.py`: the steps around every request to a server; `traced_steps.py`: the same if calls are traced
- `subscriptions.py`: resources that clients subscribe to; `task_requests.py`: their tasks;
  `task_runs.py`: tasks of clients that know nothing of them
- `toolboxes.py`, `lists.py`: starting servers to open a toolbox, to search, or for a list; `toolbox_summaries.py`:
  when the summaries that distinguish toolboxes are computed again
"""
