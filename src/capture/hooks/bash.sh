# codex-shim: records the commands that are typed here, for bash 4.4 or later.
#
# Traps, `set -x` and other hooks must not notice the hook, so it runs no command in this shell. It consists of expansions in
# PS0 and in redirections in PROMPT_COMMAND that redirect stderr to itself (`2>&"...2"`): arithmetic in the subscript of an
# array without elements assigns numbers, and a command substitution, once for each command, does the rest. The definition of
# `__codex_shim_nothing` is there because a redirection needs a command, and bash neither traps nor traces a definition.
if [[ -z ${BASH_VERSION-} || $- != *i* ]]; then
  \builtin :
elif ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  \builtin printf '%s\n' 'codex-shim: the hook needs bash 4.4 or later; this shell is not recorded' >&2
elif [[ ${PROMPT_COMMAND+${PROMPT_COMMAND@a}}${PS0+${PS0@a}} == *r* ]] || ! \builtin shopt -q promptvars; then
  \builtin printf '%s\n' 'codex-shim: the hook needs `shopt -s promptvars`, and a PROMPT_COMMAND and a PS0 that are not readonly; this shell is not recorded' >&2
else
\builtin declare -g __codex_shim_bin=@PROGRAM@

# Runs in a subshell after each command: $1 is the last word of what ran; descriptor 3 is the terminal, 1 and 2 are /dev/null.
__codex_shim_tell() {
  if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
    \builtin printf '\e]133;D;%s;aid=codex-shim.%s.%s\a' "$__codex_shim_code" "$$" "$__codex_shim_seq" >&3
  fi
  # A line that began with a space is not in the history, and a line that was typed again may be there only once. If both
  # are possible, the newest line may be another one, so nothing is recorded.
  __codex_shim_count=$((__codex_shim_line - __codex_shim_from)) __codex_shim_again=''
  if ((__codex_shim_count == 0)) && [[ ${HISTCONTROL-} == *ignoredups* && ${HISTCONTROL-} != *ignore@(space|both)* ]]; then
    __codex_shim_count=1 __codex_shim_again=again
  fi
  if ((__codex_shim_count <= 0)) || [[ ! -o history || ${CODEX_SHIM_PRIVATE-} =~ ^(1|true|yes|on)$ ]]; then
    \builtin return
  fi
  for __codex_shim_pwd in "${!__codex_shim_dirs[@]}"; do
    if [[ ${__codex_shim_dirs[$__codex_shim_pwd]} == "$__codex_shim_dir" ]]; then \builtin break; fi
  done
  # The shell's process group has this process, too, and the end of the terminal would kill it.
  \builtin trap '' HUP
  {
    # Without cmdhist, each line of a command is an entry of its own.
    if ((__codex_shim_count == 1)) || \builtin shopt -q cmdhist; then
      \builtin fc -ln -0 -0
    else
      HISTTIMEFORMAT='' \builtin history "$__codex_shim_count"
    fi | CODEX_SHIM_LAST=$1 "$__codex_shim_bin" hooked bash --exit-code "$__codex_shim_code" --cwd "$__codex_shim_pwd" \
      --began "${__codex_shim_at#1}" --ended "${__codex_shim_ended#1}" --key "$$.$__codex_shim_seq" \
      ${__codex_shim_again:+"--again"}
  } </dev/null 3>&- &
}

# For bash before 5.1, which has no HISTCMD while PROMPT_COMMAND runs: the number that the next line will have.
__codex_shim_next() {
  if [[ $(HISTTIMEFORMAT='' \builtin history 1) =~ ^\ *([0-9]+) ]]; then
    \builtin printf '%s' "$((BASH_REMATCH[1] + 1))" >&3
  else
    \builtin printf 1 >&3
  fi
}

if [[ ${__codex_shim_on[0]+x} != x ]]; then
  # bash never exports an array, so a child that inherits PS0 or PROMPT_COMMAND does nothing.
  \builtin declare -ga __codex_shim_on __codex_shim_one
  \builtin declare -gA __codex_shim_dirs
  __codex_shim_on=('') __codex_shim_one=([1]='') __codex_shim_dirs=()
  \builtin declare -g __codex_shim_seq=0 __codex_shim_told=0
fi

# These are expanded as prompts are. Before a command: its number, its line in the history, its folder, and the time with a 1
# in front.
__codex_shim_ps0='${__codex_shim_on[0]+${__codex_shim_none[(__codex_shim_seq+=1,__codex_shim_line=HISTCMD,__codex_shim_dir=${__codex_shim_dirs[$PWD]:=${#__codex_shim_dirs[@]}},__codex_shim_at=1${EPOCHREALTIME+${EPOCHREALTIME/[^0-9]/}})*0]-}}'
if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
  __codex_shim_ps0+='${__codex_shim_on[0]+\e]133;C;aid=codex-shim.$$.$__codex_shim_seq\a}'
fi
# After a command, if there was one since the last time.
__codex_shim_after='${__codex_shim_none[(__codex_shim_code=$?,__codex_shim_ended=1${EPOCHREALTIME+${EPOCHREALTIME/[^0-9]/}},__codex_shim_ran=__codex_shim_seq>__codex_shim_told,__codex_shim_told=__codex_shim_seq)*0]-}${__codex_shim_one[__codex_shim_ran]+$({ \\builtin set +eux +o posix -- "$_"; \\builtin trap - DEBUG RETURN ERR; __codex_shim_tell "$1"; } 3>&2 2>"/dev/null${BASH_XTRACEFD:+${__codex_shim_none[(BASH_XTRACEFD=2)*0]-}}" >&2)}'
# Before a prompt: the number that the next line will have in the history.
__codex_shim_before='${__codex_shim_none[(__codex_shim_from=HISTCMD)*0]-}'
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
  # One string: bash-preexec knows the status if other prompt commands have lost it.
  __codex_shim_after=${__codex_shim_after/'$?'/'${__bp_last_ret_value-$?}'}
  __codex_shim_before='${__codex_shim_none[(__codex_shim_from=$({ \\builtin set +eux +o posix -- "$_"; \\builtin trap - DEBUG RETURN ERR; __codex_shim_next; } 3>&1 2>"/dev/null${BASH_XTRACEFD:+${__codex_shim_none[(BASH_XTRACEFD=2)*0]-}}" >&2))*0]-}'
fi

__codex_shim_install() {
  \builtin local "first=${PROMPT_COMMAND-}" entry is_string='' after before end=''
  after='2>&"${__codex_shim_on[0]+${__codex_shim_after@P}}2"'
  before='2>&"${__codex_shim_on[0]+${__codex_shim_after@P}${__codex_shim_before@P}}2"'
  # Puts PS0 back if something has replaced it: there is such a file only if PS0 holds the hook.
  entry='if { { __codex_shim_nothing() { return; }; } <"/dev/nul${__codex_shim_on[0]-l}${__codex_shim_on[0]+${PS0:+l${PS0##*__codex_shim_on*}}}"; } 2>/dev/null; then __codex_shim_nothing() { return; }; else PS0=$__codex_shim_ps0${PS0-}; fi'
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)) || [[ ${first:+${PROMPT_COMMAND@a}} == *x* ]]; then
    # A string: bash knows no array there, or could not export it.
    is_string=1
  fi
  # The command that others know as `$PROMPT_COMMAND` keeps its `$?`, its `$_` and its PIPESTATUS. Traps may compare it with
  # BASH_COMMAND if it is a single command, so that stays as it is. bash-preexec moves its own commands by their text.
  if [[ -n $first && $first != *__bp_* && ( -n $is_string || -n ${CODEX_SHIM_SHELL-} || $first == *[$';&|(){}\n']* ) ]]; then
    first='{ '$first$'\n} '$after
  fi
  if [[ -n $is_string ]]; then
    # bash-preexec has to be the last.
    if [[ $first == *$'\n__bp_interactive_mode' ]]; then end=$'\n__bp_interactive_mode'; fi
    first=${first%"$end"}
    PROMPT_COMMAND=${first:+$first$'\n'}"{ $entry; "'( { \builtin exit "$__codex_shim_kept"; } 2>"/dev/null${BASH_XTRACEFD:+${__codex_shim_none[(BASH_XTRACEFD=2)*0]-}}" >&2 ); } 2>&"${__codex_shim_none[(__codex_shim_kept=$?)*0]-}'"${before#*\"} && __codex_shim_nothing() { return; }$end"
  elif [[ -z ${PROMPT_COMMAND[*]-} ]]; then
    # `PROMPT_COMMAND=...` replaces the first one only.
    PROMPT_COMMAND[1]="$entry $before"
  else
    PROMPT_COMMAND[0]=$first
    if [[ ${#PROMPT_COMMAND[@]} -gt 1 && ${PROMPT_COMMAND[-1]} == __bp_interactive_mode ]]; then
      PROMPT_COMMAND[-1]="$entry $before"
      PROMPT_COMMAND+=(__bp_interactive_mode)
    else
      PROMPT_COMMAND+=("$entry $before")
    fi
  fi
}
if [[ ${PROMPT_COMMAND[*]-} != *__codex_shim_* ]]; then
  __codex_shim_install
fi
\builtin unset -f __codex_shim_install
if [[ ${PS0-} != *__codex_shim_on* ]]; then
  PS0=$__codex_shim_ps0${PS0-}
fi
fi
