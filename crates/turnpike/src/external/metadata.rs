//! Public address from the metadata service of a cloud. The service is queried only if the operator
//! has named the cloud (`relay.external_metadata`). Outside of clouds, any host could respond at
//! its address.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::Value;
use settings::CloudMetadata;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Address and port of the metadata service in every cloud.
const AT: (Ipv4Addr, u16) = (Ipv4Addr::new(169, 254, 169, 254), 80);

/// Maximum time for all requests about an address. The service is on the same host, and responds
/// within milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Maximum size of a response in bytes. A host has a few interfaces with a few addresses.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// Maximum number of a host's interfaces that are queried.
const INTERFACES_MAX: usize = 64;

/// Headers of requests, each with a line break.
const AZURE: &str = "Metadata: true\r\n";
const GCP: &str = "Metadata-Flavor: Google\r\n";

/// Queries the public address whose packets reach the address `local`.
pub(super) async fn ask(local: IpAddr, cloud: CloudMetadata) -> Result<IpAddr, String> {
    let IpAddr::V4(local) = local else {
        return Err("metadata services have public addresses of IPv4 alone".to_owned());
    };
    let answer = async {
        match cloud {
            CloudMetadata::Off => Err("no cloud is named".to_owned()),
            CloudMetadata::Aws => aws(local).await,
            CloudMetadata::Gcp => {
                let path = "/computeMetadata/v1/instance/network-interfaces/?recursive=true";
                of_gcp(&json(&get(path, GCP).await?)?, local)
            }
            CloudMetadata::Azure => azure(local).await,
            CloudMetadata::Hetzner => {
                let public = get("/hetzner/v1/metadata/public-ipv4", "").await?;
                of_hetzner(public.trim(), local)
            }
        }
    };
    let answer = timeout(ANSWERED_WITHIN, answer).await;
    let ip = answer.map_err(|_| "the metadata service does not answer".to_owned())??;
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err(format!("the metadata service says {ip}, which is no address of a host"));
    }
    Ok(ip.into())
}

/// Queries AWS by IMDSv2: first a token, then the associations of each interface.
async fn aws(local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    const MACS: &str = "/latest/meta-data/network/interfaces/macs/";
    let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n";
    let token = exchange("PUT", "/latest/api/token", ttl).await?;
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the metadata service gives no token".to_owned());
    }
    let token = format!("X-aws-ec2-metadata-token: {token}\r\n");
    let macs = get(MACS, &token).await?;
    for mac in macs.lines().take(INTERFACES_MAX) {
        let associations = format!("{MACS}{}/ipv4-associations/", mac.trim_end_matches('/'));
        // An interface without a public address has no such list.
        let Ok(publics) = get(&associations, &token).await else { continue };
        for public in publics.lines().take(INTERFACES_MAX) {
            let locals = get(&format!("{associations}{public}"), &token).await?;
            if locals.lines().any(|line| line.parse() == Ok(local)) {
                return address(public);
            }
        }
    }
    Err(without(local))
}

async fn azure(local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let path = "/metadata/instance/network/interface?api-version=2021-02-01";
    let found = of_azure(&json(&get(path, AZURE).await?)?, local);
    if found.is_ok() {
        return found;
    }
    // Only the load balancer's metadata contain public addresses of the standard kind.
    let path = "/metadata/loadbalancer?api-version=2020-10-01";
    match get(path, AZURE).await {
        Ok(text) => of_azure_balancer(&json(&text)?, local),
        Err(_) => found,
    }
}

fn of_gcp(interfaces: &Value, local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let is_it = |one: &&Value| one["ip"].as_str() == Some(&local.to_string());
    let found = list(interfaces).iter().find(is_it);
    let mut public = found.iter().flat_map(|one| list(&one["accessConfigs"]));
    public.find_map(|one| one["externalIp"].as_str()).map_or_else(|| Err(without(local)), address)
}

fn of_azure(interfaces: &Value, local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let addresses = list(interfaces).iter().flat_map(|one| list(&one["ipv4"]["ipAddress"]));
    public_of(addresses, ["privateIpAddress", "publicIpAddress"], local)
}

fn of_azure_balancer(answer: &Value, local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let addresses = list(&answer["loadbalancer"]["publicIpAddresses"]).iter();
    public_of(addresses, ["privateIpAddress", "frontendIpAddress"], local)
}

/// Finds the public address that is paired with the private address `local`.
fn public_of<'a>(
    mut pairs: impl Iterator<Item = &'a Value>,
    [private, public]: [&str; 2],
    local: Ipv4Addr,
) -> Result<Ipv4Addr, String> {
    let pair = pairs.find(|pair| pair[private].as_str() == Some(&local.to_string()));
    let found = pair.and_then(|pair| pair[public].as_str()).filter(|public| !public.is_empty());
    found.map_or_else(|| Err(without(local)), address)
}

/// Checks the public address of a cloud without address translation, where both addresses are
/// equal.
fn of_hetzner(public: &str, local: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let public = address(public)?;
    if public == local {
        return Ok(public);
    }
    Err(format!("nothing translates {public} to {local}: relay from {public} (relay.addresses)"))
}

fn without(local: Ipv4Addr) -> String {
    format!("the metadata service has no public address for {local}")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.trim().parse().map_err(|_| "the metadata service says what is no address".to_owned())
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|_| "the metadata service says what is no JSON".to_owned())
}

async fn get(path: &str, headers: &str) -> Result<String, String> {
    exchange("GET", path, headers).await
}

/// Sends a request, and returns the body of a successful response.
async fn exchange(method: &str, path: &str, headers: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the metadata service: {error}");
    let mut stream = TcpStream::connect(AT).await.map_err(failed)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n",
        AT.0
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await.map_err(failed)?;
    body(&String::from_utf8_lossy(&answer))
}

/// Returns the body of a response with status 200.
fn body(response: &str) -> Result<String, String> {
    let broken = || "the metadata service does not speak HTTP".to_owned();
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(broken)?;
    let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match code.ok_or_else(broken)? {
        "200" => {}
        "401" | "403" => {
            return Err("the metadata service refuses this host (is it switched off?)".to_owned());
        }
        _ => return Err("this is not the metadata service of that cloud".to_owned()),
    }
    let is_chunked = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    };
    if headers.lines().any(is_chunked) {
        return unchunked(body).ok_or_else(broken);
    }
    Ok(body.to_owned())
}

/// Joins the chunks of a body (RFC 9112 §7.1).
fn unchunked(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(text);
        }
        text.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 6);
    const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

    #[test]
    fn each_cloud_is_read_in_its_form() {
        let gcp = json!([
            { "ip": "10.0.0.6", "accessConfigs": [] },
            { "ip": "10.0.0.5", "accessConfigs": [{ "externalIp": "203.0.113.7", "type": "ONE_TO_ONE_NAT" }] },
        ]);
        let address = |private: &str, public: &str| json!({ "privateIpAddress": private, "publicIpAddress": public });
        let azure = json!([{ "ipv4": { "ipAddress": [address("10.0.0.6", ""), address("10.0.0.5", "203.0.113.7")] } }]);
        let balancer = json!({ "loadbalancer": { "publicIpAddresses": [
            { "frontendIpAddress": "203.0.113.7", "privateIpAddress": "10.0.0.5" }
        ] } });
        for (name, of) in [
            (
                "gcp",
                &(|local| of_gcp(&gcp, local)) as &dyn Fn(Ipv4Addr) -> Result<Ipv4Addr, String>,
            ),
            ("azure", &|local| of_azure(&azure, local)),
            ("azure's load balancer", &|local| of_azure_balancer(&balancer, local)),
        ] {
            assert_eq!(of(LOCAL), Ok(PUBLIC), "{name}");
            assert_eq!(of(OTHER), Err(without(OTHER)), "{name}: never another's");
        }
        assert_eq!(of_hetzner("203.0.113.7", PUBLIC), Ok(PUBLIC));
        assert!(of_hetzner("203.0.113.7", LOCAL).unwrap_err().contains("relay from 203.0.113.7"));
        assert!(of_hetzner("<html>", LOCAL).is_err());
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let ok = "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n203.0.113.7\n";
        assert_eq!(body(ok), Ok("203.0.113.7\n".to_owned()));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n203.\r\n7;x\r\n0.113.7\r\n0\r\n\r\n";
        assert_eq!(body(chunked), Ok("203.0.113.7".to_owned()));
        for broken in
            ["", "203.0.113.7", "HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 401 x\r\n\r\n"]
        {
            assert!(body(broken).is_err(), "{broken:?}");
        }
        assert!(body(&chunked[..chunked.len() - 8]).is_err());
    }
}
