# codex-shim: records the commands that are typed here, for fish 3.4 or later. A process in the background does the work.
if status is-interactive
    set -g __codex_shim_bin @PROGRAM@
    set -q __codex_shim_seq; or set -g __codex_shim_seq 0

    function __codex_shim_preexec --on-event fish_preexec
        set -g __codex_shim_pwd $PWD
        if set -q CODEX_SHIM_SHELL; and builtin test -w /dev/tty
            builtin printf '\e]133;C;aid=codex-shim.%s.%s\a' $fish_pid $__codex_shim_seq >/dev/tty
        end
        # This is said here, before the output of a command: nothing is ever said in a prompt.
        if not builtin test -f $__codex_shim_bin -a -x $__codex_shim_bin; and not set -q __codex_shim_said
            set -g __codex_shim_said yes
            builtin printf '%s\n' "codex-shim: $__codex_shim_bin is gone; this shell is not recorded without it" >&2
        end
    end

    function __codex_shim_postexec --on-event fish_postexec
        set -l code $status
        set -l took $CMD_DURATION
        set -l key $fish_pid.$__codex_shim_seq
        set -g __codex_shim_seq (builtin math $__codex_shim_seq + 1)
        if set -q CODEX_SHIM_SHELL; and builtin test -w /dev/tty
            builtin printf '\e]133;D;%s;aid=codex-shim.%s\a' $code $key >/dev/tty
        end
        set -q fish_private_mode; and return
        builtin contains -- "$CODEX_SHIM_PRIVATE" 1 true yes on; and return
        set -l line $argv[1]
        # A longer line may not fit into the environment: one of 128 KiB does not.
        builtin test -n "$line"; and builtin test (builtin string length -- "$line") -lt 32000; or return
        builtin string match -q -- ' *' $line; and return
        # fish itself says in the prompt that a program does not start, wherever its errors go.
        builtin test -f $__codex_shim_bin -a -x $__codex_shim_bin; or return
        begin
            set -lx CODEX_SHIM_LINE $line
            command $__codex_shim_bin hooked fish --exit-code $code --cwd "$__codex_shim_pwd" \
                --took "$took" --key $key </dev/null >/dev/null 2>&1 &
            builtin disown $last_pid 2>/dev/null
        end
    end
end
