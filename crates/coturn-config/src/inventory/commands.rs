//! `turnadmin`.

use super::State::Same;
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "`turnadmin`",
    text: "Commands first, then their options. Coturn's own `turnadmin` may go on changing the users of a database that both \
           servers share ([Databases](../operate/databases.md)). `turnpike turnadmin`, and this program under the name `turnadmin`, \
           take the same commands, write the same rows, and end with the same exit status.",
    items: ITEMS,
};

const ADMINS: &str =
    "for coturn's web interface; the page here takes tokens (`turnpike token add`)";
const SECRETS: &str = "the server takes them with `secrets` in `users.database_tables`";
const URL: &str = "or a URL; to another host with TLS, unless `sslmode=disable` is among the words";

const ITEMS: &[Item] = &[
    item(
        "--add; -a",
        "add a user, or replace one",
        Same("or `turnpike user add`, `turnpike user password`"),
    ),
    item("--delete; -d", "delete a user", Same("or `turnpike user delete`")),
    item("--list; -l", "list users", Same("or `turnpike user list`")),
    item("--key; -k", "print the key of a name, realm and password", Same("")),
    item("--add-admin; -A", "add a user of the web interface", Same(ADMINS)),
    item("--delete-admin; -D", "delete such a user", Same(ADMINS)),
    item("--list-admin; -L", "list such users", Same(ADMINS)),
    item("--set-secret; -s", "add a shared secret", Same(SECRETS)),
    item("--show-secret; -S", "show shared secrets", Same("")),
    item("--delete-secret; -X", "delete a shared secret", Same(SECRETS)),
    item(
        "--delete-all-secrets",
        "delete all shared secrets",
        Same("in Redis, too, where coturn's deletes none"),
    ),
    item("--add-origin; -O", "give a web origin a realm", Same("")),
    item("--del-origin; -R", "take it away", Same("")),
    item("--list-origins; -I", "list origins", Same("the long name takes no argument")),
    item("--set-realm-option; -g", "set quotas of a realm", Same("0 deletes one in SQLite, too")),
    item(
        "--list-realm-options; --list-realm-option; -G",
        "list quotas of realms",
        Same("under both names; coturn's help has the first, its program takes the second"),
    ),
    item(
        "--generate-encrypted-password; -P",
        "print the salted hash of a password for the console or the web interface",
        Same(ADMINS),
    ),
    item(
        "--generate-encrypted-password-aes; -E",
        "encrypt the password of a MySQL server",
        Same("for a coturn; here the URL of the database is in a file of its own"),
    ),
    item("--db; --userdb; -b", "the SQLite file", Same("")),
    item("--psql-userdb; --sql-userdb; -e", "the PostgreSQL database", Same(URL)),
    item("--mysql-userdb; -M", "the MySQL or MariaDB database", Same(URL)),
    item("--redis-userdb; -N", "the Redis database", Same("or a URL")),
    item(
        "--mongo-userdb; -J",
        "the MongoDB database",
        Same("in a build with the feature `mongodb`"),
    ),
    item("--user; -u", "the user", Same("")),
    item("--realm; -r", "the realm", Same("")),
    item("--password; -p", "the password", Same("")),
    item("--origin; -o", "the origin", Same("")),
    item("--max-bps", "bytes per second of a realm's session", Same("")),
    item("--total-quota", "allocations of a realm", Same("")),
    item("--user-quota", "allocations of a user", Same("")),
    item("--key-path; -x", "write a new AES key to a file", Same("")),
    item("--file-key-path; -f", "read an AES key from a file", Same("before or behind -p")),
    item("--verify; -v", "decrypt a password", Same("")),
    item("--help; -h", "help", Same("")),
];
