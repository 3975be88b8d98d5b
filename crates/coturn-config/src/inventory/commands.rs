//! `turnadmin`.

use super::State::{Missing, NotNeeded, Replaced};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "`turnadmin`",
    text: "Commands first, then their options. Coturn's own `turnadmin` may go on changing the users of a database that both \
           servers share ([Databases](../operate/databases.md)).",
    items: ITEMS,
};

const ORIGINS: &str = "`realms`, key `origins`, in the configuration";
const REALM_OPTIONS: &str = "`realms`, key `quotas`, in the configuration";
const DATABASE: &str = "`users.database_file` in the configuration, for all commands";
const TOKENS: &str = "the page takes tokens instead of passwords";

const ITEMS: &[Item] = &[
    item(
        "--add; -a",
        "add a user, or replace one",
        Replaced("`turnpike user add`, `turnpike user password`"),
    ),
    item("--delete; -d", "delete a user", Replaced("`turnpike user delete`")),
    item("--list; -l", "list users", Replaced("`turnpike user list`")),
    item(
        "--key; -k",
        "print the key of a name, realm and password",
        Replaced("`turnpike user export --keys` prints the keys of users"),
    ),
    item("--add-admin; -A", "add a user of the web interface", Replaced("`turnpike token add`")),
    item("--delete-admin; -D", "delete such a user", Replaced("`turnpike token remove`")),
    item("--list-admin; -L", "list such users", Replaced("`turnpike token list`")),
    item(
        "--set-secret; -s",
        "add a shared secret",
        Replaced("`auth.secrets` in the configuration, and `turnpike reload`"),
    ),
    item("--show-secret; -S", "show shared secrets", Replaced("the files of `auth.secrets`")),
    item(
        "--delete-secret; -X",
        "delete a shared secret",
        Replaced("`auth.secrets` in the configuration, and `turnpike reload`"),
    ),
    item(
        "--delete-all-secrets",
        "delete all shared secrets",
        Replaced("`auth.secrets` in the configuration, and `turnpike reload`"),
    ),
    item("--add-origin; -O", "give a web origin a realm", Replaced(ORIGINS)),
    item("--del-origin; -R", "take it away", Replaced(ORIGINS)),
    item("--list-origins; -I", "list origins", Replaced(ORIGINS)),
    item("--set-realm-option; -g", "set quotas of a realm", Replaced(REALM_OPTIONS)),
    item("--list-realm-options; -G", "list quotas of realms", Replaced(REALM_OPTIONS)),
    item(
        "--generate-encrypted-password; -P",
        "print the salted hash of a password for the console or the web interface",
        NotNeeded(TOKENS),
    ),
    item(
        "--generate-encrypted-password-aes; -E",
        "encrypt the password of a MySQL server",
        Replaced(
            "the URL of the database is in a file of its own, readable by the server's user alone",
        ),
    ),
    item(
        "--db; --userdb; -b",
        "the SQLite file",
        Missing("users of this file are not read in place"),
    ),
    item("--psql-userdb; --sql-userdb; -e", "the PostgreSQL database", Replaced(DATABASE)),
    item("--mysql-userdb; -M", "the MySQL or MariaDB database", Replaced(DATABASE)),
    item("--redis-userdb; -N", "the Redis database", Replaced(DATABASE)),
    item(
        "--mongo-userdb; -J",
        "the MongoDB database",
        Missing("users of this database are not read"),
    ),
    item("--user; -u", "the user", Replaced("the argument of `turnpike user` commands")),
    item("--realm; -r", "the realm", Replaced("`--realm` of `turnpike user`")),
    item(
        "--password; -p",
        "the password",
        Replaced("`turnpike user add` reads it from standard input, or generates it"),
    ),
    item("--origin; -o", "the origin", Replaced(ORIGINS)),
    item("--max-bps", "bytes per second of a realm's session", Replaced(REALM_OPTIONS)),
    item("--total-quota", "allocations of a realm", Replaced(REALM_OPTIONS)),
    item("--user-quota", "allocations of a user", Replaced(REALM_OPTIONS)),
    item(
        "--key-path; -x",
        "write a new AES key to a file",
        NotNeeded("no password is stored encrypted"),
    ),
    item(
        "--file-key-path; -f",
        "read an AES key from a file",
        NotNeeded("no password is stored encrypted"),
    ),
    item("--verify; -v", "decrypt a password", NotNeeded("no password is stored encrypted")),
    item("--help; -h", "help", Replaced("`turnpike help user`")),
];
