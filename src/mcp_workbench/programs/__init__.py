"""Programs: an agent sends a few lines of Python that call many tools, and gets one answer.

- `program_run`: one program, from its code to its answer; makes its calls and enforces its limits.
- `program_pool`: the processes that programs run in, contained like servers; none before the first program.
- `worker`: what runs in such a process: the interpreter, `pydantic-monty`, which knows no files, network or processes.

Loaded with the first program. Every call of a program is a `use_tool` of its client, and passes all that one does.
"""
