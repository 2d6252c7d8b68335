# Completion of natsctl for fish. Made by `natsctl completion fish`.
function __natsctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (natsctl __complete fish $words[2..-1] "$current" 2>/dev/null)
    if test "$lines[1]" = ":files"
        __fish_complete_path "$current"
        return
    end
    printf '%s\n' $lines
end
complete -c natsctl -f -a '(__natsctl_complete)'
