"""The scripts of the three shells: each hands the words to `natsctl __complete`, which knows the rest.

An answer is one candidate a line, with a tab and what it means behind it; the single line `:files` leaves the word to
the shell's own completion of files.
"""

from __future__ import annotations

SHELLS = ("bash", "zsh", "fish")
FILES = ":files"

_BASH = """\
# Completion of natsctl for bash. Made by `natsctl completion bash`.
_natsctl() {
    local IFS=$'\\n'
    # The line as it is: natsctl splits it at blanks, bash would split it at : and = too.
    COMPREPLY=($(natsctl __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null))
    if [[ "${COMPREPLY[0]}" == ":files" ]]; then
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
        compopt -o filenames 2>/dev/null
    elif [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[.=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _natsctl natsctl
"""

_ZSH = """\
#compdef natsctl
# Completion of natsctl for zsh. Made by `natsctl completion zsh`.
_natsctl() {
    local line value
    local -a lines values shown
    lines=("${(@f)$(natsctl __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${lines[1]}" == ":files" ]]; then
        compset -P '*='
        _files
        return
    fi
    for line in "${lines[@]}"; do
        [[ -n "$line" ]] || continue
        value="${line%%$'\\t'*}"
        values+=("$value")
        shown+=("$value  ${line#*$'\\t'}")
    done
    (( ${#values} )) || return 1
    if [[ "${#values}" == 1 && "${values[1]}" == *[.=] ]]; then
        compadd -S '' -l -d shown -a values
    else
        compadd -l -d shown -a values
    fi
}
if [[ "${funcstack[1]}" == _natsctl ]]; then
    _natsctl "$@"
else
    compdef _natsctl natsctl
fi
"""

_FISH = """\
# Completion of natsctl for fish. Made by `natsctl completion fish`.
function __natsctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (natsctl __complete fish $words[2..-1] "$current" 2>/dev/null)
    if test "$lines[1]" = ":files"
        __fish_complete_path "$current"
        return
    end
    printf '%s\\n' $lines
end
complete -c natsctl -f -a '(__natsctl_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script by shell; completions/ keeps them as files for packages."""
