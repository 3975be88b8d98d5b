//! The search against servers that are functions of the rate.

use super::*;
use crate::traffic::{Direction, Shape};

/// A generator that sends at most `sends` packets per second, and a server that loses nothing up
/// to `capacity` and delivers `overloaded` beyond it.
struct World {
    sends: f64,
    capacity: f64,
    overloaded: f64,
    /// Every so many runs something else disturbs; 0 is never.
    disturbed_every: usize,
    runs: usize,
}

impl World {
    fn run(&mut self, spec: &TrafficSpec) -> Traffic {
        self.runs += 1;
        let asked = spec.rate.map_or(self.sends, f64::from);
        let offered = asked.min(self.sends);
        let disturbed = self.disturbed_every > 0 && self.runs.is_multiple_of(self.disturbed_every);
        let delivered = match offered <= self.capacity {
            true if disturbed => offered * 0.9,
            true => offered,
            false => self.overloaded,
        };
        let seconds = spec.duration.as_secs_f64();
        let behind = if spec.rate.is_some() { 1.0 - offered / asked } else { 0.0 };
        Traffic {
            spec: *spec,
            sent: (offered * seconds) as u64,
            behind,
            delivered: (delivered * seconds) as u64,
            ..Traffic::example(spec.direction)
        }
    }
}

fn find(world: World) -> FindMax {
    find_near(world, None)
}

fn find_near(world: World, near: Option<u32>) -> FindMax {
    find_up_to(world, near, None)
}

fn find_up_to(mut world: World, near: Option<u32>, rate_max: Option<u32>) -> FindMax {
    let traffic = TrafficSpec {
        shape: Shape::Audio,
        direction: Direction::ClientToPeer,
        size: 200,
        rate: None,
        warm_up: Duration::from_millis(500),
        duration: Duration::from_secs(10),
    };
    let step = Duration::from_millis(300);
    let spec = FindMaxSpec { traffic, loss_max: 0.001, step, near, rate_max };
    let found = search(&spec, |traffic| Ok(world.run(traffic))).unwrap();
    assert_eq!(found.points.len(), world.runs);
    assert_eq!(found.confirmed.spec.duration, traffic.duration);
    found
}

fn near(found: &FindMax, rate: f64) {
    let delivered = found.confirmed.delivered_per_second();
    assert!((delivered / rate - 1.0).abs() < 0.05, "{delivered} is not near {rate}: {found:?}");
}

#[test]
fn the_capacity_is_found_from_below_however_bad_overload_is() {
    for overloaded in [199_000.0, 100_000.0, 5_000.0, 0.0] {
        let found =
            find(World { sends: 1e6, capacity: 2e5, overloaded, disturbed_every: 0, runs: 0 });
        near(&found, 2e5);
        assert_eq!(found.limit, Limit::Server);
        assert!(found.points.len() < 40, "{} runs", found.points.len());
    }
}

#[test]
fn a_disturbed_try_is_made_again() {
    let world = World { sends: 1e6, capacity: 2e5, overloaded: 1.5e5, disturbed_every: 3, runs: 0 };
    near(&find(world), 2e5);
}

#[test]
fn a_generator_that_is_too_slow_is_told() {
    let world = World { sends: 1e5, capacity: 2e5, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    let found = find(world);
    near(&found, 1e5);
    assert_eq!(found.limit, Limit::Generator);
}

#[test]
fn a_server_that_delivers_nothing_is_shown_to() {
    let world = World { sends: 1e5, capacity: 0.0, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    let found = find(world);
    assert_eq!((found.confirmed.delivered, found.limit), (0, Limit::Unconfirmed));
}

#[test]
fn a_rate_that_is_near_makes_it_short_and_one_that_is_not_does_no_harm() {
    for (guess, runs) in [(200_000, 9), (190_000, 10), (215_000, 10), (20_000, 20), (2_000_000, 24)]
    {
        let world =
            World { sends: 1e7, capacity: 2e5, overloaded: 1e5, disturbed_every: 0, runs: 0 };
        let found = find_near(world, Some(guess));
        near(&found, 2e5);
        assert_eq!(found.limit, Limit::Server);
        assert!(found.points.len() <= runs, "{guess}: {} runs", found.points.len());
    }
    let world = World { sends: 1e5, capacity: 2e5, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    assert_eq!(find_near(world, Some(100_000)).limit, Limit::Generator);
    let world = World { sends: 1e5, capacity: 0.0, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    assert_eq!(find_near(world, Some(50_000)).limit, Limit::Unconfirmed);
}

#[test]
fn what_a_generator_can_is_found_as_near_as_what_a_server_can() {
    let world =
        World { sends: 1.85e6, capacity: 1e7, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    let found = find_near(world, Some(100_000));
    near(&found, 1.85e6);
    assert_eq!(found.limit, Limit::Generator);
}

#[test]
fn a_search_ends_at_the_highest_rate_that_it_may_try() {
    for (guess, runs) in [(20_000, 2), (15_000, 10)] {
        let world =
            World { sends: 1e6, capacity: 2e5, overloaded: 0.0, disturbed_every: 0, runs: 0 };
        let found = find_up_to(world, Some(guess), Some(20_000));
        assert_eq!((found.confirmed.spec.rate, found.limit), (Some(20_000), Limit::Generator));
        assert!(found.points.len() <= runs, "{guess}: {} runs", found.points.len());
    }
    let world = World { sends: 1e6, capacity: 1e4, overloaded: 0.0, disturbed_every: 0, runs: 0 };
    let found = find_up_to(world, Some(50_000), Some(20_000));
    near(&found, 1e4);
    assert_eq!(found.limit, Limit::Server);
}
