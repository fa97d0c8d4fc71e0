"""What people and their tools are shown of a running workbench: metrics, traces and the page.

Reads the figures of `engine/observe/`, and takes no part in any call. Nothing here is imported until somebody asks.

- `metrics`: what Prometheus is told, as a function of figures; `process_figures` measures processes for it.
- `tracing`: which calls are traced, and what is noted of them; `trace_context` reads and writes `traceparent`, `spans`
  makes OTLP of what was noted, `span_sender` sends it, as `otlp_settings` says.
"""
