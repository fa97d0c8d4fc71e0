"""`mcp-workbench completion`: scripts for shell completion. They ask `completion words` for candidates, which come from
caches; nothing is started."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout

# `-o nospace`: words that can continue, such as `key=`, end without a space; others bring their own. Without
# candidates, files are offered.
BASH: Final = r"""# bash completion for mcp-workbench
_mcp_workbench() {
    local word
    COMPREPLY=()
    # Not `$(…)`: that would take names for patterns of files. Not `mapfile`: macOS has bash 3.2.
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" completion words --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o nospace -o default -o bashdefault -F _mcp_workbench mcp-workbench
"""

# Descriptions after the tab are cut off, because `_describe` would need colons in names escaped. The last line supports
# both ways to load the script: as a function on `fpath`, and with `source`.
ZSH: Final = r"""#compdef mcp-workbench
_mcp_workbench() {
    local -a found going whole
    local line word
    found=("${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${found[@]}"; do
        word="${line%%$'\t'*}"
        [[ -z "$word" ]] && continue
        if [[ "$word" == *[=/] ]]; then going+=("$word"); else whole+=("$word"); fi
    done
    if (( ${#going} + ${#whole} == 0 )); then
        _files
        return
    fi
    (( ${#going} )) && compadd -S '' -- "${going[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
}
if [[ "$funcstack[1]" == _mcp-workbench ]]; then _mcp_workbench "$@"; else compdef _mcp_workbench mcp-workbench; fi
"""

# `-f`, and files added explicitly: fish would offer them along with the candidates.
FISH: Final = r"""# fish completion for mcp-workbench
function __mcp_workbench_words
    set -l before (commandline -opc)
    set -l found ($before[1] completion words -- $before[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -eq 0
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c mcp-workbench -f -a '(__mcp_workbench_words)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(parsed: Parsed) -> int:
    shell, *words = parsed.positionals
    if shell == "words":
        from mcp_workbench.cli.completion_words import completed, completed_line

        line = parsed.value("line")
        # bash splits words at `:` and `=` (`COMP_WORDBREAKS`), so it passes the whole line, which is split here as a
        # shell would.
        for word in completed(words or [""]) if line is None else completed_line(line):
            print(word)
        return 0
    if shell not in SCRIPTS or words:
        raise UsageError(f"SHELL is bash, zsh or fish, not `{' '.join(parsed.positionals)}`")
    stdout().text(SCRIPTS[shell])
    return 0
