"""Words that mean the same in the world of tools: what a caller says for what a tool is called.

Owns one small table of general vocabulary: everyday verbs of programming interfaces, kinds of files with the
programs they belong to, and the usual abbreviations. No subject matter: that is in the catalogue, and a row for it
would fit the needs somebody happened to measure with. `bench/context` also measures without this table.
"""

from __future__ import annotations

from mcp_workbench.economy.terms import stem

_GROUPS = """
create make new generate build
delete remove erase drop
get fetch retrieve read load obtain
list enumerate
show display view
update edit modify change set
search find query lookup
send post submit
run execute launch start
stop kill end terminate cancel
copy duplicate clone
move rename
save write store
convert transform
calculate compute
merge combine join
analyze analyse analysis
summarize summarise summary
directory folder dir
image picture photo img
presentation slide powerpoint ppt pptx deck
spreadsheet excel xlsx sheet workbook
word docx
markdown md
document doc
repository repo
database db
email mail
website site webpage web
command shell terminal
information info detail
configuration config setting
message msg
argument parameter option
authentication auth login
environment env
application app
administrator admin
organization organisation org
temporary temp
function method
language lang
identifier id
number num count
maximum max
minimum min
average mean avg
statistics stats
synchronize synchronise sync
specification spec
reference ref
development dev
production prod
kubernetes k8s
javascript js
typescript ts
python py
postgresql postgres pg
"""


def _table() -> dict[str, tuple[str, ...]]:
    together: dict[str, set[str]] = {}
    for line in _GROUPS.split("\n"):
        group = {stem(word) for word in line.split()}
        for word in group:
            together.setdefault(word, set()).update(group - {word})
    return {word: tuple(sorted(others)) for word, others in together.items()}


SYNONYMS = _table()
