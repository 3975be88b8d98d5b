//! Host of tests.

use std::net::IpAddr;
use std::path::Path;

use coturn_config::Host;

/// A host with one name, one path and one address.
pub(crate) struct TestHost {
    /// Name with its address.
    pub(crate) name: (&'static str, [u8; 4]),
    /// Existing path; empty: none.
    pub(crate) path: &'static str,
    /// Address of the host itself.
    pub(crate) own: Option<[u8; 4]>,
}

impl Host for TestHost {
    fn find(&self, name: &str) -> String {
        name.to_owned()
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        (name == self.name.0).then(|| self.name.1.into())
    }

    fn exists(&self, path: &Path) -> bool {
        !self.path.is_empty() && path == Path::new(self.path)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.own.is_some_and(|own| address == IpAddr::from(own))
    }
}
