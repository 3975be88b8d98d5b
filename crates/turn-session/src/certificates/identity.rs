//! Certificate with its chain and key, in OpenSSL's form.

use std::fmt;

use ::openssl::error::ErrorStack;
use ::openssl::pkey::{Id, PKey, Private};
use ::openssl::ssl::SslRef;
use ::openssl::x509::X509;

/// Certificate with its chain and private key.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The server's own certificate is the first.
    chain: Vec<X509>,
    key: PKey<Private>,
}

impl Identity {
    /// Reads a chain and its key, both as PEM.
    ///
    /// # Errors
    /// The chain or the key cannot be read, or has a type that OpenSSL does not support.
    pub(crate) fn read(chain: &[u8], key: &[u8]) -> Result<Self, ErrorStack> {
        let chain = X509::stack_from_pem(chain)?;
        // Without this callback, OpenSSL prompts for the passphrase of an encrypted key on the
        // terminal.
        let key = PKey::private_key_from_pem_callback(key, |_| Ok(0))?;
        Ok(Self { chain, key })
    }

    /// Returns false if the chain has further certificates, and none of them has signed the first
    /// one.
    pub(crate) fn is_signed_by_chain(&self) -> bool {
        let Some((own, others)) = self.chain.split_first() else { return false };
        let has_signed = |other: &X509| other.public_key().and_then(|key| own.verify(&key));
        others.is_empty() || others.iter().any(|other| has_signed(other).unwrap_or(false))
    }

    /// Returns the key type. OpenSSL accepts one certificate of each type for a handshake.
    pub(crate) fn kind(&self) -> Id {
        self.key.id()
    }

    /// Adds this identity to a handshake, in addition to identities with other key types.
    pub(crate) fn put_in(&self, handshake: &mut SslRef) -> Result<(), ErrorStack> {
        let Some((own, others)) = self.chain.split_first() else { return Ok(()) };
        handshake.set_certificate(own)?;
        handshake.set_private_key(&self.key)?;
        for other in others {
            handshake.add_chain_cert(other.clone())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
