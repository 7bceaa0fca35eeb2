_complete_NAME() {
    local IFS=$'\013'
    # Bash takes --flag=value apart at its own word breaks: what stood together is put together.
    local line=$COMP_LINE typed=$2 at word last
    local words=()
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        ((at == COMP_CWORD)) && [[ $word != [:=] ]] && word=$typed
        last=$((${#words[@]} - 1))
        if ((last >= 0)) && [[ $line != [[:blank:]]* ]] &&
            [[ $word == [:=]* || ${words[last]} == *[:=] ]]; then
            words[last]+=$word
        else
            words+=("$word")
        fi
        line=${line#"${line%%[![:blank:]]*}"}
        line=${line#"$word"}
    done
    last=$((${#words[@]} - 1))
    [[ $typed == [:=] ]] && typed=
    local kept=${words[last]%"$typed"}
    local space=true
    compopt +o nospace 2>/dev/null && space=false
    COMPREPLY=($(
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX="$last" \
        _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
        _CLAP_COMPLETE_SPACE="$space" \
        COMPLETE="bash" \
        PROGRAM -- "${words[@]}"
    ))
    if [[ $? != 0 ]]; then
        unset COMPREPLY
        return
    fi
    # Readline replaces only what stands behind the last word break.
    for at in "${!COMPREPLY[@]}"; do
        COMPREPLY[at]=${COMPREPLY[at]#"$kept"}
    done
    if [[ $space == false && "${COMPREPLY-}" =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if ((BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4 || BASH_VERSINFO[0] > 4)); then
    complete -o nospace -o bashdefault -o nosort -F _complete_NAME NAME
else
    complete -o nospace -o bashdefault -F _complete_NAME NAME
fi
