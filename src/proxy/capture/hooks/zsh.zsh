# codex-shim: records the commands that are typed here, for zsh 5.0 or later.
#
# `emulate -c` ties the functions to options of their own: whatever the user has set, they run without a trace and with traps
# of their own. Their first command removes the DEBUG, ZERR and CHLD traps until they return, before one of them fires. While
# there is a function `builtin`, nothing can reach a builtin for certain, and they do nothing.
if [[ -n ${ZSH_VERSION-} && -o interactive ]]; then
'builtin' 'zmodload' zsh/datetime 2>&-
'builtin' 'typeset' -g __codex_shim_bin=@PROGRAM@ __codex_shim_line="" __codex_shim_at="" __codex_shim_pwd="$PWD"
'builtin' 'typeset' -gi __codex_shim_seq="${__codex_shim_seq:-0}" __codex_shim_said="${__codex_shim_said:-0}"
'builtin' 'typeset' -ga precmd_functions preexec_functions
'builtin' 'emulate' -R zsh -o local_traps -o no_debug_before_cmd -o no_xtrace \
  -o no_verbose -o no_aliases -c '
__codex_shim_preexec() {
  ${${functions[builtin]+:}:-builtin} trap - DEBUG ZERR CHLD
  [[ -n ${functions[builtin]-} ]] && __codex_shim_line= __codex_shim_at= || {
    builtin typeset -g __codex_shim_line=${1-} __codex_shim_pwd=$PWD __codex_shim_at=${EPOCHREALTIME-}
    # What can fail is checked here, before the output of a command: nothing is ever said in a prompt.
    builtin local fault=
    if [[ -o restricted ]]; then
      fault="a restricted shell cannot start codex-shim; this shell is not recorded any more"
    elif [[ ! -f $__codex_shim_bin || ! -x $__codex_shim_bin ]]; then
      fault="$__codex_shim_bin is gone; this shell is not recorded without it"
    elif [[ -n ${CODEX_SHIM_SHELL-} ]]; then
      { builtin print -n -- "\e]133;C;aid=codex-shim.$$.$__codex_shim_seq\a" >/dev/tty } 2>/dev/null
    fi
    if [[ -n $fault ]]; then
      builtin typeset -g __codex_shim_line=
      if (( ! __codex_shim_said )); then
        __codex_shim_said=1
        builtin print -ru2 -- "codex-shim: $fault"
      fi
    fi
  }
  (( 1 ))
}

__codex_shim_precmd() {
  ${${functions[builtin]+:}:-builtin} local code=$? && ${${functions[builtin]+:}:-builtin} trap - DEBUG ZERR CHLD
  [[ -n ${functions[builtin]-} ]] && __codex_shim_line= __codex_shim_at= || {
    builtin local line=${__codex_shim_line-} began=${__codex_shim_at-} ended=${EPOCHREALTIME-}
    if [[ -n $began$line ]]; then
      builtin typeset -g __codex_shim_line= __codex_shim_at=
      if [[ ! -o restricted && -n ${CODEX_SHIM_SHELL-} ]]; then
        { builtin print -n -- "\e]133;D;$code;aid=codex-shim.$$.$__codex_shim_seq\a" >/dev/tty } 2>/dev/null
      fi
      if [[ ! -o restricted && -n $line && $line != " "* && ! ${CODEX_SHIM_PRIVATE-} =~ "^(1|true|yes|on)$" ]]; then
        # In a subshell, so that neither `jobs` nor `$!` knows of it. Without job control it is in the process group of the shell,
        # and the end of the terminal would kill it. A process in the background inherits an ignored signal with posix_traps only.
        ( builtin setopt posix_traps
          builtin trap "" HUP
          {
            builtin print -rn -- "$line" |
              "$__codex_shim_bin" hooked zsh --exit-code "$code" --cwd "$__codex_shim_pwd" \
                --began "${began%%.*}${${began#*.}[1,6]}" --ended "${ended%%.*}${${ended#*.}[1,6]}" \
                --key "$$.$__codex_shim_seq"
          } </dev/null >/dev/null 2>&1 & )
      fi
      (( __codex_shim_seq += 1 ))
    fi
  }
  (( 1 ))
}

precmd_functions=(__codex_shim_precmd ${precmd_functions:#__codex_shim_precmd})
preexec_functions=(${preexec_functions:#__codex_shim_preexec} __codex_shim_preexec)
'
fi
