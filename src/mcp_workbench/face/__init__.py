"""What the client sees. A face turns a request into a decision and does no I/O: no sockets, no processes."""
