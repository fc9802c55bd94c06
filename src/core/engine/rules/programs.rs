//! Names of programs that no rule accepts.

/// Reserved words, and commands that are part of some shell. A shell does not look for a file with such a name.
pub(super) const BUILT_IN: &[&str] = &[
    ".",
    ":",
    "[",
    "alias",
    "always",
    "autoload",
    "bg",
    "bind",
    "bindkey",
    "break",
    "builtin",
    "bye",
    "caller",
    "case",
    "cd",
    "chdir",
    "command",
    "compadd",
    "comparguments",
    "compcall",
    "compctl",
    "compdescribe",
    "compfiles",
    "compgen",
    "compgroups",
    "complete",
    "compopt",
    "compquote",
    "compset",
    "comptags",
    "comptry",
    "compvalues",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disable",
    "disown",
    "do",
    "done",
    "echo",
    "echotc",
    "echoti",
    "elif",
    "else",
    "emulate",
    "enable",
    "end",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "float",
    "for",
    "foreach",
    "function",
    "functions",
    "getcap",
    "getconf",
    "getln",
    "getopts",
    "hash",
    "help",
    "hist",
    "history",
    "if",
    "in",
    "integer",
    "jobs",
    "kill",
    "let",
    "limit",
    "local",
    "log",
    "logout",
    "mapfile",
    "namespace",
    "newgrp",
    "nocorrect",
    "noglob",
    "nohup",
    "popd",
    "print",
    "printf",
    "private",
    "pushd",
    "pushln",
    "pwd",
    "r",
    "read",
    "readarray",
    "readonly",
    "redirect",
    "rehash",
    "repeat",
    "return",
    "sched",
    "select",
    "set",
    "setopt",
    "shift",
    "shopt",
    "sleep",
    "source",
    "stop",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "ttyctl",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unfunction",
    "unhash",
    "unlimit",
    "unset",
    "unsetopt",
    "until",
    "vared",
    "wait",
    "whence",
    "where",
    "which",
    "while",
    "zcompile",
    "zformat",
    "zle",
    "zmodload",
    "zparseopts",
    "zregexparse",
    "zstyle",
];

/// Programs that run other programs, so that the checked file is not the program that acts: by kind. Many of these names stand
/// for a family; digits and dots at the end of a name do not count.
const RUNS_OTHERS: &[&[&str]] =
    &[SHELLS, PRIVILEGE, LIMITS, ENVIRONMENTS, REPETITION, TRACING, TERMINALS, CONTAINERS, REMOTE, PACKAGES, OTHERS];

/// The kinds of these that start the command in their arguments, on this machine and outside of a container.
const PASS_ON: &[&[&str]] = &[PRIVILEGE, LIMITS, ENVIRONMENTS, REPETITION, TRACING];

/// Beginnings of the names of loaders and emulators.
const LOADERS: [&str; 4] = ["ld-linux", "ld-musl", "ld.so", "qemu-"];

/// Shells.
#[rustfmt::skip]
const SHELLS: &[&str] = &[
    "ash", "bash", "busybox", "coreutils", "csh", "dash", "elvish", "es", "fish", "ion", "ksh", "ksh93", "lksh",
    "loksh", "mksh", "nu", "oil", "oksh", "osh", "pdksh", "posh", "powershell", "pwsh", "rbash", "rc", "rksh", "rzsh",
    "sash", "sh", "tcsh", "toybox", "xonsh", "yash", "ysh", "zsh",
];

/// Another user, other privileges, or another root.
#[rustfmt::skip]
const PRIVILEGE: &[&str] = &[
    "capsh", "chroot", "doas", "dzdo", "fakechroot", "fakeroot", "fakeroot-ng", "fakeroot-sysv", "fakeroot-tcp",
    "gosu", "jexec", "ksu", "lxc-attach", "lxc-execute", "machinectl", "newgrp", "newuidmap", "nsenter", "pfexec",
    "pivot_root", "pkexec", "please", "proot", "pseudo", "rootlesskit", "run0", "runas", "runcon", "runuser", "s6-applyuidgid",
    "s6-setuidgid", "schroot", "setarch", "setpriv", "setuidgid", "sg", "start-stop-daemon", "su", "su-exec", "sudo",
    "sudo-rs", "sudoedit", "switch_root", "systemd-nspawn", "tsocks", "unshare", "uschroot", "userdbctl", "userv",
];

/// Limits, priorities and places of a process.
#[rustfmt::skip]
const LIMITS: &[&str] = &[
    "cgexec", "chcpu", "choom", "chpst", "chrt", "cpulimit", "cset", "daemon", "daemonize", "envdir", "envuidgid",
    "flock", "ionice", "jk_chrootsh", "lckdo", "linux32", "linux64", "nice", "nocache", "nohup", "numactl",
    "pgrphack", "prlimit", "runlim", "s6-softlimit", "schedtool", "setlock", "setsid", "softlimit", "systemd-inhibit",
    "systemd-run", "taskset", "timelimit", "timeout", "tini", "uclampset", "with-lock-ex",
];

/// Environments, and programs that only pass a command on.
#[rustfmt::skip]
const ENVIRONMENTS: &[&str] = &[
    "asdf", "aws-vault", "chamber", "chronic", "conda", "dbus-launch", "dbus-run-session", "devbox", "direnv",
    "doppler", "dotenv", "dumb-init", "eatmydata", "env", "envchain", "execlineb", "faketime", "fnm", "foreman",
    "goreman", "hivemind", "honcho", "i386", "ifne", "infisical", "libtool", "mamba", "micromamba", "mise", "mispipe",
    "nix", "nix-shell", "nodenv", "nvm", "overmind", "pee", "phpenv", "pipenv", "poetry", "proxychains",
    "proxychains4", "pyenv", "qemu-aarch64", "qemu-arm", "qemu-i386", "qemu-user", "qemu-x86_64", "rbenv", "rtx",
    "rustup", "rvm", "s6-envdir", "sem", "sops", "stdbuf", "summon", "teller", "torify", "torsocks", "unbuffer", "uv",
    "vault", "vaulted", "virtualenv", "wine", "wine64", "with-contenv", "withenv", "x86_64", "xargs", "zrun",
];

/// Repetition, scheduling and watching.
#[rustfmt::skip]
const REPETITION: &[&str] = &[
    "anacron", "at", "atd", "batch", "cargo-watch", "chokidar", "cron", "crontab", "entr", "fcron", "fswatch",
    "guard", "hyperfine", "incrontab", "inotifywatch", "nodemon", "parallel", "pm2", "pueue", "retry", "run-one",
    "run-parts", "run-this-one", "rush", "supervisorctl", "supervisord", "task-spooler", "time", "ts", "tsp", "watch",
    "watchexec", "watchman",
];

/// Tracing, debugging and measuring.
#[rustfmt::skip]
const TRACING: &[&str] = &[
    "bpftrace", "catchsegv", "cgdb", "ddd", "dtrace", "dtruss", "fatrace", "gdbserver", "heaptrack", "kcov", "ldd",
    "lldb-server", "ltrace", "ocperf", "perf", "pin", "py-spy", "qemu-gdb", "rr", "scalene", "scorep", "stap",
    "strace", "sysdig", "systemtap", "trace-cmd", "truss", "uftrace", "undodb-gdb", "valgrind", "vtune", "xctrace",
];

/// Terminals, and programs that keep or record one.
#[rustfmt::skip]
const TERMINALS: &[&str] = &[
    "abduco", "agetty", "alacritty", "asciinema", "byobu", "dtach", "dvtm", "foot", "getty", "gnome-terminal", "kitty",
    "konsole", "login", "mosh", "openvt", "reptyr", "rxvt", "screen", "script", "scriptlive", "st", "tmate", "tmux", "ttyd", "ttyrec", "urxvt",
    "wezterm", "x-terminal-emulator", "xdg-open", "xterm", "xvfb-run", "zellij",
];

/// Containers, virtual machines and sandboxes.
#[rustfmt::skip]
const CONTAINERS: &[&str] = &[
    "apptainer", "bubblewrap", "buildah", "bwrap", "cage", "crictl", "crun", "ctr", "devcontainer", "distrobox",
    "docker", "docker-compose", "firejail", "flatpak", "flatpak-spawn", "fly", "flyctl", "helm", "incus", "k3s",
    "k9s", "kubectl", "kvm", "lima", "limactl", "lxc", "minijail", "minijail0", "minikube", "multipass", "nerdctl",
    "nomad", "nsjail", "oc", "orb", "pct", "podman", "podman-compose", "qemu-system-x86_64", "rkt", "runc", "runsc",
    "sandbox-exec", "singularity", "snap", "toolbox", "toolbx", "udocker", "umoci", "vagrant", "virsh", "virtme-ng",
    "vng", "wsl", "youki",
];

/// Other machines.
#[rustfmt::skip]
const REMOTE: &[&str] = &[
    "ansible", "ansible-playbook", "aws", "clush", "doctl", "fab", "gcloud", "heroku", "lftp", "mussh", "nc", "ncat",
    "netcat", "parallel-ssh", "pdsh", "plink", "pscp", "pssh", "rclone", "remsh", "restic", "rexec", "rlogin", "rsh",
    "rsync", "salt", "salt-ssh", "scp", "socat", "ssh-agent", "sshfs", "sshpass", "sshuttle", "tsh", "websocat",
];

/// Package managers and their runners, whose packages bring scripts.
#[rustfmt::skip]
const PACKAGES: &[&str] = &[
    "apk", "apt", "apt-get", "aptitude", "brew", "bundle", "bundler", "bunx", "cargo-binstall", "composer",
    "corepack", "cpan", "cpanm", "dnf", "dpkg", "easy_install", "emerge", "gem", "guix", "hatch", "jbang", "luarocks",
    "mas", "mvnd", "nimble", "nix-build", "nix-env", "nix-store", "npm", "npx", "nypm", "opam", "pacman", "paru",
    "pdm", "pear", "pecl", "pip", "pipx", "pkg", "pkgx", "pnpm", "pnpx", "port", "rpm", "rye", "uvx", "volta", "yarn",
    "yarnpkg", "yay", "yum", "zypper",
];

/// Build tools and task runners, which run what a file of the project says.
#[rustfmt::skip]
const BUILDS: &[&str] = &[
    "ament", "ant", "autoconf", "automake", "autoreconf", "b2", "bake", "bazel", "bazelisk", "bear", "bitbake",
    "bmake", "brazil", "buck", "buck2", "cabal", "cargo", "cmake", "colcon", "cpack", "ctest", "dagger", "deno",
    "dmake", "dotnet", "dune", "earthly", "fastlane", "gmake", "go", "gradle", "gradlew", "grunt", "gulp", "invoke",
    "jake", "jam", "jamplus", "jest", "just", "koka", "lage", "lake", "latexmk", "lein", "lerna", "m4", "mage",
    "make", "make4ht", "makepkg", "maven", "meson", "mix", "mocha", "moon", "msbuild", "mvn", "mvnw", "nant", "ninja",
    "nmake", "nox", "nx", "pants", "paver", "phing", "pre-commit", "premake", "pytest", "qmake", "rake", "rebar3",
    "rebuild", "redo", "remake", "samurai", "sbt", "scons", "setup.py", "shake", "snakemake", "stack", "swift-build",
    "task", "tox", "tup", "turbo", "vite", "waf", "webpack", "wireit", "xcodebuild", "xmake", "zig",
];

/// Tools for repositories, which run what the settings of a repository name.
#[rustfmt::skip]
const REPOSITORIES: &[&str] = &[
    "cvs", "darcs", "fossil", "gh", "glab", "hg", "hub", "jj", "pijul", "sl", "svn",
];

/// Package managers and environments that run what a file of the project says.
#[rustfmt::skip]
const PROJECT_RUNNERS: &[&str] = &[
    "bun", "bundle", "bundler", "bunx", "composer", "conda", "corepack", "devbox", "direnv", "foreman", "goreman", "hatch",
    "hivemind", "honcho", "mise", "nix-shell", "nodemon", "npm", "npx", "nypm", "overmind", "pdm", "pipenv", "pnpm", "pnpx",
    "poetry", "rye", "uv", "yarn", "yarnpkg",
];

/// Programs whose files or keys name a program to run.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "busctl", "fzf", "gitui", "lazygit", "lf", "logrotate", "peco", "sk", "systemctl", "tig", "update-alternatives",
    "vidir", "vifm", "vipe", "vipw", "xdotool",
];

/// Interpreters, editors, pagers and clients that take commands from a file or a terminal. Digits and dots at the end of a
/// name do not count.
#[rustfmt::skip]
const TAKES_COMMANDS: &[&str] = &[
    "aerc", "alpine", "amp", "atop", "bat", "batcat", "bb", "bc", "bpython", "btop", "bun", "chicken",
    "clickhouse-client", "cling", "clisp", "clj", "clojure", "cqlsh", "crystal", "cscript", "csharp", "csi", "d8",
    "dc", "deno", "duckdb", "ed", "elinks", "elixir", "elvis", "emacs", "emacsclient", "erl", "escript", "ex",
    "expect", "factor", "fennel", "fsharpi", "fsi", "ftp", "gdb", "gforth", "ghc", "ghci", "gitk", "gnuplot", "gosh",
    "gp", "groff", "groovy", "groovysh", "gs", "guile", "helix", "htop", "hx", "hy", "iex", "influx", "info",
    "ipython", "irb", "janet", "java", "jed", "jjs", "jmacs", "joe", "jruby", "jsc", "jshell", "julia", "jupyter",
    "jython", "kak", "kotlin", "kotlinc", "latex", "less", "libreoffice", "links", "litecli", "lldb", "lua", "luajit",
    "lualatex", "luatex", "lynx", "mail", "mailx", "man", "mariadb", "mathematica", "matlab", "maxima", "mc", "mg",
    "micro", "moar", "mongo", "mongosh", "mono", "more", "most", "mujs", "mutt", "mycli", "mysql", "nano", "ne",
    "neomutt", "nnn", "node", "nodejs", "nvi", "nvim", "nvimpager", "ocaml", "ocamlrun", "octave", "octave-cli",
    "osascript", "pdflatex", "pdftex", "perl", "perldoc", "pforth", "pgcli", "php", "pico", "pry", "psql", "ptpython",
    "pypy", "python", "qjs", "quickjs", "r", "racket", "raku", "rakudo", "ranger", "rdmd", "redis-cli", "regina",
    "rexx", "rhino", "rlwrap", "rscript", "ruby", "runghc", "runhaskell", "rust-script", "rview", "rvim", "sage",
    "sbcl", "scala", "scala-cli", "scheme", "sftp", "soffice", "sqlite", "sqlplus", "ssh", "swift", "swipl", "tclsh",
    "telnet", "tex", "top", "troff", "truffleruby", "ts-node", "tsx", "usql", "utop", "vi", "view", "vile", "vim",
    "vim.basic", "vim.gtk", "vim.nox", "vim.tiny", "vimdiff", "w3m", "wasm3", "wasmer", "wasmtime", "wish",
    "wolframscript", "xelatex", "xetex", "zile",
];

/// Why a rule accepts the program only with `trust_repository`: git and build tools run files that the files and the settings of
/// a repository name.
pub fn runs_repository_files(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "git" || name.starts_with("git-") || is_in(BUILDS, &name) || is_in(REPOSITORIES, &name)
}

/// Whether a program runs what a file of the folder says in which it starts, or of a folder around that.
pub fn runs_project_files(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_in(BUILDS, &name) || is_in(PROJECT_RUNNERS, &name)
}

/// Whether a program starts the command in its arguments.
pub fn passes_command_on(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PASS_ON.iter().any(|kind| is_in(kind, &name))
}

/// Whether a program is a shell.
pub fn is_shell(name: &str) -> bool {
    is_in(SHELLS, &name.to_ascii_lowercase())
}

/// Why a program is not the one that acts, if it is not.
pub fn runs_others(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    // Loaders run the program that they are given: `ld-linux-x86-64.so.2`.
    let is_loader = LOADERS.iter().any(|start| name.starts_with(start));
    match (is_loader || RUNS_OTHERS.iter().any(|kind| is_in(kind, &name)), is_in(TAKES_COMMANDS, &name)) {
        (true, _) => Some("runs other programs"),
        (false, true) => Some("takes commands from files or from its terminal"),
        (false, false) => None,
    }
}

/// Whether a list has the name, with or without a version at its end: `python3.12`, `ruby3.1`.
fn is_in(list: &[&str], name: &str) -> bool {
    let unnumbered = name.trim_end_matches(|char: char| char.is_ascii_digit() || matches!(char, '.' | '-'));
    list.contains(&name) || list.contains(&unnumbered)
}
