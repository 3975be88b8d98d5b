//! Keys and channels of Redis.

use super::State::{NotNeeded, Same};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Keys in Redis",
    text: "The first ones are of the database of users (`redis-userdb`), `turn/realm/REALM/user/USER/allocation/ID/` and what \
           follows are keys and channels of `redis-statsdb`, without `realm/REALM/` where there is no realm.",
    items: ITEMS,
};

const TABLES: &str = "`users.database_tables` with `users.database_file`, read each second";
const LIFE: &str = "`accounting.redis`; the key expires a minute behind the lifetime, so that none is deleted at a start; `ssl` and `cipher` are `TLS` or \
                    `DTLS` and `unknown` where the client is encrypted";
const TRAFFIC: &str = "`accounting.redis`, at each `accounting.interim` and at the end; payload alone, without requests";

const ITEMS: &[Item] = &[
    item("turn/realm/REALM/user/USER/key", "key of a user", Same("`users.database_file`")),
    item("turn/realm/REALM/secret", "shared secrets of a realm", Same(TABLES)),
    item(
        "turn/realm/REALM/allowed-peer-ip; turn/realm/REALM/denied-peer-ip",
        "peer rules of a realm",
        Same(TABLES),
    ),
    item(
        "turn/realm/REALM/max-bps; turn/realm/REALM/total-quota; turn/realm/REALM/user-quota",
        "quotas of a realm",
        Same(TABLES),
    ),
    item("turn/origin/ORIGIN", "realm of a web origin", Same(TABLES)),
    item("turn/oauth/kid/KID", "key of access tokens", Same(TABLES)),
    item("turn/admin_user/NAME", "user of the web interface", NotNeeded("the page takes tokens")),
    item("status", "life of an allocation: `new`, `refreshed`, `deleted`", Same(LIFE)),
    item("traffic; traffic/peer", "packets and bytes since the last report", Same(TRAFFIC)),
    item(
        "total_traffic; total_traffic/peer",
        "packets and bytes of an allocation that ended",
        Same(TRAFFIC),
    ),
];
