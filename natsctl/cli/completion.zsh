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
        value="${line%%$'\t'*}"
        values+=("$value")
        shown+=("$value  ${line#*$'\t'}")
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
