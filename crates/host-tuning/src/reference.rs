//! The reference page of items, made from the catalogue.

use crate::catalogue::ALL;
use crate::entry::{Area, By, Entry};

const BEFORE: &str = "\
# Tuning the host

<!-- Written by `cargo xtask docs`. -->

Linux comes with settings for every machine, and a relay has many packets, small ones, and bursts of them. `turnpike tune` finds settings
that limit it, changes them on request, and restores them.

```sh
turnpike tune check                      # reads and advises; changes nothing
sudo turnpike tune apply                 # shows the changes, and asks
sudo turnpike tune apply --yes --persist # without a question; sysctls are set again at every start
sudo turnpike tune revert                # restores the values before
```

`--config` names the server's configuration, whose buffers, ports and quotas the advice is for. The interfaces are those of the default
routes, or the ones that `--interface` names; below a bond, bridge or VLAN the cards are looked at. `--only` and `--skip` choose among the items by
their names; `--json` is for programs.

No advice lowers a value that you have raised. Before each change the old value is written to
`/var/lib/turnpike/tune.json` (`--state`), so that `revert` finds it even after a crash; applying again keeps the first values. Values that
were changed by other means since are reported and left alone, unless you add `--force`.

Values last until the host restarts. With `--persist` the sysctls are written to `/etc/sysctl.d/60-turnpike.conf` as well; `revert`
removes it. Values of an interface have no such file. To set them at every start, have the server's systemd unit do it: a line
`ExecStartPre=-+/usr/local/bin/turnpike tune apply --yes` (the plus sign runs it as root; with the minus sign the server starts even if a
change was refused).

In a container or network namespace many values belong to the machine: they are reported, and skipped. Run `turnpike tune` on the machine itself.
";

/// The page, in Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let mut text = BEFORE.to_owned();
    for (area, heading) in [
        (Area::Host, "## The host"),
        (
            Area::Interface,
            "## Each interface\n\nVirtual interfaces and the loopback have no card: items of cards are skipped there.",
        ),
    ] {
        text.push_str(&format!("\n{heading}\n\n| item | advised | why |\n|---|---|---|\n"));
        for entry in ALL.iter().filter(|entry| entry.area() == area) {
            text.push_str(&row(entry));
        }
    }
    text.push_str("\n*By hand*: reported with instructions, and never changed for you.\n");
    text
}

fn row(entry: &Entry) -> String {
    let by = match entry.by {
        By::Us => "",
        By::Hand => " *By hand.*",
    };
    format!("| `{}` | {} | {}{by} |\n", entry.name, entry.rule, entry.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_this_one() {
        let committed = include_str!("../../../docs/operate/tuning.md");
        assert!(committed == reference_markdown(), "run `cargo xtask docs`");
    }

    #[test]
    fn every_item_is_on_the_page() {
        let page = reference_markdown();
        for entry in ALL {
            assert!(page.contains(&format!("| `{}` |", entry.name)), "{}", entry.name);
        }
    }
}
