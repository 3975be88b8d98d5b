//! Circles in a graph.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Module;

/// Returns the circles, largest first: sets of modules that all reach each other.
pub(super) fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|module| (module, reachable(edges, module))).collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    let mut placed = BTreeSet::new();
    for (module, from_here) in &reached {
        if !from_here.contains(module) || !placed.insert(*module) {
            continue;
        }
        let back = |other: &&&Module| reached.get(**other).is_some_and(|set| set.contains(module));
        let circle: BTreeSet<&Module> = from_here.iter().filter(back).copied().collect();
        placed.extend(circle.iter().copied());
        found.push(circle.into_iter().cloned().collect());
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Returns the modules that a module reaches; itself only by a circle.
fn reachable<'a>(
    edges: &'a BTreeMap<Module, BTreeSet<Module>>,
    from: &Module,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&Module> = edges.get(from).into_iter().flatten().collect();
    while let Some(module) = left.pop() {
        if reached.insert(module) {
            left.extend(edges.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_and_paths_down_are_none() {
        let module = |name: &str| Module::root().child(name);
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(module);
        let to = |targets: &[&Module]| targets.iter().map(|one| (*one).clone()).collect();
        let edges = BTreeMap::from([
            (a.clone(), to(&[&b, &d])),
            (b.clone(), to(&[&c])),
            (c.clone(), to(&[&a])),
            (d.clone(), to(&[&e])),
            (e.clone(), to(&[&d])),
        ]);
        assert_eq!(circles(&edges), [BTreeSet::from([a, b, c]), BTreeSet::from([d, e])]);
    }
}
