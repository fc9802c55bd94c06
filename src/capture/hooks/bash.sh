# codex-shim: tells the model of what is typed here. Nothing of it waits: a process in the background does the work.
if [[ -n ${BASH_VERSION-} && $- == *i* ]]; then
__codex_shim_bin=@PROGRAM@
__codex_shim_bang='\!'
__codex_shim_at='' __codex_shim_seq=0 __codex_shim_had='' __codex_shim_pwd=$PWD __codex_shim_number=${__codex_shim_bang@P}
# When a command begins; a prompt string can do it without a process.
if [[ -n ${EPOCHREALTIME-} ]]; then
  __codex_shim_ps0='${__codex_shim_none[(__codex_shim_at=${EPOCHREALTIME/[^0-9]/})*0]-}'
else
  __codex_shim_ps0='${__codex_shim_none[(__codex_shim_at=1)*0]-}'
fi
if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
  __codex_shim_ps0+='\e]133;C;aid=codex-shim.$$.${__codex_shim_seq}\a'
fi

# Right before a prompt: $1 is the status, $2 the last word of what ran.
__codex_shim_precmd() {
  local code=$1 last=$2 began=$__codex_shim_at ended=${EPOCHREALTIME-} number=${__codex_shim_bang@P} again=''
  if [[ -n $began ]]; then
    __codex_shim_at=''
    if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
      builtin printf '\e]133;D;%s;aid=codex-shim.%s.%s\a' "$code" "$$" "$__codex_shim_seq" >&2
    fi
    number=$((number - __codex_shim_number))
    # What is typed twice may be in the history once; what began with a space is not there at all. Where both are so, what
    # stands there last may be another line than the one that ran, so nothing is told.
    if ((number == 0 && __codex_shim_number == 1)) && [[ -z $__codex_shim_had && -n $(builtin history 1) ]]; then
      # In front of the first line of all bash counts as behind it.
      number=1
    elif ((number == 0)) && [[ ${HISTCONTROL-} == *ignoredups* && ${HISTCONTROL-} != *ignore@(space|both)* ]]; then
      number=1 again=again
    fi
    if ((number > 0)) && [[ -o history && ! ${CODEX_SHIM_PRIVATE-} =~ ^(1|true|yes|on)$ ]]; then
      # In a subshell, so that neither `jobs` nor `$!` knows of it.
      ( {
          HISTTIMEFORMAT='' builtin history "$number" |
            CODEX_SHIM_LAST=$last "$__codex_shim_bin" hooked bash --exit-code "$code" --cwd "$__codex_shim_pwd" \
              --began "$began" --ended "${ended/[^0-9]/}" --key "$$.$__codex_shim_seq" ${again:+--$again}
        } </dev/null >/dev/null 2>&1 & )
    fi
    ((__codex_shim_seq += 1))
  fi
  # For what else is run at a prompt; a status would end a shell that ends on errors.
  [[ $- == *e* ]] || return "$code"
}

# Right behind all else that is run at a prompt.
__codex_shim_prompt() {
  local code=$?
  __codex_shim_pwd=$PWD __codex_shim_number=${__codex_shim_bang@P}
  if [[ -z $__codex_shim_had ]] && { ((__codex_shim_number > 1)) || [[ -n $(builtin history 1) ]]; }; then
    __codex_shim_had=1
  fi
  if [[ ${PS0-} != *__codex_shim_at* ]] && shopt -q promptvars; then
    PS0=$__codex_shim_ps0${PS0-}
  fi
  [[ $- == *e* ]] || return "$code"
}

if [[ ${PROMPT_COMMAND[*]-} != *__codex_shim_precmd* ]]; then
  if [[ ${PROMPT_COMMAND@a} == *a* ]]; then
    PROMPT_COMMAND=('__codex_shim_precmd "$?" "$_"' "${PROMPT_COMMAND[@]}" __codex_shim_prompt)
  else
    PROMPT_COMMAND='__codex_shim_precmd "$?" "$_"'$'\n'${PROMPT_COMMAND-}$'\n'__codex_shim_prompt
  fi
fi
fi
