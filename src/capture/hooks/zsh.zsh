# codex-shim: tells the model of what is typed here. Nothing of it waits: a process in the background does the work.
if [[ -n ${ZSH_VERSION-} && -o interactive ]]; then
zmodload zsh/datetime 2>/dev/null
typeset -g __codex_shim_bin=@PROGRAM@ __codex_shim_line='' __codex_shim_at='' __codex_shim_pwd=$PWD
typeset -gi __codex_shim_seq=${__codex_shim_seq:-0}

__codex_shim_preexec() {
  emulate -L zsh
  typeset -g __codex_shim_line=${1-} __codex_shim_pwd=$PWD __codex_shim_at=${EPOCHREALTIME-}
  if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
    builtin printf '\e]133;C;aid=codex-shim.%s.%s\a' $$ $__codex_shim_seq
  fi
  return 0
}

__codex_shim_precmd() {
  local code=$?
  emulate -L zsh
  local line=${__codex_shim_line-} began=${__codex_shim_at-} ended=${EPOCHREALTIME-}
  if [[ -n $began$line ]]; then
    typeset -g __codex_shim_line='' __codex_shim_at=''
    if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
      builtin printf '\e]133;D;%s;aid=codex-shim.%s.%s\a' $code $$ $__codex_shim_seq
    fi
    if [[ -n $line && $line != ' '* && ! ${CODEX_SHIM_PRIVATE-} =~ '^(1|true|yes|on)$' ]]; then
      # In a subshell, so that neither `jobs` nor `$!` knows of it.
      ( {
          builtin print -rn -- "$line" |
            "$__codex_shim_bin" hooked zsh --exit-code "$code" --cwd "$__codex_shim_pwd" \
              --began "${began%%.*}${${began#*.}[1,6]}" --ended "${ended%%.*}${${ended#*.}[1,6]}" \
              --key "$$.$__codex_shim_seq"
        } </dev/null >/dev/null 2>&1 & )
    fi
    (( __codex_shim_seq += 1 ))
  fi
  return 0
}

typeset -ga precmd_functions preexec_functions
precmd_functions=(__codex_shim_precmd ${precmd_functions:#__codex_shim_precmd})
preexec_functions=(${preexec_functions:#__codex_shim_preexec} __codex_shim_preexec)
fi
