# The shell's side of a context: waits for orders, runs the handler's code, says how it ended.
#
# Standard input is a socket to the server (see frames.rs for what is said on it). Code and payloads do not come over it: a
# shell reads a socket byte by byte, and cannot hold every byte in a variable. They are files in ../in, which the server
# writes and this process can only read:
#
#   ../in/K.before  K.beforeEach  K.body  K.afterEach     the parts of handler K
#   ../in/payload                                         the line (or, for a whole batch, the lines) to work on
#
# The socket is moved to descriptor 9, which the handler's code never sees open.

exec 9<&0 </dev/null
IFS=' '
WINDLASS_RESULT=$TMPDIR/result
export WINDLASS_RESULT
rm -f result

# say WHAT CODE: the end of a part by its exit code, with what it wrote to its result file.
windlass_say() {
    windlass_bytes=0
    if [ -f result ] && [ ! -L result ]; then
        windlass_bytes=$(wc -c <result)
    fi
    if [ "$windlass_bytes" -gt 0 ] && [ "$windlass_bytes" -le "$WINDLASS_RESULT_MAX" ]; then
        # By a process of its own, which is gone before the end is told.
        { printf '+ 3 %d\n' "$windlass_bytes" && cat result; } >&9
        printf '= %s x%s 0\n' "$1" "$2" >&9
    elif [ "$windlass_bytes" -gt 0 ]; then
        printf '= %s > 0\n' "$1" >&9
    else
        printf '= %s x%s 0\n' "$1" "$2" >&9
    fi
}

# job WHAT: the body in a shell of its own, so that whatever it does to itself (exit, cd, set -e, variables) ends with it.
windlass_job() {
    [ ! -e result ] || rm -f result
    (
        exec 9>&-
        . "../in/$windlass_handler.body"
    ) <../in/payload
    windlass_say "$1" "$?"
}

# part NAME WHAT: a part that is run in this very shell, so that what it sets is there for the body.
windlass_part() {
    [ -f "../in/$windlass_handler.$1" ] || return 0
    [ ! -e result ] || rm -f result
    . "../in/$windlass_handler.$1" 9>&-
    windlass_code=$?
    # It may have asked the shell to be strict; between the parts it must not be.
    set +eux
    windlass_say "$2" "$windlass_code"
}

printf '# ready 0\n' >&9
while read -r windlass_order windlass_one windlass_two windlass_three windlass_rest <&9; do
    case $windlass_order in
    H)
        windlass_handler=$windlass_one
        if [ -f "../in/$windlass_handler.before" ]; then
            windlass_part before b
        else
            printf '= b x0 0\n' >&9
        fi
        ;;
    B)
        windlass_handler=$windlass_one
        windlass_mode=$windlass_three
        windlass_number=0
        windlass_part beforeEach e
        ;;
    J)
        WINDLASS_JOB_ID=$windlass_one
        WINDLASS_ATTEMPT=$windlass_two
        export WINDLASS_JOB_ID WINDLASS_ATTEMPT
        if [ "$windlass_mode" = all ]; then
            windlass_job B
        else
            windlass_job "$windlass_number"
        fi
        windlass_number=$((windlass_number + 1))
        ;;
    E)
        windlass_part afterEach a
        ;;
    esac
done
