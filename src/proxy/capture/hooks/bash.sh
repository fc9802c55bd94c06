# codex-shim: records the commands that are typed here, for bash 4.4 or later.
#
# Traps, `set -x` and other hooks must not notice the hook, so it runs no command in this shell. It consists of expansions in
# PS0 and in redirections in PROMPT_COMMAND that redirect stderr to itself (`2>&"...2"`): arithmetic in the subscript of an
# array without elements assigns numbers, and two command substitutions do the rest: one before a command takes its line, one
# after it reports the line. The definition of `__codex_shim_nothing` is there because a redirection needs a command, and bash
# neither traps nor traces a definition.
#
# Only the history has a line as it was typed, and its newest entry may be another line: settings keep lines out, and keys and
# commands add, change and delete entries. So the line is taken before the command runs, and only if bash itself counts the
# newest entry as the line that it has just read.
if [[ -z ${BASH_VERSION-} || $- != *i* ]]; then
  \builtin :
elif ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  \builtin printf '%s\n' 'codex-shim: the hook needs bash 4.4 or later; this shell is not recorded' >&2
elif [[ $- == *r* ]]; then
  \builtin printf '%s\n' 'codex-shim: a restricted shell cannot start codex-shim; this shell is not recorded' >&2
elif [[ ${PROMPT_COMMAND+${PROMPT_COMMAND@a}}${PS0+${PS0@a}} == *r* ]] || ! \builtin shopt -q promptvars; then
  \builtin printf '%s\n' 'codex-shim: the hook needs `shopt -s promptvars`, and a PROMPT_COMMAND and a PS0 that are not readonly; this shell is not recorded' >&2
else
\builtin declare -g __codex_shim_bin=@PROGRAM@

# Runs in a subshell before each command; the shell reads stdout. Prints 1 and the line, or 2 if the program is gone, or nothing
# if no line is certain.
__codex_shim_read() {
  if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
    \builtin printf '\e]133;C;aid=codex-shim.%s.%s\a' "$$" "$__codex_shim_seq" >/dev/tty
  fi
  if [[ ! -f $__codex_shim_bin || ! -x $__codex_shim_bin ]]; then
    \builtin printf 2
  elif [[ -o history && ! ${CODEX_SHIM_PRIVATE-} =~ ^(1|true|yes|on)$ ]]; then
    # For `fc`, `-0` is the newest entry, and `0` the one before the line that was read last: the newest one, too, if that line
    # is not in the history, or if there is no other.
    __codex_shim_both=$(\builtin fc -l 0 0; \builtin printf '\36'; \builtin fc -l -0 -0)
    __codex_shim_newest=${__codex_shim_both#*$'\36'}
    # A blank after the tab; a star there marks an entry that was changed.
    if [[ $__codex_shim_newest == [0-9]*$'\t '?* && $__codex_shim_newest != *$'\36'* ]] && __codex_shim_is_certain; then
      \builtin printf '1%s' "${__codex_shim_newest#*$'\t '}"
    fi
  fi
}

# Whether the newest entry is what was read for the command, as it was typed.
__codex_shim_is_certain() {
  if ((__codex_shim_lines == 1)); then
    [[ $__codex_shim_newest != *$'\n'* ]] || \builtin return
    if [[ ${__codex_shim_both%%[^0-9]*} != "${__codex_shim_newest%%[^0-9]*}" ]]; then
      ((__codex_shim_sure)) || \builtin shopt -q cmdhist
    elif ((__codex_shim_added == 1)) && [[ $(\builtin history 2) == "$(\builtin history 1)" ]]; then
      # It is the only entry, and new since the prompt.
      __codex_shim_nothing_ran && ((__codex_shim_sure))
    else
      # A line that is not in the history repeats the newest entry, if nothing else keeps lines out.
      ((__codex_shim_sure)) && [[ -z ${HISTIGNORE-} ]] &&
        [[ :${HISTCONTROL-}: == :@(ignoredups|ignoredups:erasedups|erasedups:ignoredups): ]]
    fi
  else
    # All lines are in one entry. Where bash has joined two of them with something else than the end of a line, the entry may
    # be another command.
    ((__codex_shim_lines > 1 && __codex_shim_added == 1)) && \builtin shopt -q cmdhist &&
      [[ ${HISTCONTROL-} != *erasedups* ]] && __codex_shim_nothing_ran &&
      { \builtin shopt -q lithist || [[ $__codex_shim_newest != *$'\n'[' ;']* ]]; } &&
      __codex_shim_ends=${__codex_shim_newest//[^$'\n']/} && ((${#__codex_shim_ends} == __codex_shim_lines - 1))
  fi
}

# Whether nothing ran since the prompt that may have changed the history, such as an editor: `$_` shows that.
__codex_shim_nothing_ran() {
  __codex_shim_last=${__codex_shim_now[__codex_shim_seq]}
  [[ ${__codex_shim_was[__codex_shim_seq]+x}$__codex_shim_last == "x${__codex_shim_was[__codex_shim_seq]}" ]] &&
    [[ $__codex_shim_last != @("${VISUAL:-${EDITOR:-emacs}}"|"${VISUAL:-${EDITOR:-vi}}"|?(-)+([0-9])) ]]
}

# Runs in a subshell after each command; 1 and 2 are /dev/null.
__codex_shim_tell() {
  if [[ -n ${CODEX_SHIM_SHELL-} ]]; then
    \builtin printf '\e]133;D;%s;aid=codex-shim.%s.%s\a' "$__codex_shim_code" "$$" "$__codex_shim_seq" >/dev/tty
  fi
  if [[ ${__codex_shim_texts[__codex_shim_seq]-} != 1* || ${CODEX_SHIM_PRIVATE-} =~ ^(1|true|yes|on)$ ]]; then
    \builtin return
  fi
  for __codex_shim_pwd in "${!__codex_shim_dirs[@]}"; do
    if [[ ${__codex_shim_dirs[$__codex_shim_pwd]} == "$__codex_shim_dir" ]]; then \builtin break; fi
  done
  # The shell's process group has this process, too, and the end of the terminal would kill it.
  \builtin trap '' HUP
  {
    \builtin printf '%s' "${__codex_shim_texts[__codex_shim_seq]:1}" |
      "$__codex_shim_bin" hooked bash --as-typed --exit-code "$__codex_shim_code" --cwd "$__codex_shim_pwd" \
        --began "${__codex_shim_at#1}" --ended "${__codex_shim_ended#1}" --key "$$.$__codex_shim_seq"
  } </dev/null &
}

# For bash before 5.1, which has no HISTCMD while PROMPT_COMMAND runs: the number that the next line will have.
__codex_shim_next() {
  __codex_shim_newest=$(\builtin fc -l -0 -0)
  __codex_shim_newest=${__codex_shim_newest%%[^0-9]*}
  \builtin printf '%s' "$((${__codex_shim_newest:-0} + 1))"
}

if [[ ${__codex_shim_on[0]+x} != x ]]; then
  # bash never exports an array, so a child that inherits PS0 or PROMPT_COMMAND does nothing.
  \builtin declare -ga __codex_shim_on __codex_shim_one __codex_shim_texts __codex_shim_was __codex_shim_now
  \builtin declare -gA __codex_shim_dirs __codex_shim_free
  __codex_shim_on=('') __codex_shim_one=([1]='') __codex_shim_dirs=() __codex_shim_free=([x]='')
  __codex_shim_texts=() __codex_shim_was=() __codex_shim_now=()
  \builtin declare -g __codex_shim_seq=0 __codex_shim_told=0 __codex_shim_said=0 __codex_shim_prompts=0 __codex_shim_from_line=0
fi

__codex_shim_install() {
  \builtin local "first=${PROMPT_COMMAND-}" entry is_string='' after before end='' free begin quiet set_numbers
  # Set only if the shell is not restricted and expands prompts: these can change at any time.
  free='__codex_shim_free[x${-//[^r]/}${BASHOPTS/*promptvars*/}]'
  # A subshell in which neither a function nor an option or a trap of the user changes a command, and which prints nothing.
  # Only in posix mode does `unset` mean the builtin, whatever is defined.
  begin='POSIXLY_CORRECT=1; \\unset -f builtin; \\builtin set +eux +o posix; \\builtin trap - DEBUG RETURN ERR'
  quiet='2>"/dev/null${BASH_XTRACEFD:+${__codex_shim_none[(BASH_XTRACEFD=2)*0]-}}"'

  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)) || [[ ${first:+${PROMPT_COMMAND@a}} == *x* ]]; then
    # A string: bash knows no array there, or could not export it.
    is_string=1
  fi

  # These are expanded as prompts are. Before a command: its number, the entries and lines that were read for it, its folder, the
  # time with a 1 in front, and the last word of what ran until now. Then its line. The hook says here, before the output of a
  # command, that it has stopped: once, and never in a prompt.
  set_numbers='(__codex_shim_seq+=1,__codex_shim_added=${HISTCMD-0}-__codex_shim_from,__codex_shim_from=${HISTCMD-0}'
  set_numbers+=',__codex_shim_lines=${LINENO-0}-__codex_shim_from_line,__codex_shim_from_line=${LINENO-0}'
  set_numbers+=',(__codex_shim_sure=__codex_shim_prompts<2)?0:(__codex_shim_lines=__codex_shim_lines==__codex_shim_prompts),__codex_shim_prompts=0'
  set_numbers+=',__codex_shim_dir=${__codex_shim_dirs[$PWD]:=${#__codex_shim_dirs[@]}}'
  set_numbers+=',__codex_shim_at=1${EPOCHREALTIME+${EPOCHREALTIME/[^0-9]/}})*0'
  __codex_shim_ps0='${__codex_shim_on[0]+${'$free'+${__codex_shim_none['$set_numbers']-}'
  __codex_shim_ps0+='${__codex_shim_on[0]/"${__codex_shim_now[__codex_shim_seq]:=$_}"/}'
  __codex_shim_ps0+='${__codex_shim_on[0]/"${__codex_shim_texts[__codex_shim_seq]:=$({ '$begin'; __codex_shim_read; } '$quiet')}"/}'
  __codex_shim_ps0+='${__codex_shim_one[0${__codex_shim_texts[__codex_shim_seq]:0:1}==2&&__codex_shim_said==0]+codex-shim: $__codex_shim_bin is gone; this shell is not recorded without it\n${__codex_shim_none[(__codex_shim_said=1)*0]-}}'
  __codex_shim_ps0+='}${'$free'-${__codex_shim_one[__codex_shim_said==0]+codex-shim: a restricted shell cannot start codex-shim; this shell is not recorded any more\n${__codex_shim_none[(__codex_shim_said=1)*0]-}}}}'
  # After a command, if there was one since the last time.
  __codex_shim_after='${__codex_shim_none[(__codex_shim_code=$?,__codex_shim_ended=1${EPOCHREALTIME+${EPOCHREALTIME/[^0-9]/}},__codex_shim_ran=__codex_shim_seq>__codex_shim_told,__codex_shim_told=__codex_shim_seq)*0]-}'
  __codex_shim_after+='${__codex_shim_one[__codex_shim_ran]+$({ '$begin'; __codex_shim_tell; } '$quiet' >&2)}'
  # Before a prompt: the number that the next line will have in the history, the lines read so far, and the last word of what
  # ran. The texts have been used. (An element that is set to 0 takes a few bytes; nothing but a command can remove it.)
  set_numbers='(__codex_shim_from=${HISTCMD-0},__codex_shim_from_line=${LINENO-0},__codex_shim_texts[__codex_shim_seq]=0'
  set_numbers+=',__codex_shim_now[__codex_shim_seq]=0,__codex_shim_was[__codex_shim_seq]=0)*0'
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
    # One string: bash-preexec knows the status if other prompt commands have lost it.
    __codex_shim_after=${__codex_shim_after/'$?'/'${__bp_last_ret_value-$?}'}
    set_numbers=${set_numbers/'${HISTCMD-0}'/'$({ '$begin'; __codex_shim_next; } '$quiet')'}
  fi
  if [[ -n $is_string ]]; then
    # The lines of the string count there, so the lines are counted from one command to the next, and the prompts between.
    set_numbers=${set_numbers/'__codex_shim_from_line=${LINENO-0}'/'__codex_shim_prompts+=1'}
  fi
  __codex_shim_before='${__codex_shim_none['$set_numbers']-}'
  __codex_shim_before+='${__codex_shim_on[0]/"${__codex_shim_was[__codex_shim_seq+1]:=$_}"/}'

  after='2>&"${__codex_shim_on[0]+${'$free'+${__codex_shim_after@P}}}2"'
  before='2>&"${__codex_shim_on[0]+${'$free'+${__codex_shim_after@P}${__codex_shim_before@P}}}2"'
  # Puts PS0 back if something has replaced it: there is such a file only if PS0 holds the hook. If PS0 cannot be put back, or
  # prompts are not expanded any more, the hook ends.
  entry='if { { __codex_shim_nothing() { return; }; } <"/dev/nul${__codex_shim_on[0]-l}${__codex_shim_on[0]+${__codex_shim_free[x${BASHOPTS/*promptvars*/}]+${PS0:+l${PS0##*__codex_shim_on*}}}}"; } 2>&-; then __codex_shim_nothing() { return; }; '
  entry+='elif [[ ${PS0+${PS0@a}} == *r* ]]; then __codex_shim_on=(); elif [[ $BASHOPTS == *promptvars* ]]; then PS0=$__codex_shim_ps0${PS0-}; else __codex_shim_on=() PS0=${PS0//"$__codex_shim_ps0"/}; fi'
  # The command that others know as `$PROMPT_COMMAND` keeps its `$?`, its `$_` and its PIPESTATUS. Traps may compare it with
  # BASH_COMMAND if it is a single command, so that stays as it is. bash-preexec moves its own commands by their text.
  if [[ -n $first && $first != *__bp_* && ( -n $is_string || -n ${CODEX_SHIM_SHELL-} || $first == *[$';&|(){}\n']* ) ]]; then
    first='{ '$first$'\n} '$after
  fi
  if [[ -n $is_string ]]; then
    # bash-preexec has to be the last.
    if [[ $first == *$'\n__bp_interactive_mode' ]]; then end=$'\n__bp_interactive_mode'; fi
    first=${first%"$end"}
    PROMPT_COMMAND=${first:+$first$'\n'}"{ $entry; "'( { POSIXLY_CORRECT=1; \exit "$__codex_shim_kept"; } 2>&"-${BASH_XTRACEFD:+${__codex_shim_none[(BASH_XTRACEFD=2)*0]-}}" >&- ); } 2>&"${__codex_shim_none[(__codex_shim_kept=$?)*0]-}'"${before#*\"} && __codex_shim_nothing() { return; }$end"
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
