"""`workbench.lock`: what servers offered when a person reviewed it, and what has changed since.

- `definition_lock`: the lock while a workbench runs. `lock_file` is its format, `lock_difference` compares with it and
  points out what to review, `definition_store` keeps the locked definitions in full, `shared_lock` knows what was
  accepted on other machines, `skill_content` compares answers about skills with their entries.
- `packages` reads the versions named by commands, `installed_packages` those that are installed; `verified_packages`
  compares what a command would start with what was recorded.
"""
