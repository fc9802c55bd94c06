//! The packages, made from the binary under test by `.packaging/package.sh`: each is installed somewhere clean, works, relays the
//! real codex, is upgraded under a running relay, and is removed again without a trace. Nothing but HOME and PATH is in the
//! environment. `make package-test` does the same with the binary of `make dist`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::PLAIN_TURN;
use crate::support::eventually;
use crate::support::login_file::{ODD_NAME, command_of, members_of, systemd_accepts};
use crate::support::model::Model;
use crate::support::peer::Peer;
use crate::support::release::Release;
use crate::support::shim::{Home, SHIM, put_program};
use crate::surroundings::ends;

/// The version that is upgraded.
const OLD: &str = "0.1.9";
const NEW: &str = env!("CARGO_PKG_VERSION");

/// A folder in which the test makes and installs packages. Its user has a codex on PATH.
struct Bench {
    root: tempfile::TempDir,
}

/// A `codex-shim serve` of an installed binary, and its generation; it is ended with the test.
struct Served(Child, Value);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bench {
    /// None if a program is missing without which these packages can be neither made nor installed.
    fn with(test: &str, programs: &[&str]) -> Option<Bench> {
        for program in ["python3", "strip"].iter().chain(programs) {
            let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if found.is_err() {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no {program}");
                return None;
            }
        }
        let bench = Bench { root: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir_all(bench.at("user/codex")).expect("a folder");
        let server = r#"[ "$*" = app-server ] && read -r line && echo '{"id":1,"result":{}}' && exec cat"#;
        let codex = format!("#!/bin/sh\n{server}\necho codex-cli 1.2.3 \"$@\"\n");
        put_program(&bench.at("user/codex/codex"), codex.as_bytes());
        let stripped = Command::new("strip").arg("-o").arg(bench.at("codex-shim")).arg(binary()).status();
        assert!(stripped.expect("strip runs").success());
        Some(bench)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Makes the packages of a kind; returns their paths, as printed.
    fn pack(&self, kind: &str, version: &str, into: &str) -> Vec<PathBuf> {
        let mut script = Command::new("sh");
        script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/.packaging/package.sh"));
        script.args([kind.as_ref(), self.at("codex-shim").as_os_str(), self.at(into).as_os_str()]);
        script.env("VERSION", version).env("SOURCE_DATE_EPOCH", "1700000000").env("LEVEL", "1");
        let output = well(script.current_dir(self.root.path()), kind);
        output.lines().map(PathBuf::from).collect()
    }

    /// A command with HOME and PATH; `bin` is where packages have their programs.
    fn command(&self, program: &Path, bin: &Path) -> Command {
        let path = [bin, &self.at("user/codex"), Path::new("/usr/bin"), Path::new("/bin")];
        let path = std::env::join_paths(path).expect("no colon in them");
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.at("user")).env("PATH", path).current_dir(self.at("user"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn installed(&self, bin: &Path, args: &[&str]) -> String {
        let mut command = self.command(&bin.join("codex-shim"), bin);
        well(command.args(args), &format!("{args:?}"))
    }

    /// Checks an installation as a new user would.
    fn try_it(&self, bin: &Path) {
        let version = concat!("codex-shim ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(self.installed(bin, &["--version"]), version);
        let shown: Value = serde_json::from_str(&self.installed(bin, &["demo", "--json"])).expect("JSON");
        assert_eq!(shown["held"], true, "{shown}");
        assert!(self.installed(bin, &["doctor"]).contains("nothing is broken"));
        relays_real_codex(&bin.join("codex-shim"));
    }

    /// A running relay of the installed binary.
    fn served(&self, bin: &Path) -> Served {
        let mut relay = self.command(&bin.join("codex-shim"), bin);
        relay.args(["serve", "--session", "s", "--", "sh", "-c", "exec cat >&2"]);
        let child = relay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut relay = Served(child, Value::Null);
        let running = || self.status(bin).filter(|status| status["state"] != "stopped");
        relay.1 = eventually("the relay", running)["generation"].take();
        relay
    }

    fn status(&self, bin: &Path) -> Option<Value> {
        let mut command = self.command(&bin.join("codex-shim"), bin);
        let output = command.args(["status", "--session", "s", "--json"]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Checks that a relay that was started before an upgrade still runs and answers the new tools.
    fn outlives(&self, relay: &mut Served, bin: &Path) {
        assert!(relay.0.try_wait().expect("it is ours").is_none(), "the relay ended");
        let status = self.status(bin).expect("a status");
        assert!(status["state"] != "stopped" && status["generation"] == relay.1, "{status}");
    }
}

/// What is packed: the binary under test, or another one.
#[expect(clippy::disallowed_methods, reason = "make says which one")]
fn binary() -> OsString {
    std::env::var_os("PACKAGED_BINARY").unwrap_or_else(|| SHIM.into())
}

/// Holds a turn with the real codex, if it is there: the client sees its end, and every line is on record.
fn relays_real_codex(program: &Path) {
    let Some(codex) = installed_or_skip("relays_real_codex") else { return };
    let model = Model::start((PLAIN_TURN.script)(Release::under_test()));
    let (lab, home) = (Lab::new(&model), Home::new());
    let mut command = lab.command(program);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).arg("app-server");
    let mut peer = Peer::start(&mut command);
    (PLAIN_TURN.drive)(&mut peer, &lab);
    let (received, status) = peer.finish();
    assert!(status.success(), "{status}");
    assert!(!received.is_empty() && home.journal().server.len() == received.len(), "{received:?}");
}

/// The output of a command that succeeds.
fn well(command: &mut Command, what: &str) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output: Output = ends(child.unwrap_or_else(|error| panic!("{what}: {error}")), what);
    assert!(output.status.success(), "{what}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// All that is below a folder.
fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

/// The folder in a tarball.
fn unpack(bench: &Bench, tarball: &Path, into: &str) -> PathBuf {
    let into = bench.at(into);
    fs::create_dir(&into).expect("a folder");
    well(Command::new("tar").arg("xzf").arg(tarball).arg("-C").arg(&into), "tar");
    let mut entries = fs::read_dir(&into).expect("a folder");
    let folder = entries.next().expect("one folder").expect("an entry").path();
    assert!(entries.next().is_none());
    folder
}

#[test]
fn tarball_installs_upgrades_and_goes() {
    let Some(bench) = Bench::with("tarball_installs_upgrades_and_goes", &["tar"]) else { return };
    let old = unpack(&bench, &bench.pack("tar", OLD, "old")[0], "old-unpacked");
    let packed = bench.pack("tar", NEW, "new");
    let new = unpack(&bench, &packed[0], "new-unpacked");
    fs::write(old.join("share/doc/codex-shim/only in the old one"), "").expect("a file");
    let (prefix, bin) = (bench.at("user/.local"), bench.at("user/.local/bin"));
    fs::create_dir_all(&bin).expect("a folder");
    fs::write(bin.join("another program"), "").expect("a file");
    let before = tree(&prefix);
    let install = |script: &Path, args: &[&str]| {
        bench.command(script, &bin).args(args).output().unwrap_or_else(|error| panic!("{}: {error}", script.display()))
    };
    assert!(install(&old.join("install.sh"), &[]).status.success());
    let mut relay = bench.served(&bin);
    let output = install(&new.join("install.sh"), &[]);
    assert!(output.status.success(), "{output:?}");
    bench.outlives(&mut relay, &bin);
    drop(relay);
    bench.try_it(&bin);
    assert!(prefix.join("share/man/man1/codex-shim.1").exists());
    assert!(!prefix.join("share/doc/codex-shim/only in the old one").exists());
    let unit = fs::read_to_string(prefix.join("share/systemd/user/codex-shim-hub.service")).expect("a unit");
    assert!(unit.contains(&format!("\nExecStart=\"{}\" hub\n", bin.join("codex-shim").display())), "{unit}");
    installs_in_odd_folder(&bench, &new);
    // Wrapped tools start this program, so it is not removed.
    bench.installed(&bin, &["wrap", "path", "--yes"]);
    let remover = prefix.join("share/codex-shim/install.sh");
    let refused = install(&remover, &["--remove"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("codex-shim unwrap"), "{refused:?}");
    bench.installed(&bin, &["unwrap"]);
    let output = install(&remover, &["--remove"]);
    assert!(output.status.success(), "{output:?}");
    // The user keeps the records.
    let after = tree(&prefix).into_iter().filter(|path| !path.starts_with(prefix.join("state")));
    assert_eq!(after.collect::<BTreeSet<_>>(), before);
}

/// Installs an unpacked tarball below a folder whose name has every character that a unit or an agent reads as something else.
fn installs_in_odd_folder(bench: &Bench, unpacked: &Path) {
    let prefix = bench.at(ODD_NAME);
    let bin = prefix.join("bin");
    let install = |script: &Path, args: &[&str]| {
        let output = bench.command(script, &bin).args(args).arg(&prefix).output().expect("a shell");
        assert!(output.status.success(), "{output:?}");
    };
    install(&unpacked.join("install.sh"), &[]);
    let unit = fs::read_to_string(prefix.join("share/systemd/user/codex-shim-hub.service")).expect("a unit");
    systemd_accepts(&unit);
    let command = command_of(&unit);
    let program = bin.join("codex-shim");
    assert!(command.get_args().any(|word| word == program), "{command:?}");
    let agent = fs::read(prefix.join("share/codex-shim/codex-shim.hub.plist")).expect("an agent");
    if let Some(agent) = members_of(&agent) {
        assert_eq!(agent["ProgramArguments"], json!([program, "hub"]));
    }
    install(&prefix.join("share/codex-shim/install.sh"), &["--remove"]);
    assert!(tree(&prefix).iter().all(|path| path.is_dir()), "{:?}", tree(&prefix));
}

#[test]
fn debian_package_installs_upgrades_and_goes() {
    let test = "debian_package_installs_upgrades_and_goes";
    let Some(bench) = Bench::with(test, &["dpkg", "dpkg-deb"]) else { return };
    let (old, new) = (bench.pack("deb", OLD, "old"), bench.pack("deb", NEW, "new"));
    let root = bench.at("system");
    for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "usr/bin"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").expect("a file");
    }
    let belongs_to_packages = |path: &PathBuf| !path.starts_with(root.join("var")) && !path.is_dir();
    let before: BTreeSet<PathBuf> = tree(&root).into_iter().filter(belongs_to_packages).collect();
    // A system of no packages lacks the C library, and its administrator need not be root.
    let dpkg = |args: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", bench.at("user"));
        dpkg.arg(format!("--root={}", root.display())).arg("--force-not-root,bad-path,depends,script-chrootless");
        well(dpkg.arg("--log=/dev/null").args(args), "dpkg")
    };
    dpkg(&["--install", old[0].to_str().expect("UTF-8")]);
    let bin = root.join("usr/bin");
    let mut relay = bench.served(&bin);
    dpkg(&["--install", new[0].to_str().expect("UTF-8")]);
    bench.outlives(&mut relay, &bin);
    drop(relay);
    bench.try_it(&bin);
    let unit = fs::read_to_string(root.join("usr/lib/systemd/user/codex-shim-hub.service")).expect("a unit");
    assert!(unit.contains("\nExecStart=\"/usr/bin/codex-shim\" hub\n"), "{unit}");
    assert!(dpkg(&["--status", "codex-shim"]).contains(&format!("\nVersion: {NEW}\n")));
    dpkg(&["--purge", "codex-shim"]);
    let after: BTreeSet<PathBuf> = tree(&root).into_iter().filter(belongs_to_packages).collect();
    assert_eq!(after, before);
    assert!(!root.join("usr/share").exists());
}

/// A PATH with the folders of Node and npm.
fn with_node(bench: &Bench) -> String {
    let found = well(Command::new("sh").args(["-c", "command -v node; command -v npm"]), "node and npm");
    let folders: Vec<_> = found.lines().filter_map(|program| Path::new(program).parent()?.to_str()).collect();
    format!("{}:{}:/usr/bin:/bin", bench.at("user/codex").display(), folders.join(":"))
}

/// `npm ARG…` that asks no registry.
fn npm(bench: &Bench, folder: &Path, args: &[&str]) -> String {
    let mut npm = bench.command(Path::new("env"), Path::new("/usr/bin"));
    npm.arg("npm");
    npm.env("PATH", with_node(bench)).current_dir(folder);
    well(npm.args(args).args(["--offline", "--no-audit", "--no-fund", "--loglevel=error"]), &format!("npm {args:?}"))
}

#[test]
fn npm_packages_install_upgrade_and_go() {
    let Some(bench) = Bench::with("npm_packages_install_upgrade_and_go", &["npm", "node"]) else { return };
    let (old, new) = (bench.pack("npm", OLD, "old"), bench.pack("npm", NEW, "new"));
    let prefix = bench.at("prefix");
    fs::create_dir(&prefix).expect("a folder");
    let bin = prefix.join("bin");
    let words = |packages: &[PathBuf]| -> Vec<String> {
        packages.iter().map(|package| package.to_str().expect("UTF-8").to_owned()).collect()
    };
    let install = |packages: &[PathBuf]| {
        let words = words(packages);
        let mut args = vec!["install", "--global", "--prefix", prefix.to_str().expect("UTF-8")];
        args.extend(words.iter().map(String::as_str));
        npm(&bench, &prefix, &args);
    };
    install(&old);
    let mut relay = bench.served(&bin);
    install(&new);
    bench.outlives(&mut relay, &bin);
    drop(relay);
    bench.try_it(&bin);
    assert!(prefix.join("share/man/man1/codex-shim.1").exists());
    let main = prefix.join("lib/node_modules/codex-shim");
    let manifest: Value =
        serde_json::from_slice(&fs::read(main.join("package.json")).expect("it is there")).expect("JSON");
    assert_eq!(manifest["version"], NEW);
    assert_ne!(fs::read(main.join("bin/codex-shim")).expect("it is there")[..2], *b"#!", "no Node is between");
    let prefix_text = prefix.to_str().expect("UTF-8");
    let names = manifest["optionalDependencies"].as_object().expect("a package for this system");
    let name = names.keys().next().expect("one");
    npm(&bench, &prefix, &["uninstall", "--global", "--prefix", prefix_text, "codex-shim", name]);
    assert!(tree(&prefix).iter().all(|path| path.is_dir()), "{:?}", tree(&prefix));
    // Without a global installation.
    let words = words(&new);
    let args = ["exec", "--yes", "--package", &words[0], "--package", &words[1], "--", "codex-shim", "--version"];
    assert_eq!(npm(&bench, &bench.at("user"), &args), format!("codex-shim {NEW}\n"));
}

/// If npm runs no scripts, a launcher runs the binary, with its name, status, streams and signals.
#[test]
fn npm_launcher_passes_everything_on() {
    let Some(bench) = Bench::with("npm_launcher_passes_everything_on", &["npm", "node"]) else { return };
    let packages = bench.pack("npm", NEW, "new");
    let project = bench.at("project");
    fs::create_dir(&project).expect("a folder");
    let words: Vec<&str> = packages.iter().map(|package| package.to_str().expect("UTF-8")).collect();
    npm(&bench, &project, &["install", "--ignore-scripts", words[0], words[1]]);
    let launcher = project.join("node_modules/codex-shim/bin/codex-shim");
    assert_eq!(fs::read(&launcher).expect("it is there")[..2], *b"#!");
    let path = with_node(&bench);
    let launch = |program: &Path, args: &[&str]| {
        let mut command = bench.command(program, Path::new("/usr/bin"));
        command.env("PATH", &path).env("CODEX_SHIM_CODEX", bench.at("user/codex/codex")).args(args);
        command
    };
    let status = |args: &[&str]| launch(&launcher, args).output().expect("it runs").status.code();
    assert_eq!(status(&["--version"]), Some(0));
    assert_eq!(status(&["show", "--session", "none", "x"]), Some(3));
    relays_real_codex(&launcher);
    // The name decides.
    let link = bench.at("user/link/codex");
    fs::create_dir(bench.at("user/link")).expect("a folder");
    std::os::unix::fs::symlink(&launcher, &link).expect("a link");
    let output = launch(&link, &["--version"]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "codex-cli 1.2.3 --version\n");
    // A pipe that is shared with the launcher keeps its mode: not every program expects a full pipe to refuse bytes.
    let codex = bench.at("user/codex/waits");
    put_program(&codex, b"#!/bin/sh\nread line\necho \"$line\"\nread line\n");
    let (output, shared) = std::io::pipe().expect("a pipe");
    let mut command = launch(&link, &["exec"]);
    command.env("CODEX_SHIM_CODEX", &codex).stdin(Stdio::piped()).stdout(shared.try_clone().expect("one more"));
    let mut waits = command.spawn().expect("it starts");
    let mut stdin = waits.stdin.take().expect("it is piped");
    stdin.write_all(b"here\n").expect("it is read");
    let mut line = String::new();
    std::io::BufReader::new(output).read_line(&mut line).expect("it is written");
    assert_eq!(line, "here\n");
    assert!(!rustix::fs::fcntl_getfl(&shared).expect("it is open").contains(rustix::fs::OFlags::NONBLOCK));
    drop(stdin);
    waits.wait().expect("it ends");
    // Bytes pass in both directions, and a signal arrives.
    let mut relay =
        launch(&launcher, &["run", "--session", "s", "--", "cat"]).stdin(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = relay.stdin.take().expect("it is piped");
    stdin.write_all(b"{\"method\":\"a\"}\n").expect("it is read");
    drop(stdin);
    let output = ends(relay, "the relay");
    assert!(output.status.success() && output.stdout == b"{\"method\":\"a\"}\n", "{output:?}");
    let relay =
        launch(&launcher, &["serve", "--session", "s", "--", "sh", "-c", "exec cat >&2"]).spawn().expect("it starts");
    let running = || {
        let output = launch(&launcher, &["status", "--session", "s", "--json"]).output().expect("it runs");
        let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        status.filter(|status| status["state"] != "stopped")
    };
    eventually("the relay", running);
    let pid = rustix::process::Pid::from_child(&relay);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    ends(relay, "the launcher");
    assert!(running().is_none(), "the relay ends with its launcher");
}

#[test]
fn same_input_gives_the_same_packages() {
    let Some(bench) = Bench::with("same_input_gives_the_same_packages", &["tar"]) else { return };
    let mut kinds = vec!["tar", "npm"];
    if Command::new("dpkg-deb").arg("--version").stdout(Stdio::null()).status().is_ok() {
        kinds.push("deb");
    }
    for kind in kinds {
        let once = bench.pack(kind, NEW, "once");
        let again = bench.pack(kind, NEW, "again");
        assert!(!once.is_empty());
        for (once, again) in once.iter().zip(&again) {
            assert_eq!(once.file_name(), again.file_name());
            assert!(fs::read(once).expect("a file") == fs::read(again).expect("a file"), "{} differs", once.display());
            let digest = fs::read_to_string(format!("{}.sha256", once.display())).expect("a digest");
            assert!(
                digest.ends_with(&format!("  {}\n", once.file_name().expect("a name").to_string_lossy())),
                "{digest}"
            );
        }
    }
    let folder = unpack(&bench, &bench.pack("tar", NEW, "once")[0], "unpacked");
    let licences = fs::read_to_string(folder.join("share/doc/codex-shim/THIRD-PARTY-LICENSES")).expect("licences");
    for part in [
        "SQLite",
        "tokio ",
        "serde_json ",
        "libc ",
        "ring ",
        "rustls-webpki ",
        "untrusted ",
        "Permission is hereby granted",
        "Apache License",
    ] {
        assert!(licences.contains(part), "{part}");
    }
    assert!(!licences.contains("proptest "), "tests are not linked");
    for text in ["README.md", "LICENSE", "CHANGELOG.md", "docs/wrap.md"] {
        assert!(folder.join("share/doc/codex-shim").join(text).exists(), "{text}");
    }
}
