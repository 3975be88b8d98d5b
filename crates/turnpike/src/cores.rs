//! Number and cores of workers. By default there is a worker for each permitted core, within the
//! processor time that the cgroup grants.

use std::fs;
use std::path::{Path, PathBuf};

use linux_net::allowed_cores;
use settings::WorkerCount;

/// Mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns the core of each worker. With `None` the scheduler chooses the core.
pub(crate) fn cores(count: WorkerCount, pin: bool) -> Vec<Option<usize>> {
    // If the kernel reports no permitted cores, a single unpinned worker is right.
    place(count, pin, &allowed_cores().unwrap_or_default(), quota(Path::new("/")))
}

fn place(
    count: WorkerCount,
    pin: bool,
    allowed: &[usize],
    quota: Option<f64>,
) -> Vec<Option<usize>> {
    // Rounded up, because with one worker fewer a fraction of a core's time would remain unused.
    let granted = quota.map_or(usize::MAX, |cores| cores.ceil() as usize);
    let count = match count {
        WorkerCount::Auto => allowed.len().min(granted).min(usize::from(WorkerCount::MAX)),
        WorkerCount::Fixed(count) => usize::from(count),
    };
    let count = count.max(1);
    // Workers are pinned only if each permitted core has a worker. Otherwise two workers, or two
    // servers on this host, could share a core while another core is idle.
    let pinned = pin && count == allowed.len() && granted >= count;
    (0..count).map(|worker| allowed.get(worker).copied().filter(|_| pinned)).collect()
}

/// Returns the processor time granted to this process, as a number of cores. The result is the
/// least `cpu.max` of the process's cgroup and its ancestors, or `None` without a limit. `root` is
/// the root of the file system.
fn quota(root: &Path) -> Option<f64> {
    let of = |path: PathBuf| fs::read_to_string(path).ok();
    let groups = of(root.join("proc/self/cgroup"))?;
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        // Format: hierarchy:controllers:path. Version 2 of cgroups has no controllers here.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, unified) = match controllers {
            "" => (root.join(&CGROUPS[1..]), true),
            some if some.split(',').any(|one| one == "cpu") => {
                (root.join(&CGROUPS[1..]).join(some), false)
            }
            _ => continue,
        };
        // In a container the path can be the host's. The mount itself is then the process's cgroup.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let at = mount.join(group);
            let found = if unified {
                of(at.join("cpu.max")).and_then(|text| limit(&text))
            } else {
                let period = of(at.join("cpu.cfs_period_us"));
                let quota = of(at.join("cpu.cfs_quota_us"));
                quota.zip(period).and_then(|(quota, period)| limit(&format!("{quota} {period}")))
            };
            least = found.into_iter().chain(least).reduce(f64::min);
        }
    }
    least
}

/// Parses a quota and a period: `200000 100000` is 2 cores. `max 100000` and `-1 100000` set no
/// limit.
fn limit(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn each_worker_has_a_core_of_its_own_or_none_has() {
        let auto = WorkerCount::Auto;
        assert_eq!(place(auto, true, &[3, 5], None), [Some(3), Some(5)]);
        assert_eq!(place(auto, false, &[3, 5], None), [None, None]);
        assert_eq!(place(auto, true, &[], None), [None]);
        assert_eq!(place(WorkerCount::Fixed(3), true, &[3, 5], None), [None, None, None]);
        assert_eq!(place(WorkerCount::Fixed(2), true, &[3, 5], None), [Some(3), Some(5)]);
        // Another server on this host may have chosen the same core.
        assert_eq!(place(WorkerCount::Fixed(1), true, &[3, 5], None), [None]);
        let many: Vec<usize> = (0..300).collect();
        assert_eq!(place(auto, true, &many, None).len(), 256);
    }

    #[test]
    fn no_more_workers_than_the_cgroup_has_time_for() {
        let auto = WorkerCount::Auto;
        assert_eq!(place(auto, true, &[0, 1, 2, 3], Some(1.5)), [None, None]);
        assert_eq!(place(auto, true, &[0, 1], Some(2.0)), [Some(0), Some(1)]);
        assert_eq!(place(auto, true, &[0], Some(0.2)), [Some(0)]);
        assert_eq!(place(WorkerCount::Fixed(2), true, &[0, 1], Some(1.0)), [None, None]);
    }

    #[test]
    fn the_least_quota_of_the_groups_above_counts() {
        let directory = Directory::new("cgroup");
        let root = directory.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(quota(root), None);
        put("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(quota(root), None);
        put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        assert_eq!(quota(root), None);
        put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
        assert_eq!(quota(root), Some(2.5));
        put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
        assert_eq!(quota(root), Some(0.5));

        put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/docker/x\n");
        put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
        put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(root), Some(3.0));
        put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        assert_eq!(quota(root), None);
    }
}
