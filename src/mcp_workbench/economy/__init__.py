"""Context economy: the right tool for the fewest tokens.

Finding: `index` ranks what `fields`, `terms`, `words`, `synonyms`, `postings` make of tools, `answer` shows the best.
Showing: `forms` has every form of a tool (`signature`, `lean`, `prose`), `ladder` picks the one that fits a budget,
`instructions` tells of toolboxes, `tokens` and `costs` count. Calling: `quick` and `arguments` check arguments.
Reading: `result_pieces`, `select` and `shape` take large results apart.

Pure functions on values. Refuses to know connections, sessions, files and who is asking. Import the module you need
inside the function that needs it: next to nothing here is on the start-up path.
"""
