"""Six ordinary jobs of an agent on published servers, done in three ways: what each costs, with equal answers.

`workshop` makes the servers and what they work on, `jobs` are the jobs, `__main__` runs and reports them.
"""
