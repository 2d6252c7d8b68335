# Completion of natsctl for bash. Made by `natsctl completion bash`.
_natsctl() {
    local IFS=$'\n'
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
