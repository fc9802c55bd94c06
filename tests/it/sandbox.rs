//! Callers that are confined, as the commands of the model are: no socket of ours serves one, and the sandbox of codex hides them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use codex_shim::testing::confinement::is_shown;
use serde_json::{Value, json};

use crate::support::bench::Bench;
use crate::support::both_ends::{Live, text};
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{start_thread, start_turn};
use crate::support::eventually;
use crate::support::hub::Hub;
use crate::support::model::{Item, Model};
use crate::support::page::Page;
use crate::support::real::{COMMAND, Real, says};
use crate::support::release::{Ability, Release};
use crate::support::requests::{PENDING, command_asked, respond_path};
use crate::support::shim::{Home, SHIM};

/// Sends each request of a JSON list `[socket, text]…` on a connection of its own, and prints the beginnings of the answers, or the
/// errors, as a JSON list.
const CALLER: &str = r#"
import json, socket, sys
def answer(path, text):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(path)
        s.sendall(text.encode())
        said = b""
        while len(said) < 65536:
            more = s.recv(65536)
            if not more:
                break
            said += more
            if said.startswith(b"HTTP/1.1 101 ") and b"\r\n\r\n" in said:
                break
        return said.decode(errors="replace")
    except OSError as error:
        return type(error).__name__
print(json.dumps([answer(*call) for call in json.load(open(sys.argv[1]))]))
"#;

/// A sandbox with access to the network. Folders of temporary files are left out, where codex would put folders of its own.
const WITH_NETWORK: &str =
    "[sandbox_workspace_write]\nnetwork_access = true\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n";

/// Runs a program behind a filter that allows every system call. Only root may do so without `no_new_privs`.
const FILTERED: &str = r#"
import ctypes, os, struct, sys
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
program = Program(1, ctypes.addressof(allow))
set_seccomp, mode_filter = 22, 2
if ctypes.CDLL(None).prctl(set_seccomp, mode_filter, ctypes.byref(program), 0, 0) != 0:
    sys.exit("the system refuses the filter")
os.execvp(sys.argv[1], sys.argv[1:])
"#;

/// Commands that confine a program, each in another way.
const CONFINED: [(&[&str], &str); 5] = [
    (&["setpriv", "--no-new-privs"], "no_new_privs"),
    (&["python3", "-c", FILTERED], "seccomp"),
    (&["unshare", "--mount"], "mount_namespace"),
    (&["unshare", "--user"], "user_namespace"),
    (&["unshare", "--pid", "--fork"], "pid_namespace"),
];

/// Whether the system shows how a caller is confined; otherwise prints that a test is skipped.
fn is_shown_or_skip(test: &str) -> bool {
    if !is_shown() {
        let _ = writeln!(io::stderr(), "SKIPPED: {test}: nothing here shows how a process is confined as Linux does");
    }
    is_shown()
}

/// The wrappers that work here; the others are reported.
fn wrappers() -> Vec<(&'static [&'static str], &'static str)> {
    let works = |wrapper: &[&str]| {
        let tried = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let (works, fail): (Vec<_>, Vec<_>) = CONFINED.into_iter().partition(|(wrapper, _)| works(wrapper));
    for (_, reason) in fail {
        let _ = writeln!(io::stderr(), "SKIPPED: callers with {reason}: they cannot be made on this system");
    }
    assert!(!works.is_empty(), "nothing here confines a program");
    works
}

/// Runs a program of a user behind a wrapper.
fn behind(wrapper: &[&str], home: &Home, words: &[&str]) -> Output {
    let all = [wrapper, words].concat();
    let mut command = Command::new(all[0]);
    home.adopt(&mut command).args(&all[1..]).output().expect("it runs")
}

/// The answers to calls of a program behind a wrapper.
fn answers(wrapper: &[&str], home: &Home, calls: &[(PathBuf, String)]) -> Vec<String> {
    let file = home.beside().join("calls.json");
    fs::write(&file, json!(calls).to_string()).expect("a file");
    let output = behind(wrapper, home, &["python3", "-c", CALLER, file.to_str().expect("it is UTF-8")]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn request(line: &str, more: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: shim\r\nConnection: close\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The handshake of a client of codex.
fn handshake() -> String {
    "GET /rpc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        .to_owned()
}

/// One request for each thing that a control socket does.
fn calls(request_id: &str) -> Vec<String> {
    let decision = r#"{"decision":"accept"}"#;
    let get = |path: &str| request(&format!("GET {path}"), "", "");
    let post = |path: &str, body: &str| request(&format!("POST {path}"), "", body);
    vec![
        get("/healthz"),
        get("/metrics"),
        get("/nowhere"),
        get("/sessions/self"),
        get("/sessions/self/codex-events"),
        get("/sessions/self/codex-events/stream"),
        get(PENDING),
        post(&respond_path(request_id), decision),
        post("/sessions/self/context", r#"{"cmd":"ls"}"#),
        request("DELETE /sessions/self/context", "", ""),
        post("/sessions/self/input", r#"{"text":"go on"}"#),
        post("/sessions/self/interrupt", "{}"),
        post("/sessions/self/rpc", r#"{"method":"thread/list","params":{}}"#),
        post("/sessions/self/stop", "{}"),
        post("/sessions/self/start", "{}"),
        request("POST /sessions/self/attach", "Upgrade: codex-shim-attach\r\n", ""),
        request("GET /healthz", "X-Codex-Shim-Source: tui\r\n", ""),
    ]
}

/// Checks that this is a refusal because of the sandbox.
#[track_caller]
fn is_refused(answer: &str, reason: &str) {
    assert!(answer.starts_with("HTTP/1.1 403 "), "{reason}: {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let document: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!(document["detail"]["error_code"], "sandboxed_peer", "{answer}");
    assert_eq!(document["detail"]["reason"], reason, "{answer}");
    assert!(text(&document["detail"]["message"]).contains("a process in a sandbox may not use codex-shim"), "{answer}");
}

#[test]
fn confined_callers_reach_no_route() {
    if !is_shown_or_skip("confined_callers_reach_no_route") {
        return;
    }
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let socket = live.home.path().join("sessions/s/control.sock");
    let all: Vec<(PathBuf, String)> = calls(&request_id).into_iter().map(|call| (socket.clone(), call)).collect();
    for (wrapper, reason) in wrappers() {
        answers(wrapper, &live.home, &all).iter().for_each(|answer| is_refused(answer, reason));
        let tool = [SHIM, "respond", "latest", "accept", "--session", "s"];
        let output = behind(wrapper, &live.home, &tool);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("may not use codex-shim"), "{output:?}");
    }
    assert_eq!(live.row(&request_id)["status"], "pending");
    let answered = answers(&["env"], &live.home, &all[..1]);
    assert!(answered[0].starts_with("HTTP/1.1 200 "), "{answered:?}");
    let refused = eventually("the event", || {
        let events = live.get("/sessions/self/codex-events?limit=500")["events"].as_array().expect("an array").clone();
        events.into_iter().find(|event| event["event_type"] == "sandboxed_peer")
    });
    let payload = &refused["payload_preview"];
    assert_eq!((&payload["socket"], &payload["reason"]), (&json!("control"), &json!(wrappers()[0].1)), "{refused}");
    assert_eq!(payload["count"], 1);
    assert!(text(&payload["program"]).starts_with("python3"), "{refused}");
    live.kill();
}

#[test]
fn confined_clients_of_a_hub_are_refused() {
    if !is_shown_or_skip("confined_clients_of_a_hub_are_refused") {
        return;
    }
    let hub = Hub::new();
    let control = hub.session().join("control.sock");
    let mut all = Vec::new();
    // The control socket last: the first refusal of a kind is the event.
    for socket in [hub.socket(), hub.default_socket(), control] {
        all.extend([handshake(), request("GET /", "", "")].map(|text| (socket.clone(), text)));
    }
    for (wrapper, reason) in wrappers() {
        answers(wrapper, &hub.home, &all).iter().for_each(|answer| is_refused(answer, reason));
    }
    hub.client("one that is not confined");
    let refused = eventually("the event", || {
        let events = hub.get("/sessions/self/codex-events?limit=500")["events"].as_array().expect("an array").clone();
        events.into_iter().find(|event| event["event_type"] == "sandboxed_peer")
    });
    let payload = &refused["payload_preview"];
    assert_eq!((&payload["socket"], &payload["reason"]), (&json!("hub"), &json!(wrappers()[0].1)), "{refused}");
}

#[test]
fn confined_callers_get_no_link_to_the_page() {
    if !is_shown_or_skip("confined_callers_get_no_link_to_the_page") {
        return;
    }
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let socket = home.path().join("web.sock");
    let post = |path: &str| (socket.clone(), request(path, "", ""));
    let all = [post("POST /links"), post("GET /page"), post("POST /sign-out")];
    for (wrapper, reason) in wrappers() {
        answers(wrapper, &home, &all).iter().for_each(|answer| is_refused(answer, reason));
    }
    page.browser();
}

/// A cgroup below that of this test, without a process. It goes with the test.
struct Cgroup {
    dir: PathBuf,
    /// As `/proc/PID/cgroup` and `trusted_cgroups` name it.
    path: PathBuf,
}

impl Cgroup {
    /// `None` if this system lets us make none, which is reported.
    fn new(test: &str, name: &str) -> Option<Cgroup> {
        let made = Cgroup::place().and_then(|(dir, path)| {
            let name = format!("codex-shim-{name}-{}", std::process::id());
            Cgroup::at(dir.join(&name), path.join(name))
        });
        made.map_err(|why| drop(writeln!(io::stderr(), "SKIPPED: {test}: no cgroup can be made: {why}"))).ok()
    }

    /// A cgroup within this one.
    fn within(&self, name: &str) -> Cgroup {
        Cgroup::at(self.dir.join(name), self.path.join(name)).expect("the outer one is ours")
    }

    fn at(dir: PathBuf, path: PathBuf) -> Result<Cgroup, String> {
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let cgroup = Cgroup { dir, path };
        // A process may enter it.
        let entered = Command::new(cgroup.wrapper()[0]).args(&cgroup.wrapper()[1..]).arg("true").output();
        let entered = entered.map_err(|error| error.to_string())?;
        entered.status.success().then_some(cgroup).ok_or_else(|| String::from_utf8_lossy(&entered.stderr).into_owned())
    }

    /// The folder and the path of our own cgroup in the unified hierarchy.
    fn place() -> Result<(PathBuf, PathBuf), String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (cgroups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).ok_or("there is no unified hierarchy")?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).ok_or("it is not mounted")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let below = Path::new(path).strip_prefix(fields[3]).map_err(|_| "our own cgroup is not mounted".to_owned())?;
        Ok((Path::new(fields[4]).join(below), PathBuf::from(path)))
    }

    /// Runs a program in it that may gain no privileges.
    fn wrapper(&self) -> [&str; 4] {
        const ENTERS: &str = r#"echo $$ > "$0"/cgroup.procs && exec setpriv --no-new-privs "$@""#;
        ["sh", "-c", ENTERS, self.dir.to_str().expect("it is UTF-8")]
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = fs::remove_dir(&self.dir);
            return;
        }
        // The kernel forgets a process somewhat after its end.
        eventually("an empty cgroup", || {
            fs::remove_dir(&self.dir)
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
                .ok()
        });
    }
}

/// A home with this cgroup as the only trusted one.
fn home_that_trusts(cgroup: &Path) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), trusting(cgroup)).expect("a file");
    home
}

fn trusting(cgroup: &Path) -> String {
    format!("trusted_cgroups = [\"{}\"]\n", cgroup.display())
}

#[test]
fn confined_callers_in_trusted_cgroups_are_let_in() {
    if !is_shown_or_skip("confined_callers_in_trusted_cgroups_are_let_in") {
        return;
    }
    const TEST: &str = "confined_callers_in_trusted_cgroups_are_let_in";
    let Some(trusted) = Cgroup::new(TEST, "mine") else { return };
    // Its name begins with that of the trusted one.
    let other = Cgroup::at(trusted.dir.with_extension("not"), trusted.path.with_extension("not")).expect("a cgroup");
    let inner = trusted.within("inner");
    let mut live = Live::initialized(&trusting(&trusted.path));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let socket = live.home.path().join("sessions/s/control.sock");
    let all: Vec<(PathBuf, String)> = calls(&request_id).into_iter().map(|call| (socket.clone(), call)).collect();
    for wrapper in [&other.wrapper()[..], &["setpriv", "--no-new-privs"]] {
        answers(wrapper, &live.home, &all).iter().for_each(|answer| is_refused(answer, "no_new_privs"));
    }
    assert_eq!(live.row(&request_id)["status"], "pending");
    for cgroup in [&trusted, &inner] {
        let answered = answers(&cgroup.wrapper(), &live.home, &all[..1]);
        assert!(answered[0].starts_with("HTTP/1.1 200 "), "{answered:?}");
    }
    let respond = [(socket, request(&format!("POST {}", respond_path(&request_id)), "", r#"{"decision":"accept"}"#))];
    let answered = answers(&inner.wrapper(), &live.home, &respond);
    assert!(answered[0].starts_with("HTTP/1.1 200 "), "{answered:?}");
    assert_eq!(live.row(&request_id)["status"], "resolved");
    live.kill();
}

#[test]
fn confined_clients_in_trusted_cgroups_join_a_hub() {
    if !is_shown_or_skip("confined_clients_in_trusted_cgroups_join_a_hub") {
        return;
    }
    const TEST: &str = "confined_clients_in_trusted_cgroups_join_a_hub";
    let Some(trusted) = Cgroup::new(TEST, "client") else { return };
    let hub = Hub::at(home_that_trusts(&trusted.path));
    let mut all = [hub.socket(), hub.default_socket()].map(|socket| (socket, handshake())).to_vec();
    all.push((hub.session().join("control.sock"), request("GET /healthz", "", "")));
    answers(&["setpriv", "--no-new-privs"], &hub.home, &all)
        .iter()
        .for_each(|answer| is_refused(answer, "no_new_privs"));
    let answered = answers(&trusted.wrapper(), &hub.home, &all);
    let begins: Vec<Option<&str>> = answered.iter().map(|answer| answer.get(..13)).collect();
    assert_eq!(begins, ["HTTP/1.1 101 ", "HTTP/1.1 101 ", "HTTP/1.1 200 "].map(Some), "{answered:?}");
}

#[test]
fn page_trusts_no_cgroup() {
    if !is_shown_or_skip("page_trusts_no_cgroup") {
        return;
    }
    let Some(trusted) = Cgroup::new("page_trusts_no_cgroup", "page") else { return };
    let home = home_that_trusts(&trusted.path);
    let _page = Page::start(&home, &[]);
    let call = [(home.path().join("web.sock"), request("POST /links", "", ""))];
    answers(&trusted.wrapper(), &home, &call).iter().for_each(|answer| is_refused(answer, "no_new_privs"));
}

#[test]
fn cgroup_that_contains_the_relay_is_not_trusted() {
    if !is_shown_or_skip("cgroup_that_contains_the_relay_is_not_trusted") {
        return;
    }
    const TEST: &str = "cgroup_that_contains_the_relay_is_not_trusted";
    let Some(inner) = Cgroup::new(TEST, "inner") else { return };
    let live = Live::configured(&trusting(inner.path.parent().expect("it is in ours")));
    let call = [(live.home.path().join("sessions/s/control.sock"), request("GET /healthz", "", ""))];
    for wrapper in [&inner.wrapper()[..], &["setpriv", "--no-new-privs"]] {
        answers(wrapper, &live.home, &call).iter().for_each(|answer| is_refused(answer, "no_new_privs"));
    }
    live.kill();
}

/// Where the sandbox of codex sees an empty folder that it may not enter.
fn hidden_dir() -> PathBuf {
    PathBuf::from(format!("/tmp/codex-daemon-{}", rustix::process::geteuid().as_raw()))
}

#[test]
fn sockets_are_links_into_the_hidden_folder() {
    let hub = Hub::new();
    let home = Home::new();
    let _page = Page::start(&home, &[]);
    let control = hub.session().join("control.sock");
    for socket in [control, hub.socket(), hub.default_socket(), home.path().join("web.sock")] {
        let target = fs::read_link(&socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        assert_eq!(target.parent(), Some(&*hidden_dir()));
        let mode = fs::metadata(&target).expect("a socket").mode();
        assert_eq!(mode & 0o777, 0o600, "{}", target.display());
    }
}

#[test]
fn killed_hub_leaves_no_socket_for_the_next() {
    let mut hub = Hub::new();
    let sockets = [hub.session().join("control.sock"), hub.socket(), hub.default_socket()];
    let targets = |sockets: &[PathBuf]| sockets.iter().map(|socket| fs::read_link(socket).unwrap()).collect::<Vec<_>>();
    let before = targets(&sockets);
    hub.kill();
    hub.start();
    assert!(before.iter().all(|target| !target.exists()), "{before:?}");
    assert!(targets(&sockets).iter().all(|target| target.exists()));
}

/// The socket's folder may not be entered. If the link to it is below `/dev`, the sandbox does not have it either.
fn is_out_of_reach(answer: &str) -> bool {
    ["PermissionError", "FileNotFoundError"].contains(&answer)
}

/// Tries everything that a command of the model could try with the sockets of a session. `door` is another path to the control
/// socket, outside of the folder that the sandbox hides.
fn attack(session: &Path, door: &Path, request_id: &str) -> Vec<(PathBuf, String)> {
    let link = session.join("control.sock");
    let socket = fs::read_link(&link).expect("a link");
    let at = |path: &Path| calls(request_id).into_iter().map(|call| (path.to_owned(), call)).collect::<Vec<_>>();
    [at(&link), at(&socket), at(door)].concat()
}

#[test]
fn e2e_command_in_the_sandbox_decides_nothing() {
    if !is_shown_or_skip("e2e_command_in_the_sandbox_decides_nothing") {
        return;
    }
    const TEST: &str = "e2e_command_in_the_sandbox_decides_nothing";
    let release = Release::under_test();
    if installed_or_skip(TEST).is_none() {
        return;
    }
    let caller = "python3 caller.py calls.json > answers.json";
    let tool = format!("{SHIM} respond latest accept --session s > tool.txt 2>&1");
    let attacker = format!("{caller}; {tool}; echo done > done.txt");
    let script =
        vec![vec![release.command_to_be_approved("touch ran.txt")], vec![release.command(&attacker)], says(), says()];
    let model = Model::start(script);
    let lab = Lab::with(&model, WITH_NETWORK);
    let Some(mut real) = Real::in_lab(TEST, "", lab, model) else { return };
    let (asked, row) = real.asked_by_turn(COMMAND);
    let request_id = text(&row["request_id"]);

    let session = real.home.path().join("sessions/s");
    let beside = tempfile::tempdir_in("/tmp").expect("BUG: a temporary folder");
    let door = beside.path().join("door.sock");
    let socket = fs::read_link(session.join("control.sock")).expect("a link");
    fs::hard_link(&socket, &door).expect("the folders are on one file system");
    let cwd = real.lab.cwd();
    fs::write(cwd.join("caller.py"), CALLER).expect("a file");
    fs::write(cwd.join("calls.json"), json!(attack(&session, &door, &request_id)).to_string()).expect("a file");
    let other = start_thread(&mut real.peer, &real.lab, "workspace-write");
    start_turn(&mut real.peer, &other, "go on");
    eventually("the end of the command", || fs::read_to_string(cwd.join("done.txt")).ok());

    let answers: Vec<String> =
        serde_json::from_slice(&fs::read(cwd.join("answers.json")).expect("a file")).expect("a list");
    let each = answers.len() / 3;
    let (hidden, found) = answers.split_at(if release.has(Ability::HiddenSockets) { 2 * each } else { 0 });
    assert!(hidden.iter().all(|answer| is_out_of_reach(answer)), "{hidden:#?}");
    // Sandboxes of some releases hide a part of the others as well.
    found.iter().filter(|answer| !is_out_of_reach(answer)).for_each(|answer| is_refused(answer, "no_new_privs"));
    let at_door = &answers[2 * each..];
    assert!(!at_door.is_empty() && at_door.iter().any(|answer| !is_out_of_reach(answer)), "{at_door:#?}");
    let said = fs::read_to_string(cwd.join("tool.txt")).expect("a file");
    assert!(said.contains("codex-shim"), "{said}");

    let row = real.row(&row);
    assert_eq!((&row["status"], &row["resolution_source"]), (&json!("pending"), &json!(null)), "{row}");
    assert!(!cwd.join("ran.txt").exists());
    real.peer.answer(&asked, json!({"decision": "decline"}));
    let row = eventually("the answer", || Some(real.row(&row)).filter(|row| row["status"] == "resolved"));
    assert_eq!(row["resolution_source"], "client", "{row}");
    let events = real.get("/sessions/self/codex-events?limit=500")["events"].to_string();
    assert!(events.contains("sandboxed_peer"), "{events}");
    real.end();
}

/// Tries what a command of the model could try with the sockets of a hub: by their links, by the sockets themselves, and by other
/// paths to them in `doors`. The calls at the doors are the last ones; their number comes with them.
fn attack_on_hub(bench: &Bench, doors: &Path, request_id: &str) -> (Vec<(PathBuf, String)>, usize) {
    let client = || vec![handshake(), request("GET /", "", "")];
    let links = [
        (bench.session().join("control.sock"), calls(request_id)),
        (bench.session().join("codex.sock"), client()),
        (bench.default_socket(), client()),
    ];
    let (mut known, mut at_doors) = (Vec::new(), Vec::new());
    for (number, (link, texts)) in links.into_iter().enumerate() {
        let socket = fs::read_link(&link).unwrap_or_else(|error| panic!("{}: {error}", link.display()));
        let door = doors.join(format!("{number}.sock"));
        fs::hard_link(&socket, &door).expect("the folders are on one file system");
        known.extend([link, socket].iter().flat_map(|path| texts.iter().map(|text| (path.clone(), text.clone()))));
        at_doors.extend(texts.into_iter().map(|text| (door.clone(), text)));
    }
    // Codex refuses nobody at its own socket.
    let server = bench.session().join("server.sock");
    let socket = fs::canonicalize(&server).expect("the server listens");
    known.extend([server, socket].map(|path| (path, handshake())));
    let count = at_doors.len();
    (known.into_iter().chain(at_doors).collect(), count)
}

#[test]
fn e2e_command_in_the_sandbox_decides_nothing_at_a_hub() {
    if !is_shown_or_skip("e2e_command_in_the_sandbox_decides_nothing_at_a_hub") {
        return;
    }
    const TEST: &str = "e2e_command_in_the_sandbox_decides_nothing_at_a_hub";
    let release = Release::under_test();
    let tools =
        ["respond latest accept", "hub status", "sessions"].map(|tool| format!("{SHIM} {tool} >> tool.txt 2>&1"));
    let attacker = format!("python3 caller.py calls.json > answers.json; {}; echo done > done.txt", tools.join("; "));
    let script =
        vec![vec![release.command_to_be_approved("touch ran.txt")], vec![release.command(&attacker)], says(), says()];
    let Some(bench) = Bench::start_with(TEST, &[Ability::HiddenSockets], WITH_NETWORK, script) else { return };
    let mut editor = bench.editor();
    let thread = start_thread(&mut editor, &bench.lab, "read-only");
    start_turn(&mut editor, &thread, "go on");
    let asked = editor.wait_for_method(COMMAND);
    let row = eventually("the row", || bench.rows().first().cloned());

    let doors = tempfile::tempdir_in("/tmp").expect("BUG: a temporary folder");
    let (attack, at_doors) = attack_on_hub(&bench, doors.path(), &text(&row["request_id"]));
    let cwd = bench.lab.cwd();
    fs::write(cwd.join("caller.py"), CALLER).expect("a file");
    fs::write(cwd.join("calls.json"), json!(attack).to_string()).expect("a file");
    let other = start_thread(&mut editor, &bench.lab, "workspace-write");
    start_turn(&mut editor, &other, "go on");
    eventually("the end of the command", || fs::read_to_string(cwd.join("done.txt")).ok());

    let answers: Vec<String> =
        serde_json::from_slice(&fs::read(cwd.join("answers.json")).expect("a file")).expect("a list");
    let (hidden, found) = answers.split_at(answers.len() - at_doors);
    assert!(hidden.iter().all(|answer| is_out_of_reach(answer)), "{hidden:#?}");
    assert!(!found.is_empty() && answers.len() == attack.len());
    found.iter().for_each(|answer| is_refused(answer, "no_new_privs"));
    assert!(!fs::read_to_string(cwd.join("tool.txt")).expect("a file").is_empty());

    let rows = bench.rows();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((&rows[0]["status"], &rows[0]["resolution_source"]), (&json!("pending"), &json!(null)), "{rows:#?}");
    assert!(!cwd.join("ran.txt").exists());
    editor.answer(&asked, json!({"decision": "decline"}));
    let row = &bench.confirmed(1)[0];
    assert_eq!((&row["status"], &row["resolution_source"]), (&json!("resolved"), &json!("client")), "{row}");
    let events = bench.document(&["events", "-n", "500"])["events"].to_string();
    assert!(events.contains("sandboxed_peer"), "{events}");
}

/// A page that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn e2e_command_in_the_sandbox_signs_in_nowhere() {
    if !is_shown_or_skip("e2e_command_in_the_sandbox_signs_in_nowhere") {
        return;
    }
    const TEST: &str = "e2e_command_in_the_sandbox_signs_in_nowhere";
    let release = Release::under_test();
    if installed_or_skip(TEST).is_none() || release.lacks(TEST, Ability::HiddenSockets) {
        return;
    }
    let (home, caller_of_page) = (Home::new(), "python3 caller.py calls.json > answers.json");
    let bin = home.beside().join("bin");
    fs::create_dir(&bin).expect("a folder");
    let seen = home.beside().join("seen");
    let opener = format!("#!/bin/sh\necho \"$@\" > {0}.new; mv {0}.new {0}\n", seen.display());
    crate::support::shim::put_program(&bin.join("xdg-open"), opener.as_bytes());
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let page = Served(home.shim(&["web", "--json", "--open"]).env("PATH", path).spawn().expect("the shim starts"));
    let file = eventually("the opener", || fs::read_to_string(&seen).ok());
    let file = Path::new(file.trim()).to_owned();
    assert!(fs::read_to_string(&file).is_ok_and(|text| text.contains("url=")));

    let socket = home.path().join("web.sock");
    let attacker = format!(
        "{caller_of_page}; cat '{}' > file.txt 2>&1; {SHIM} web --new-link > tool.txt 2>&1; \
         echo done > done.txt",
        file.display()
    );
    let model = Model::start(vec![vec![release.command(&attacker)], vec![Item::Text(vec!["Done."])]]);
    let lab = Lab::with(&model, WITH_NETWORK);
    let Some(mut real) = Real::in_lab(TEST, "", lab, model) else { return };
    let cwd = real.lab.cwd();
    fs::write(cwd.join("caller.py"), CALLER).expect("a file");
    let target = fs::read_link(&socket).expect("a link");
    let calls = [socket, target].map(|path| (path, request("POST /links", "", "")));
    fs::write(cwd.join("calls.json"), json!(calls).to_string()).expect("a file");
    let thread = start_thread(&mut real.peer, &real.lab, "workspace-write");
    start_turn(&mut real.peer, &thread, "go on");
    eventually("the end of the command", || fs::read_to_string(cwd.join("done.txt")).ok());
    let answers = fs::read(cwd.join("answers.json")).expect("a file");
    let answers: Vec<String> = serde_json::from_slice(&answers).expect("a list");
    assert!(answers.len() == 2 && answers.iter().all(|answer| is_out_of_reach(answer)), "{answers:?}");
    for name in ["file.txt", "tool.txt"] {
        let said = fs::read_to_string(cwd.join(name)).expect("a file");
        assert!(!said.contains("/#"), "{name}: {said}");
    }
    real.end();
    drop(page);
}
