//! Redis server for publications, separate from user look-ups.

use std::fmt;

use crate::error::StoreError;
use crate::publication::Publication;
#[cfg(feature = "redis")]
use crate::redis_server::Redis;
use crate::server_url::ServerUrl;

/// Redis server to publish to.
pub struct Publisher {
    #[cfg(feature = "redis")]
    server: Redis,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Opens a server by its URL: `redis://`, `rediss://` or `redis+unix://`. Does not wait for the
    /// network.
    ///
    /// # Errors
    /// The URL is invalid, a file named in the URL cannot be read, or this program was built
    /// without Redis.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let parsed = ServerUrl::parse(url)?;
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "redis" | "rediss" | "redis+unix") {
            return Err(parsed.failed(format_args!("it is not a URL of Redis")));
        }
        #[cfg(feature = "redis")]
        {
            Ok(Self { server: Redis::new(parsed)? })
        }
        #[cfg(not(feature = "redis"))]
        {
            Err(parsed.failed(format_args!("this program was built without the feature \"redis\"")))
        }
    }

    /// Applies changes in order, in one exchange with the server.
    ///
    /// # Errors
    /// The server cannot be reached, does not respond in time, or refuses a change. Some changes
    /// may have been applied.
    pub async fn send(&self, changes: &[Publication]) -> Result<(), StoreError> {
        #[cfg(feature = "redis")]
        {
            self.server.publish(changes).await
        }
        #[cfg(not(feature = "redis"))]
        {
            let _ = changes;
            Ok(())
        }
    }
}
