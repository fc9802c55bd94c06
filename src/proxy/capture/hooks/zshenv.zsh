# Written by `codex-shim shell`, which has zsh read this file as the `.zshenv` of a ZDOTDIR of ours. It puts the user's ZDOTDIR
# back before anything of the user's runs, so zsh itself reads each later file from where the user's settings say.
if [[ -n ${CODEX_SHIM_ZDOTDIR-} ]]; then
  # The first character says whether it is exported.
  if [[ $CODEX_SHIM_ZDOTDIR == -* ]]; then 'builtin' 'typeset' -g +x ZDOTDIR; fi
  ZDOTDIR="${CODEX_SHIM_ZDOTDIR#?}"
else
  'builtin' 'unset' ZDOTDIR
fi
'builtin' 'unset' CODEX_SHIM_ZDOTDIR
{
  [[ ! -r ${ZDOTDIR-$HOME}/.zshenv ]] || 'builtin' '.' "${ZDOTDIR-$HOME}/.zshenv"
} always {
  # The hook is loaded once the first prompt is due, after all startup files. A time in the past is always due.
  'builtin' 'typeset' -g __codex_shim_hook=@HOOK@
  if 'builtin' 'zmodload' zsh/sched 2>/dev/null; then
    'builtin' 'sched' 1 "'builtin' '.' \"\$__codex_shim_hook\""
  else
    'builtin' '.' "$__codex_shim_hook"
  fi
}
