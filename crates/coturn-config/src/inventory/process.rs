//! Signals, files, exit status, environment.

use super::State::{Replaced, Same};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Signals and the process",
    text: "Effects of signals can be chosen: section [`[signals]`](../configuration.md#signals).",
    items: ITEMS,
};

const ITEMS: &[Item] = &[
    item(
        "SIGTERM; SIGINT",
        "end",
        Same("with a drain before, if `shutdown.drain` is set; a second one ends at once"),
    ),
    item("SIGUSR1", "drain", Same("`signals.usr1`")),
    item(
        "SIGUSR2",
        "read certificates again",
        Same("`signals.usr2`; certificates are also read when their files change"),
    ),
    item(
        "SIGHUP",
        "reopen the log",
        Same(
            "under the name `turnserver`; it reloads the configuration as well, certificates included",
        ),
    ),
    item("READY=1", "notification of systemd", Same("with the watchdog besides")),
    item(
        "/etc/turnserver.conf",
        "the configuration",
        Same("`turnpike run --coturn-config FILE`; or `turnpike import coturn FILE`"),
    ),
    item(
        "turn_PID_DATE.log",
        "the log file",
        Replaced(
            "the service manager keeps the log; `turnserver -l FILE` has a file with the exact name",
        ),
    ),
    item(
        "/var/run/turnserver.pid",
        "the process id",
        Same("with `--pidfile` or `-o`, under the name `turnserver`"),
    ),
    item(
        "EXTRA_OPTIONS",
        "options of the RPM package's unit",
        Replaced("`turnpike import coturn FILE -- OPTIONS`"),
    ),
    item(
        "DETECT_EXTERNAL_IP; DETECT_RELAY_IP; DETECT_EXTERNAL_IPV6; DETECT_RELAY_IPV6; REAL_EXTERNAL_IP",
        "variables of the container image",
        Replaced("`relay.external_stun`, `relay.external_metadata`, `TURNPIKE_RELAY__EXTERNAL`"),
    ),
    item(
        "exit status 255",
        "a configuration that cannot be used",
        Same("under the name `turnserver`; otherwise 2"),
    ),
];
