//! A real `nats-server` with the configuration of docs/fleet.md, in a temporary folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dispositions::with_default_signals;
use super::shim::Home;
use super::{PATIENCE, eventually};

/// The users of `fixtures/fleet/accounts.conf`, by the names of their keys there.
pub const USERS: [&str; 5] = ["admin", "build_7", "build_8", "ann", "ben"];

/// The oldest minor release of `nats-server` 2 that answers with many messages to one direct get.
const MINOR_MIN: u32 = 11;

/// The server that `make nats` installs; otherwise prints that a test is skipped.
pub fn installed_or_skip(test: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nats/nats-server");
    let version = Command::new(&path).arg("-v").output().ok().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= MINOR_MIN) {
        return Some(path);
    }
    // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: {test}: there is no nats-server from 2.{MINOR_MIN} on in target/nats ({version}); `make nats` installs it"
    );
    None
}

/// A port on which nobody listens. It is outside the range from which systems take the ports of connections, so that it stays free
/// while a server is down.
pub fn free_port() -> u16 {
    eventually("a free port", || {
        let bytes = uuid::Uuid::now_v7().into_bytes();
        let port = 10_000 + u16::from_be_bytes([bytes[14], bytes[15]]) % 20_000;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    })
}

/// Keys of the users, and `keys.conf` in the folder of a server.
pub fn keys(folder: &Path, users: &[&str]) {
    let mut lines = String::new();
    for user in users {
        let pair = nkeys::KeyPair::new_user();
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join(format!("{user}.nk")))
            .expect("a file");
        writeln!(file, "{}", pair.seed().expect("it has a seed")).expect("it is written");
        lines.push_str(&format!("KEY_{user}: {}\n", pair.public_key()));
    }
    fs::write(folder.join("keys.conf"), lines).expect("a file");
}

/// A running server.
pub struct Server {
    program: PathBuf,
    folder: PathBuf,
    config: &'static str,
    args: Vec<String>,
    pub port: u16,
    child: Option<Child>,
}

impl Server {
    fn start(program: &Path, folder: &Path, config: &'static str, args: Vec<String>, port: u16) -> Server {
        let mut server =
            Server { program: program.to_owned(), folder: folder.to_owned(), config, args, port, child: None };
        server.start_again();
        server
    }

    /// Starts it after [`Server::kill`], on the same port and with the same data.
    pub fn start_again(&mut self) {
        let log = fs::File::options().append(true).create(true).open(self.folder.join("log")).expect("a file");
        let mut command = Command::new(&self.program);
        with_default_signals(&mut command)
            .args(["-c", self.config, "-a", "127.0.0.1", "-p", &self.port.to_string()])
            .args(&self.args)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().expect("nats-server runs");
        eventually("nats-server", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                panic!("nats-server has ended with {status}: {log}");
            }
            let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            let mut line = String::new();
            BufReader::new(stream.take(1 << 16)).read_line(&mut line).ok()?;
            line.starts_with("INFO ").then_some(())
        });
        self.child = Some(child);
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it was killed");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `fixtures/fleet/single.conf`.
pub struct Nats {
    folder: tempfile::TempDir,
    pub server: Server,
}

impl Nats {
    /// Starts a server; `None`, with a note on stderr, if none is installed.
    pub fn start(test: &str) -> Option<Nats> {
        Nats::start_with(test, &USERS, |accounts| accounts)
    }

    /// The same with other users, which `edit` puts into the configuration of the accounts.
    pub fn start_with(test: &str, users: &[&str], edit: impl FnOnce(String) -> String) -> Option<Nats> {
        let program = installed_or_skip(test)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        keys(folder.path(), users);
        // On a busy machine a client may take longer than the 2 s that a server allows it by default.
        copy_fixture("single.conf", folder.path(), |text| text + "\nauthorization { timeout: 60 }\n");
        copy_fixture("accounts.conf", folder.path(), edit);
        let server = Server::start(&program, folder.path(), "single.conf", Vec::new(), free_port());
        Some(Nats { folder, server })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port)
    }

    /// The file with the seed of a user.
    pub fn seed(&self, user: &str) -> PathBuf {
        self.folder.path().join(format!("{user}.nk"))
    }

    pub fn admin(&self) -> Admin {
        Admin { url: self.url(), seed: self.seed("admin"), ca: None }
    }

    /// Writes the settings for a user into a home. A host has a name, a console a user.
    pub fn configures(&self, home: &Home, key: &str, more: &str) {
        configure(home, &self.url(), &self.seed(key), more);
    }
}

/// Three servers with `fixtures/fleet/cluster.conf`: TLS for clients and between the servers.
pub struct Cluster {
    folder: tempfile::TempDir,
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts the servers; `None`, with a note on stderr, if there is no `nats-server` or no `openssl`.
    pub fn start(test: &str) -> Option<Cluster> {
        let program = installed_or_skip(test)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        if !certificates(folder.path()) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no openssl, which makes the certificates");
            return None;
        }
        keys(folder.path(), &USERS);
        let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let list = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect::<Vec<_>>().join(", ");
        let nodes = routes.iter().enumerate().map(|(index, route)| {
            let node = folder.path().join(format!("n{index}"));
            fs::create_dir(&node).expect("a folder");
            for file in ["keys.conf", "server.pem", "server.key", "ca.pem"] {
                fs::copy(folder.path().join(file), node.join(file)).expect("a file");
            }
            copy_fixture("accounts.conf", &node, |text| text);
            copy_fixture("cluster.conf", &node, |text| {
                let text = text.replace("server_name: n1", &format!("server_name: n{}", index + 1));
                let text = text.replace("0.0.0.0:6222", &format!("127.0.0.1:{route}"));
                let (start, rest) = text.split_once("routes: [").expect("it has routes");
                let (_, end) = rest.split_once(']').expect("the list ends");
                format!("{start}routes: [ {list} ]{end}")
            });
            // Started together: none of them is ready for JetStream alone.
            Server::start(&program, &node, "cluster.conf", Vec::new(), free_port())
        });
        let nodes = nodes.collect();
        Some(Cluster { folder, nodes })
    }

    /// The address of a node.
    pub fn url(&self, node: usize) -> String {
        format!("tls://127.0.0.1:{}", self.nodes[node].port)
    }

    pub fn seed(&self, user: &str) -> PathBuf {
        self.folder.path().join(format!("{user}.nk"))
    }

    /// The administrator at the first node.
    pub fn admin(&self) -> Admin {
        Admin { url: self.url(0), seed: self.seed("admin"), ca: Some(self.ca()) }
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Waits until each stream has its copies again, as the administrator sees them.
    pub fn waits_for_copies(&self) {
        let seed = fs::read_to_string(self.seed("admin")).expect("a file").trim().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options =
            || async_nats::ConnectOptions::with_nkey(seed.clone()).add_root_certificates(self.ca()).require_tls(true);
        eventually("every copy", || {
            runtime.block_on(async {
                let admin = options().connect(self.url(0)).await.ok()?;
                let info = admin.request("$JS.API.STREAM.INFO.CSHIM_EV", "".into()).await.ok()?;
                let info: serde_json::Value = serde_json::from_slice(&info.payload).ok()?;
                let copies = info["cluster"]["replicas"].as_array()?;
                let is_current = |copy: &serde_json::Value| copy["current"] == true && copy["offline"] != true;
                (copies.len() == 2 && copies.iter().all(is_current)).then_some(())
            })
        });
    }

    /// As [`Nats::configures`]. The home knows all nodes.
    pub fn configures(&self, home: &Home, key: &str, more: &str) {
        let urls = (0..self.nodes.len()).map(|node| self.url(node)).collect::<Vec<_>>().join(",");
        configure(home, &urls, &self.seed(key), &format!("ca = {:?}\n{more}", self.ca()));
    }
}

pub fn configure(home: &Home, url: &str, seed: &Path, more: &str) {
    fs::create_dir_all(home.path()).expect("a folder");
    let config = format!("[fleet]\nurl = \"{url}\"\ncreds = {seed:?}\n{more}");
    fs::write(home.path().join("config.toml"), config).expect("a file");
}

fn copy_fixture(name: &str, folder: &Path, edit: impl FnOnce(String) -> String) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fleet").join(name);
    let text = fs::read_to_string(fixture).expect("a fixture");
    fs::write(folder.join(name), edit(text)).expect("a file");
}

/// An authority and the certificate of a server, with the commands of docs/fleet.md.
fn certificates(folder: &Path) -> bool {
    const SCRIPT: &str = r#"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=fleet" -keyout ca.key -out ca.pem &&
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=nats" -keyout server.key -out server.csr &&
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >server.ext &&
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile server.ext -out server.pem"#;
    Command::new("sh")
        .args(["-c", SCRIPT])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The administrator of a server, by a connection of its own.
pub struct Admin {
    url: String,
    seed: PathBuf,
    ca: Option<PathBuf>,
}

impl Admin {
    /// Does something with a connection; `None` if the server is not reached.
    pub fn with<T>(&self, work: impl AsyncFnOnce(async_nats::Client) -> Option<T>) -> Option<T> {
        let seed = fs::read_to_string(&self.seed).expect("a file").trim().to_owned();
        let mut options = async_nats::ConnectOptions::with_nkey(seed).request_timeout(Some(PATIENCE));
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { work(options.connect(&self.url).await.ok()?).await })
    }

    /// A call of the API of JetStream.
    pub fn api(&self, call: &str, body: &serde_json::Value) -> serde_json::Value {
        let subject = format!("$JS.API.{call}");
        let answer = self.with(async |client| Some(client.request(subject, body.to_string().into()).await));
        let answer = answer.expect("the server is reached").expect("it answers");
        serde_json::from_slice(&answer.payload).expect("JSON")
    }

    /// All events in the stream itself, where no tool has dropped one that comes twice.
    pub fn events(&self) -> Option<Vec<serde_json::Value>> {
        self.with(async |client| {
            let stream = async_nats::jetstream::new(client).get_stream("CSHIM_EV").await.ok()?;
            let state = stream.get_info().await.ok()?.state;
            let mut all = Vec::new();
            for number in state.first_sequence..=state.last_sequence {
                let message = stream.get_raw_message(number).await.ok()?;
                let event: serde_json::Value = serde_json::from_slice(&message.payload).expect("JSON");
                let subject = format!("cshim.ev.{}.{}", event["host"].as_str()?, event["session"].as_str()?);
                assert_eq!(message.subject.as_str(), subject);
                all.push(event);
            }
            Some(all)
        })
    }
}

/// A TCP connection between an agent and a server that a test can cut.
pub struct Link {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    is_cut: AtomicBool,
    /// Nothing passes, and no connection ends.
    is_stalled: AtomicBool,
    /// The same for what the agents send.
    is_muted: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// All that the agents have sent.
    sent: Mutex<Vec<u8>>,
    refused: AtomicUsize,
    accepted: AtomicUsize,
}

impl Link {
    /// Listens, and passes all bytes on to a port.
    pub fn to(port: u16) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let own = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            is_cut: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            is_muted: AtomicBool::new(false),
            streams: Mutex::default(),
            sent: Mutex::default(),
            refused: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                if accepting.is_cut.load(Ordering::SeqCst) {
                    accepting.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                accepting.accepted.fetch_add(1, Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let mut streams = accepting.streams.lock().expect("no thread panics with it");
                // It may have been cut meanwhile.
                if accepting.is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to, is_sent) in [(&near, &far, true), (&far, &near, false)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let shared = Arc::clone(&accepting);
                    std::thread::spawn(move || pass(from, to, &shared, is_sent));
                }
                streams.extend([near, far]);
            }
        });
        Link { port: own, shared }
    }

    /// Ends all connections and accepts no other.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for stream in self.shared.streams.lock().expect("no thread panics with it").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes nothing on any more. No connection ends, and new ones are accepted: only silence tells the ends that the link is cut.
    pub fn stall(&self) {
        self.shared.is_stalled.store(true, Ordering::SeqCst);
    }

    /// Passes nothing on that the agents send. They receive everything.
    pub fn mute(&self) {
        self.shared.is_muted.store(true, Ordering::SeqCst);
    }

    /// Ends [`Link::cut`], [`Link::stall`] and [`Link::mute`].
    pub fn mend(&self) {
        self.shared.is_muted.store(false, Ordering::SeqCst);
        self.shared.is_cut.store(false, Ordering::SeqCst);
        self.shared.is_stalled.store(false, Ordering::SeqCst);
    }

    /// How many connections were made since the beginning.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// All bytes that came to the port.
    pub fn sent(&self) -> Vec<u8> {
        self.shared.sent.lock().expect("no thread panics with it").clone()
    }

    /// How many connections were tried while it was cut.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, is_sent: bool) {
    let mut chunk = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let is_muted = || is_sent && shared.is_muted.load(Ordering::SeqCst);
        while shared.is_stalled.load(Ordering::SeqCst) || is_muted() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        if is_sent {
            shared.sent.lock().expect("no thread panics with it").extend_from_slice(&chunk[..count]);
        }
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
