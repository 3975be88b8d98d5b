//! `turnpike probe URI`: tests a STUN or TURN server from this host in several steps, as a client.

mod alternatives;
mod credential;
mod dtls;
mod limits;
mod link;
mod nat;
mod own_host;
mod relay;
mod report;
mod session;
mod tls;
mod trust;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;

use anyhow::anyhow;

use crate::cli::{self, PathOptions};
use crate::failure::{Failure, Result};
use crate::uri::{Carrier, Scheme, Uri};
use credential::Login;
use link::Link;
use own_host::OwnHost;
use relay::Seen;
use report::{Report, Step};
use session::Session;
use trust::Trust;

/// Probes a server. Exit code 0 means success, and 1 a working server that needs attention. Exit
/// code 2 means that the server does not work or was not tried.
pub(crate) fn run(paths: &PathOptions, args: &cli::Probe) -> Result<ExitCode> {
    let uri: Uri = args.uri.parse().map_err(|error: String| Failure::usage(anyhow!(error)))?;
    let login = Login::of(args)?;
    let name = args.server_name.as_deref().unwrap_or(&uri.host);
    let trust = Trust { name, ca: args.ca.as_deref(), insecure: args.insecure };
    let here = OwnHost::look(paths);
    let mut report = Report::new(args.uri.clone());
    // A failed step stops the probe, and the report contains the failure.
    let _ended = probe(&uri, login.as_ref(), (&trust, &here), &mut report);
    report.print(args.output.json)?;
    Ok(report.exit_code())
}

/// Runs all steps. Returns `None` if a step failed that later steps need.
fn probe(
    uri: &Uri,
    login: Option<&Login>,
    (trust, here): (&Trust<'_>, &OwnHost),
    report: &mut Report,
) -> Option<()> {
    let server = resolve(uri, here, report)?;
    let link = connect(uri, server, trust, report)?;
    let local = link.local();
    let is_udp = matches!(link, Link::Udp(_));
    let mut session = Session::new(link, server, login);
    let Some(mapped) = bind(&mut session, local, report) else {
        if is_udp {
            alternatives::look(uri, server, trust, report);
        }
        return None;
    };
    match uri.scheme {
        Scheme::Stun if uri.carrier == Carrier::Udp && !uri.secure => nat::look(server, report),
        Scheme::Stun => {}
        Scheme::Turn => match login {
            None => report.add(
                Step::untested("allocate", "there are no credentials")
                    .advise("give --username and --password, or --secret, to have it tried"),
            ),
            Some(login) => {
                let seen = Seen { server, mapped, here };
                if let Err(refused) = relay::look(&mut session, uri, seen, report) {
                    let works = |login: &Login| is_allocated(uri, server, trust, login);
                    let better = refused.is_unauthorized().then(|| login.diagnose(works)).flatten();
                    report.add(refused.step(better));
                    return None;
                }
            }
        },
    }
    Some(())
}

/// Returns true if the server allocates for these credentials, on a separate connection.
fn is_allocated(uri: &Uri, server: SocketAddr, trust: &Trust<'_>, login: &Login) -> bool {
    let mut unread = Report::new(String::new());
    let Some(link) = connect(uri, server, trust, &mut unread) else { return false };
    let mut session = Session::new(link, server, Some(login));
    let allocated = session.allocate().is_ok();
    session.release();
    allocated
}

fn resolve(uri: &Uri, here: &OwnHost, report: &mut Report) -> Option<SocketAddr> {
    const NAME: &str = "resolve";
    match (uri.host.as_str(), uri.port).to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(server)) => {
            let local = SocketAddr::new(here.local(server.ip()), server.port());
            let what = match (local == server, here.has(server.ip())) {
                (false, _) => format!("{server}, which is this host, here {local}"),
                (true, true) => format!("{server}, which is this host"),
                (true, false) => server.to_string(),
            };
            report.add(Step::ok(NAME, what));
            Some(local)
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

fn connect(uri: &Uri, server: SocketAddr, trust: &Trust<'_>, report: &mut Report) -> Option<Link> {
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
    match link {
        Link::Udp(socket) if uri.secure => dtls::shake_hands(socket, uri, trust, report)
            .map(|session| Link::Dtls(Box::new(session))),
        Link::Tcp(socket, _) if uri.secure => tls::shake_hands(socket, trust, report)
            .map(|stream| Link::Tls(Box::new(stream), Vec::new())),
        Link::Udp(_) | Link::Tcp(..) | Link::Tls(..) | Link::Dtls(_) => Some(link),
    }
}

/// Sends a Binding request, to which the server must respond first.
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
