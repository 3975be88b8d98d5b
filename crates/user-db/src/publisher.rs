//! A Redis server that is written and published to, besides users.

use std::fmt;

use crate::error::StoreError;
use crate::publication::Publication;
#[cfg(feature = "redis")]
use crate::redis_server::Redis;
use crate::server_url::ServerUrl;

/// A Redis server to publish to.
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
    /// Opens a server by its URL: `redis://`, `rediss://` or `redis+unix://`. Waits for no network.
    ///
    /// # Errors
    /// The URL is not one, a file that it names cannot be read, or this program was built without
    /// Redis.
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

    /// Carries out changes in their order, in one exchange.
    ///
    /// # Errors
    /// The server cannot be reached, does not answer in time, or refuses. Some changes may have
    /// been made.
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
