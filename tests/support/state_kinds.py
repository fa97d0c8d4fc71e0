"""Every kind of state that instances leave for each other."""

from __future__ import annotations

from mcp_workbench.engine import lasting_state
from mcp_workbench.engine.lasting_state import StateKind

STATE_KINDS = tuple(value for value in vars(lasting_state).values() if isinstance(value, StateKind))
