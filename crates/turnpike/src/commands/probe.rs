//! `turnpike probe URI`: tests a STUN or TURN server from this host, step by step, as one of its
//! clients.

mod dtls;
mod limits;
mod link;
mod nat;
mod relay;
mod report;
mod session;
mod tls;

use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;

use crate::cli;
use crate::failure::{Failure, OrFail as _, Result};
use crate::uri::{Carrier, Scheme, Uri};
use link::Link;
use relay::Seen;
use report::{Report, Step};
use session::Session;

/// Validity of a time-limited credential made from `--secret`: longer than any probe.
const CREDENTIAL_SECONDS: u64 = 600;

/// Credentials of the probe.
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// Ends with 0 when all works, 1 when it works and something is to be looked at, 2 when it does not
/// work, or nothing was tried.
pub(crate) fn run(args: &cli::Probe) -> Result<ExitCode> {
    let uri: Uri = args.uri.parse().map_err(|error: String| Failure::usage(anyhow!(error)))?;
    let login = login(args)?;
    let mut report = Report::new(args.uri.clone());
    // A step that fails ends the probe; it is in the report.
    let _ended = probe(&uri, login.as_ref(), args, &mut report);
    report.print(args.output.json)?;
    Ok(report.exit_code())
}

/// The credentials that the command line gives.
fn login(args: &cli::Probe) -> Result<Option<Login>> {
    let secret = match (&args.secret, &args.secret_file) {
        (Some(secret), _) => Some(secret.clone()),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).or_fail("cannot read the secret")?;
            Some(text.trim().to_owned())
        }
        (None, None) => None,
    };
    if let Some(secret) = secret {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let user = args.username.as_deref().unwrap_or("probe");
        let username = format!("{}:{user}", now + CREDENTIAL_SECONDS);
        let password = stun_wire::time_limited_password(secret.as_bytes(), &username);
        return Ok(Some(Login { username, password }));
    }
    let password = if args.password_stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).or_fail("cannot read the password")?;
        Some(text.trim_end_matches(['\r', '\n']).to_owned())
    } else {
        args.password.clone()
    };
    match (&args.username, password) {
        (Some(username), Some(password)) => {
            Ok(Some(Login { username: username.clone(), password }))
        }
        (None, None) => Ok(None),
        _ => Err(Failure::usage(anyhow!("a name and a password belong together"))
            .hint("give --username with --password, or --secret")),
    }
}

/// Goes step by step; `None` when one failed that the next ones need.
fn probe(uri: &Uri, login: Option<&Login>, args: &cli::Probe, report: &mut Report) -> Option<()> {
    let server = resolve(uri, report)?;
    let link = connect(uri, server, args, report)?;
    let local = link.local();
    let mut session = Session::new(link, server, login);
    let mapped = bind(&mut session, local, report)?;
    match uri.scheme {
        Scheme::Stun if uri.carrier == Carrier::Udp && !uri.secure => nat::look(server, report),
        Scheme::Stun => {}
        Scheme::Turn if login.is_none() => report.add(
            Step::skipped("allocate", "there are no credentials")
                .advise("give --username and --password, or --secret, to have it tried"),
        ),
        Scheme::Turn => relay::look(&mut session, uri, Seen { server, mapped }, report)?,
    }
    Some(())
}

fn resolve(uri: &Uri, report: &mut Report) -> Option<SocketAddr> {
    const NAME: &str = "resolve";
    match (uri.host.as_str(), uri.port).to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(server)) => {
            report.add(Step::ok(NAME, format!("{server}")));
            Some(server)
        }
        Ok(None) => {
            report.add(Step::failed(NAME, format!("{} has no address", uri.host)));
            None
        }
        Err(error) => {
            let step = Step::failed(NAME, format!("{}: {error}", uri.host));
            report.add(step.advise("look for the name in DNS: A and AAAA records"));
            None
        }
    }
}

fn connect(uri: &Uri, server: SocketAddr, args: &cli::Probe, report: &mut Report) -> Option<Link> {
    const NAME: &str = "connect";
    let link = match uri.carrier {
        Carrier::Udp => Link::udp(server),
        Carrier::Tcp => Link::tcp(server),
    };
    let link = match link {
        Ok(link) => link,
        Err(error) => {
            report.add(Step::failed(NAME, error.to_string()).advise(uri.unreachable()));
            return None;
        }
    };
    report.add(Step::ok(NAME, format!("{} from {}", uri.carrier.word(), link.local())));
    let ca = args.ca.as_deref();
    match link {
        Link::Udp(socket) if uri.secure => {
            dtls::shake_hands(socket, uri, ca, report).map(|session| Link::Dtls(Box::new(session)))
        }
        Link::Tcp(socket, _) if uri.secure => tls::shake_hands(socket, uri, ca, report)
            .map(|stream| Link::Tls(Box::new(stream), Vec::new())),
        Link::Udp(_) | Link::Tcp(..) | Link::Tls(..) | Link::Dtls(_) => Some(link),
    }
}

/// A Binding: the first response of the server.
fn bind(session: &mut Session, local: SocketAddr, report: &mut Report) -> Option<SocketAddr> {
    const NAME: &str = "binding";
    match session.binding() {
        Ok((mapped, took)) => {
            let behind = if mapped == local { "no NAT" } else { "behind a NAT" };
            let what = format!("seen as {mapped} ({behind})");
            report.add(Step::ok(NAME, what).took(took));
            Some(mapped)
        }
        Err(why) => {
            let advice = "no STUN server answers: see whether the server runs, and whether a firewall lets \
                          packets of this port in and out";
            report.add(Step::failed(NAME, why).advise(advice));
            None
        }
    }
}
