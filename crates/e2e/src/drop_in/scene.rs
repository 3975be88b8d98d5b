//! Two hosts with the same addresses: Debian's coturn in one, this server in the other.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::configuration::{Configuration, DIRECTORY, replaced};
use super::observation::Observation;
use crate::certificates::ECDSA;
use crate::{Certificates, Host, Lab, Running, binary};

/// Time in which a server without UDP has come up.
const UP_AFTER: Duration = Duration::from_secs(3);

/// Both hosts.
#[derive(Debug)]
pub struct Scene {
    coturn: Side,
    ours: Side,
}

#[derive(Debug)]
struct Side {
    lab: Lab,
    certificates: Certificates,
    directory: PathBuf,
    is_ours: bool,
}

impl Scene {
    /// Builds the hosts.
    ///
    /// # Errors
    /// A reason to skip the test.
    pub fn new() -> Result<Self, String> {
        Ok(Self { coturn: Side::new(false)?, ours: Side::new(true)? })
    }

    /// Starts both servers with a configuration, and asks each. Returns coturn's answers and ours.
    #[must_use]
    pub fn observe(&self, configuration: &Configuration) -> [Observation; 2] {
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| self.coturn.observe(configuration));
            let ours = self.ours.observe(configuration);
            let theirs = theirs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            [theirs, ours]
        })
    }
}

impl Side {
    fn new(is_ours: bool) -> Result<Self, String> {
        let lab = Lab::new()?;
        let directory =
            std::env::temp_dir().join(format!("{}-drop-in", lab.namespace(Host::Server)));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let hosts = format!("127.0.0.1 localhost\n{} relay.lab\n", lab.v4.listen);
        put(&directory.join("hosts"), hosts.as_bytes());
        let certificates = Certificates::new(&lab);
        certificates.make("turn", "turn.example.org", ECDSA, "30");
        Ok(Self { lab, certificates, directory, is_ours })
    }

    fn observe(&self, configuration: &Configuration) -> Observation {
        let files = self.directory.join("files");
        drop(fs::remove_dir_all(&files));
        fs::create_dir_all(&files).unwrap_or_else(|error| panic!("{error}"));
        for (made, name) in [("turn.pem", "chain.pem"), ("turn.key", "key.pem")] {
            let copied = fs::copy(self.certificates.path(made), files.join(name));
            copied.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let text = replaced(&configuration.text, DIRECTORY, files.to_str().unwrap_or_default());
        put(&files.join("turnserver.conf"), &text);
        let mut server = self.start(&files);
        let at = SocketAddr::new(self.lab.v4.listen, configuration.port());
        let mut seen = if self.comes_up(&mut server, at) {
            let socket = || self.lab.socket(Host::Client, (self.lab.v4.client, 0));
            Observation::of(at, &configuration.credentials, &socket)
        } else {
            Observation::default()
        };
        // An ended server may have lines that are not read yet.
        std::thread::sleep(Duration::from_millis(50));
        seen.output = server.output();
        seen
    }

    /// Starts the server in a place where a name has the server's address.
    fn start(&self, files: &Path) -> Running {
        let program = if self.is_ours {
            let link = files.join("turnserver");
            std::os::unix::fs::symlink(binary(), &link).unwrap_or_else(|error| panic!("{error}"));
            link
        } else {
            PathBuf::from("turnserver")
        };
        let mut command = self.lab.command(Host::Server, "sh");
        command
            .arg("-c")
            .arg("mount --bind \"$1\" /etc/hosts && cd \"$2\" && shift 2 && exec \"$@\"")
            .arg("sh")
            .arg(self.directory.join("hosts"))
            .arg(files)
            .arg(program)
            .args(["--pidfile", "pid", "-c"])
            .arg(files.join("turnserver.conf"))
            .env("TURNPIKE_DATA", files.join("data"));
        Running::start(&mut command)
    }

    /// Waits until a server answers, or has ended. One that runs without UDP counts as up.
    fn comes_up(&self, server: &mut Running, at: SocketAddr) -> bool {
        let started = Instant::now();
        let socket = self.lab.socket(Host::Client, (self.lab.v4.client, 0));
        let step = Some(Duration::from_millis(20));
        socket.set_read_timeout(step).unwrap_or_else(|error| panic!("{error}"));
        while started.elapsed() < UP_AFTER {
            if server.has_ended() {
                return false;
            }
            if answers(&socket, at) {
                return true;
            }
        }
        true
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// A Binding request (RFC 8489 §5) has an answer.
fn answers(socket: &UdpSocket, at: SocketAddr) -> bool {
    let mut request = [0; 20];
    request[1] = 1;
    request[4..8].copy_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
    drop(socket.send_to(&request, at));
    let mut answer = [0; 512];
    socket.recv(&mut answer).is_ok_and(|len| len >= 20)
}

fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
