"""Logs and what else tells people how we are doing. Refuses to take part in decisions."""
