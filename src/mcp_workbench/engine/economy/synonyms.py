"""Synonyms in the vocabulary of tools: what callers say for what tools are called.

Owns one small table of general vocabulary: common verbs and nouns of APIs, file types with their programs, and the
usual abbreviations. The rows are the words that most servers use in the names of their tools, with what else people
call the same thing. No subject matter: that is in the catalogue, and a row for it would only fit the queries that
happened to be measured. `bench/context` also measures without this table; no single row moves more than one query into
or out of the first five.
"""

from __future__ import annotations

from mcp_workbench.engine.economy.terms import stem

_SYNONYM_GROUPS = """
add append insert attach
check verify validate test
close quit exit
compare diff
compress zip archive
create make new generate build
delete remove erase drop
describe explain
extract parse scrape
fill type enter
install setup
monitor watch track
navigate open browse visit
publish deploy release
reply respond answer
resize scale
schedule plan
split divide
upload import
buy purchase order
book reserve reservation
get fetch retrieve read load obtain
list enumerate
show display view
update edit modify change set
search find query lookup inquire inquiry
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
audio sound
chart graph plot diagram
chat conversation
code script program
company business firm
documentation docs manual guide
error exception failure fault
event appointment meeting
group team
history historical past
item entry record
label tag
latest recent newest current
library package module
link url uri hyperlink
metadata property attribute
note memo
overview summary
paper article publication
password credential secret
place location position
price cost fee
rank rating score
screenshot capture snapshot
task todo job
user account member
video clip movie film
"""

# Everyday words, and what tools are called that do it. One way only: a need to `add` something is not met by what
# remembers.
_EVERYDAY_GROUPS = """
remember: note memory save store add
reminder remind: note task event alarm notification
jot memorize: note add
write: add create note
save store: add create
keep: save store note
idea thought: note
rid throw trash discard wipe: delete remove clear
fix repair: update edit
alter tweak adjust: update edit set
hunt locate seek: search find
look: search find get view
see: show view list get
tell: get show
ask: query question
pay: payment transaction
money cash: balance payment
talk speak say: message send speech
letter: email message
draw paint sketch: image create generate
song tune: music track audio
trip journey vacation holiday: travel itinerary
way route: route directions navigation
rain snow sunny hot cold: weather forecast
weather: forecast temperature
clock hour: time
now today: current date time
tomorrow yesterday: date
calendar: event schedule
alarm: reminder timer
person people somebody: user contact
total sum: count calculate
biggest largest highest best: max top
smallest lowest: min
cheap cheapest: price
many: count number
turn switch: set toggle
figure: calculate compute
sign: login auth
"""


def _mutual() -> dict[str, tuple[str, ...]]:
    together: dict[str, set[str]] = {}
    for line in _SYNONYM_GROUPS.split("\n"):
        group = {stem(word) for word in line.split()}
        for word in group:
            together.setdefault(word, set()).update(group - {word})
    return {word: tuple(sorted(others)) for word, others in together.items()}


def _one_way() -> dict[str, tuple[str, ...]]:
    rows = (line.split(":") for line in _EVERYDAY_GROUPS.split("\n") if line)
    return {stem(word): tuple(map(stem, called.split())) for said, called in rows for word in said.split()}


SYNONYMS = _mutual()
EVERYDAY = _one_way()
