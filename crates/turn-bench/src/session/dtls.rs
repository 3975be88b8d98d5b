//! DTLS as a client that measures: one version, one cipher and one exchange of keys, and whatever
//! certificate there is.

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslOptions, SslSessionCacheMode, SslStream, SslVerifyMode,
    SslVersion,
};

/// The longest datagram of a handshake: what every path carries (RFC 8200 §5), less headers.
const HANDSHAKE_DATAGRAM: u32 = 1200;

/// Made once: all associations offer the same.
static CONTEXT: LazyLock<Result<SslContext, ErrorStack>> = LazyLock::new(context);

/// An association that begins with the first handshake step, over these datagrams.
pub(crate) fn begin<S: Read + Write>(datagrams: S) -> io::Result<SslStream<S>> {
    let begun = || {
        let context = CONTEXT.clone()?;
        let mut ssl = Ssl::new(&context)?;
        ssl.set_mtu(HANDSHAKE_DATAGRAM)?;
        ssl.set_connect_state();
        SslStream::new(ssl, datagrams)
    };
    begun().map_err(|error: ErrorStack| io::Error::other(format!("OpenSSL: {error}")))
}

fn context() -> Result<SslContext, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::dtls())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_max_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_cipher_list("ECDHE-ECDSA-AES128-GCM-SHA256")?;
    context.set_groups_list("P-256")?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_options(SslOptions::NO_QUERY_MTU | SslOptions::NO_TICKET);
    // Each handshake is a whole one, whatever the server remembers.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    Ok(context.build())
}
