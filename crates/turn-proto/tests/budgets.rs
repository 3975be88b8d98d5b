//! Budgets for the effects of unauthenticated sources: responses, verifications and user look-ups.
//! No source can use up a budget at the cost of a source that has proved more.

use stun_wire::*;
use turn_proto::*;
use turn_types::*;

use crate::support::*;

/// A world that grants each network this many unauthenticated responses per second.
fn granting(per_second: u32) -> World {
    World::with(Policy { unauthenticated: UnauthenticatedBudget { per_second }, ..policy() })
}

/// Returns true if a request without credentials gets a response.
fn is_answered(world: &mut World, client: &mut Client, method: Method) -> bool {
    let request = client.bare(method, |_| ());
    matches!(world.from_client(&client.path, &request), Fate::Reply(_))
}

/// Floods from addresses of 198.51.100.0/24 with a separate port each, as a forger's packets have.
fn flood(world: &mut World, hosts: core::ops::Range<u8>, each: u16, method: Method) -> usize {
    let answered =
        hosts.flat_map(|host| (1..=each).map(move |port| (host, port))).filter(|(host, port)| {
            let mut forged = Client::at(&format!("198.51.100.{host}:{port}"));
            is_answered(world, &mut forged, method)
        });
    answered.count()
}

/// Floods until a datagram without credentials gets no response.
fn use_up(world: &mut World) {
    for method in [Method::ALLOCATE, Method::BINDING] {
        flood(world, 0..255, 20, method);
        let mut stranger = Client::at("198.51.100.9:9999");
        assert!(!is_answered(world, &mut stranger, method), "the budget is used up");
    }
}

#[test]
fn forged_datagrams_keep_nobody_from_a_connection() {
    let mut world = granting(2000);
    for transport in [Transport::Tcp, Transport::Tls, Transport::Dtls] {
        use_up(&mut world);
        let mut client = Client::at("198.51.100.7:5000").over(transport);
        assert!(is_answered(&mut world, &mut client, Method::BINDING), "{transport:?}");
        client.allocate(&mut world);
    }
}

#[test]
fn forged_datagrams_keep_nobody_from_logging_in_who_has_a_nonce() {
    let mut world = granting(2000);
    let mut client = Client::at("198.51.100.7:5000");
    client.log_in(&mut world);
    use_up(&mut world);
    client.allocate(&mut world);
    // Likewise for a client with a wrong password, which must get a response.
    let mut wrong = Client::at("198.51.100.8:5000");
    world.advance(secs(2));
    wrong.log_in(&mut world);
    use_up(&mut world);
    wrong.password = "looking-glass";
    let request = wrong.sealed(&mut world, Method::ALLOCATE, |_| ());
    let Fate::Reply(reply) = world.from_client(&wrong.path, &request) else {
        panic!("a wrong password is told so");
    };
    assert_eq!(wrong.decode(&request, reply).code(), Some(401));
}

#[test]
fn a_flood_from_three_addresses_leaves_the_rest_of_their_network_alone() {
    for flooded in [Method::BINDING, Method::ALLOCATE] {
        let mut world = granting(2000);
        for _ in 0..10 {
            let answered = flood(&mut world, 1..4, 1000, flooded);
            assert!(answered < 3000, "their own share is bounded: {answered}");
            world.advance(secs(1) / 10);
        }
        for host in 10..200 {
            for method in [Method::BINDING, Method::ALLOCATE] {
                let mut client = Client::at(&format!("198.51.100.{host}:5000"));
                assert!(is_answered(&mut world, &mut client, method), "{host}: {method:?}");
            }
        }
    }
}

#[test]
fn a_flood_of_bindings_leaves_challenges_alone() {
    let mut world = granting(2000);
    flood(&mut world, 0..255, 100, Method::BINDING);
    assert!(!is_answered(&mut world, &mut Client::at("198.51.100.7:9999"), Method::BINDING));
    assert_eq!(flood(&mut world, 0..255, 1, Method::ALLOCATE), 255);
}

#[test]
fn what_a_network_is_sent_is_bounded_whoever_asks() {
    // Over ten seconds: the figure, and its burst once.
    let mut world = granting(200);
    let mut answered = 0;
    for step in 0..1000_u16 {
        let host = u8::try_from(step % 256).unwrap();
        for method in [Method::BINDING, Method::ALLOCATE] {
            for port in 0..4 {
                let from = format!("198.51.100.{host}:{}", 1000 + step * 4 + port);
                answered += u32::from(is_answered(&mut world, &mut Client::at(&from), method));
            }
        }
        world.advance(secs(1) / 100);
    }
    assert!((1900..=2200).contains(&answered), "{answered}");
}

/// Responses to 100,000 requests from a thousand networks within a second.
fn flood_of_networks(world: &mut World, method: Method) -> u32 {
    let mut answered = 0;
    for number in 0..100_000_u32 {
        let (network, port) = (number % 1000, 1024 + number / 1000);
        let (high, low) = (network / 200, network % 200);
        let mut sender = Client::at(&format!("203.{high}.{low}.7:{port}"));
        answered += u32::from(is_answered(world, &mut sender, method));
        if number % 100 == 0 {
            world.advance(secs(1) / 1000);
        }
    }
    answered
}

#[test]
fn a_flood_from_a_thousand_networks_is_bounded_and_connections_are_answered() {
    let mut world = granting(2000);
    let mut caller = Client::at("198.51.100.7:5000");
    caller.log_in(&mut world);
    for method in [Method::BINDING, Method::ALLOCATE] {
        let answered = flood_of_networks(&mut world, method);
        assert!((49_000..62_000).contains(&answered), "{method:?}: {answered} of 100,000");
        let mut over_tcp = Client::at("198.51.100.8:5000").over(Transport::Tcp);
        assert!(is_answered(&mut world, &mut over_tcp, method), "{method:?}");
    }
    caller.allocate(&mut world);
    let all =
        |notice: &Notice| matches!(notice, Notice::BudgetSpent { budget: Budget::AllNetworks, .. });
    assert!(world.notices.iter().any(all), "the log tells of it");
}

/// Returns the number of responses to requests with valid credentials and a hundred peers each. The
/// clients send `requests` requests alternately, within a second.
fn answers_within_a_second(world: &mut World, clients: &mut [Client], requests: u32) -> u32 {
    let mut answered = 0;
    for number in 0..requests {
        let busy = &mut clients[number as usize % clients.len()];
        let request = busy.sealed(world, Method::CREATE_PERMISSION, |builder| {
            for peer in 0..100 {
                let peer = addr(&format!("192.0.2.{peer}:1"));
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
            }
        });
        let fate = world.from_client(&busy.path, &request);
        if matches!(fate, Fate::Reply(_)) {
            answered += 1;
        } else {
            assert_eq!(fate.dropped(), DropReason::RequestBudget, "{number}");
        }
        world.advance(secs(1) / requests);
    }
    answered
}

#[test]
fn requests_of_one_client_leave_time_to_others() {
    let mut world = granting(2000);
    let mut busy = [Client::at("198.51.100.7:1")];
    busy[0].allocate(&mut world);
    let answered = answers_within_a_second(&mut world, &mut busy, 4000);
    // The burst of half a second and one second, at 2 ms each.
    assert!((500..1000).contains(&answered), "{answered} of 4000");
    let told =
        |notice: &Notice| matches!(notice, Notice::BudgetSpent { budget: Budget::Requests, .. });
    assert!(world.notices.iter().any(told), "the log names the address");
    Client::at("198.51.100.8:1").as_bob().allocate(&mut world);
    world.advance(secs(3));
    busy[0].refresh(&mut world, None).success();
}

/// Clients of one account, each in another `/16`.
fn clients_of_networks(count: u8) -> Vec<Client> {
    (1..=count).map(|net| Client::at(&format!("100.{net}.3.7:1"))).collect()
}

#[test]
fn requests_of_an_account_at_many_networks_leave_time_to_others() {
    let mut world = granting(2000);
    let mut busy = clients_of_networks(20);
    for client in &mut busy {
        client.allocate(&mut world);
    }
    let answered = answers_within_a_second(&mut world, &mut busy, 12_000);
    // Four times the number of one address.
    assert!((2000..4000).contains(&answered), "{answered} of 12000");
    Client::at("198.51.100.8:1").as_bob().allocate(&mut world);
}

/// The account of a client without an allocation is known after the integrity check.
#[test]
fn refused_requests_of_an_account_at_many_networks_leave_time_to_others() {
    let mut world = granting(2000);
    let mut busy = clients_of_networks(200);
    for client in &mut busy {
        client.log_in(&mut world);
    }
    let mut answered = 0;
    for number in 0..20_000 {
        let client = &mut busy[number % 200];
        let request = client.sealed(&mut world, Method::REFRESH, |_| ());
        let fate = world.from_client(&client.path, &request);
        if matches!(fate, Fate::Reply(_)) {
            answered += 1;
        } else if !matches!(fate, Fate::Wait) {
            // Otherwise it was dropped after the look-up of the user.
            assert_eq!(fate.dropped(), DropReason::RequestBudget, "{number}");
        }
        world.advance(secs(1) / 20_000);
    }
    // An eighth of a second, and of the burst, at 20 µs each.
    assert!((5000..15_000).contains(&answered), "{answered} of 20000");
    Client::at("198.51.100.8:1").as_bob().allocate(&mut world);
}

/// On an open relay nothing proves who sent a request.
#[test]
fn forged_requests_of_an_open_relay_use_no_time_of_their_address() {
    let mut policy = policy();
    policy.unauthenticated.per_second = 1_000_000;
    policy.auth.open = true;
    let mut world = World::with(policy);
    for number in 0..5000 {
        let mut forged = Client::at(&format!("198.51.100.7:{}", 2000 + number));
        let request = forged.bare(Method::REFRESH, |_| ());
        let _ = world.from_client(&forged.path, &request);
    }
    let mut client = Client::at("198.51.100.7:1");
    assert!(is_answered(&mut world, &mut client, Method::ALLOCATE));
}

fn secret(text: &[u8]) -> SharedSecret {
    SharedSecret { name: "web".into(), secret: Secret::new(text.into()) }
}

/// Returns the number of these wrong passwords that get a response. The others are dropped before
/// verification.
fn wrong_passwords(world: &mut World, client: &mut Client, count: usize) -> usize {
    let mut wrong = client.clone();
    wrong.password = "looking-glass";
    let answered = (0..count).filter(|_| {
        let request = wrong.sealed(world, Method::ALLOCATE, |_| ());
        let fate = world.from_client(&wrong.path, &request);
        let told = matches!(fate, Fate::Reply(_));
        assert!(told || fate.dropped() == DropReason::VerificationBudget);
        told
    });
    let answered = answered.count();
    client.nonce = wrong.nonce;
    answered
}

#[test]
fn failed_verifications_are_budgeted_by_customer() {
    let mut world = granting(2000);
    let mut established = Client::at("198.51.100.7:1");
    established.allocate(&mut world);
    let mut guesser = Client::at("198.51.100.7:2");
    assert_eq!(wrong_passwords(&mut world, &mut guesser, 500), 100);
    assert_eq!(world.looked_up, 101);
    // Now the right password is not even verified.
    let request = guesser.sealed(&mut world, Method::ALLOCATE, |_| ());
    assert_eq!(
        world.from_client(&guesser.path, &request).dropped(),
        DropReason::VerificationBudget
    );
    // A client with an allocation is verified, even if others share the address.
    established.permit(&mut world, &[PEER]).success();
    established.refresh(&mut world, None).success();
    // So is one at another address, and all are soon after.
    Client::at("198.51.100.8:1").allocate(&mut world);
    world.advance(secs(1));
    guesser.allocate(&mut world);
    let network = Prefix::customer(ip("198.51.100.7"));
    let told = |notice: &Notice| {
        matches!(notice, Notice::BudgetSpent { budget: Budget::FailedVerifications, source }
            if *source == network)
    };
    assert!(world.notices.iter().any(told));
}

#[test]
fn each_secret_that_is_tried_is_charged() {
    let mut policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 2000 }, ..policy() };
    policy.auth.users = false;
    for number in 0..8 {
        policy.auth.secrets.push(secret(&[b'a' + number; 16]));
    }
    let mut world = World::with(policy);
    let mut guesser = Client::at("198.51.100.7:2");
    guesser.user = "1999999999:alice";
    let told = wrong_passwords(&mut world, &mut guesser, 100);
    assert!((12..=13).contains(&told), "{told}");
}

#[test]
fn an_own_allocation_is_no_way_around_the_budget_of_verifications() {
    let mut policy =
        Policy { unauthenticated: UnauthenticatedBudget { per_second: 2000 }, ..policy() };
    policy.auth.secrets.push(secret(b"0123456789abcdef"));
    let mut world = World::with(policy);
    let mut client = Client::at("198.51.100.7:1");
    client.allocate(&mut world);
    let looked_up = world.looked_up;
    assert_eq!(wrong_passwords(&mut world, &mut client, 500), 100);
    assert_eq!(world.looked_up - looked_up, 100);
    client.refresh(&mut world, None).success();
}

#[test]
fn without_a_nonce_of_its_address_a_datagram_costs_no_verification() {
    let mut world = granting(2000);
    let mut client = Client::at("198.51.100.7:1");
    client.log_in(&mut world);
    for port in 2..2000 {
        let mut forged = Client::at(&format!("198.51.100.7:{port}"));
        forged.nonce.clone_from(&client.nonce);
        let request = forged.sealed(&mut world, Method::ALLOCATE, |_| ());
        world.from_client(&forged.path, &request);
    }
    assert!(world.refusals().contains(&Refusal::InvalidNonce), "they were judged");
    assert_eq!(world.looked_up, 0);
    client.allocate(&mut world);
}

#[test]
fn a_user_look_up_that_hangs_is_given_up() {
    let mut world = World::new();
    world.database_hangs = true;
    let mut client = Client::new(1);
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    world.advance(secs(2));
    let again = world.from_client(&client.path, &request);
    assert_eq!(again.dropped(), DropReason::AlreadyPending, "a retransmission is absorbed");
    let answers = world.advance_and_hear(secs(1));
    let [(to, answer)] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!(*to, client.path);
    assert_eq!(client.decode(&request, answer.clone()).code(), Some(500));
    assert!(world.refusals().contains(&Refusal::UserDatabaseUnavailable));
    // The answer of the user database arrives too late for any request. The next request is served
    // as usual.
    world.handle_event(Event::UserFound { pending: PendingId(0), answer: UserAnswer::Unknown });
    world.database_hangs = false;
    client.allocate(&mut world);
}

#[test]
fn while_look_ups_hang_a_known_client_is_prolonged_without() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    world.database_hangs = true;
    // Other clients have taken all of their slots.
    for network in 0..250 {
        for port in 1..=20 {
            let mut other = Client::at(&format!("192.{network}.2.1:{port}"));
            let request = other.sealed(&mut world, Method::ALLOCATE, |_| ());
            world.from_client(&other.path, &request);
        }
    }
    let request = client.sealed(&mut world, Method::REFRESH, |_| ());
    assert!(matches!(world.from_client(&client.path, &request), Fate::Wait));
    let answers = world.advance_and_hear(secs(3));
    let mine = answers.iter().filter(|(to, _)| *to == client.path).collect::<Vec<_>>();
    let [(_, answer)] = &mine[..] else { panic!("{} answers", mine.len()) };
    client.decode(&request, answer.clone()).success();
    assert!(answers.len() > limits::PENDING_USERS_MAX as usize / 8 * 7);
}

#[test]
fn no_network_keeps_others_from_look_ups() {
    for name in ["one address", "a /48", "a /16"] {
        let address = |number: u16| match name {
            "one address" => format!("198.51.100.1:{}", number + 1),
            "a /48" => format!("[2001:db8:1:{number:x}::1]:1"),
            _ => format!("198.51.{}.{}:1", number >> 8, number & 255),
        };
        let mut world = granting(0);
        world.database_hangs = true;
        let mut wait = |mut client: Client| {
            let request = client.sealed(&mut world, Method::ALLOCATE, |_| ());
            matches!(world.from_client(&client.path, &request), Fate::Wait)
        };
        let waiting = (0..5000).filter(|number| wait(Client::at(&address(*number)))).count();
        assert!(waiting > limits::PENDING_USERS_MAX as usize / 2, "{name}: {waiting}");
        for host in ["192.0.2.1:1", "203.0.113.1:1", "[2001:db8:f::1]:1", "[2a00::1]:1"] {
            assert!(wait(Client::at(host)), "{name}: {host} waits as well");
        }
    }
}

#[test]
fn a_client_has_a_few_look_ups_at_a_time_and_is_told_so_over_a_connection() {
    let mut world = World::new();
    world.database_hangs = true;
    for (transport, dropped) in [(Transport::Udp, true), (Transport::Tcp, false)] {
        let mut client = Client::at("192.0.2.1:1").over(transport);
        client.log_in(&mut world);
        let mut ask = || {
            let request = client.sealed(&mut world, Method::ALLOCATE, |_| ());
            (world.from_client(&client.path, &request), request)
        };
        for _ in 0..limits::PENDING_USERS_PER_FIVE_TUPLE_MAX {
            assert!(matches!(ask().0, Fate::Wait));
        }
        match ask() {
            (Fate::Drop(reason), _) => {
                assert_eq!((reason, dropped), (DropReason::TooManyPending, true));
            }
            (Fate::Reply(reply), request) => {
                assert_eq!((client.decode(&request, reply).code(), dropped), (Some(500), false));
                assert!(world.refusals().contains(&Refusal::UserLookupsOverloaded));
            }
            (other, _) => panic!("{transport:?}: {other:?}"),
        }
    }
}

/// Overloaded is not unavailable: a database that was not queried confirms no user.
#[test]
fn a_deleted_user_is_not_prolonged_by_an_overload() {
    for is_overloaded in [false, true] {
        let mut world = World::new();
        let mut client = Client::at("192.0.2.1:1").over(Transport::Tcp);
        client.allocate(&mut world);
        world.database_is_overloaded = is_overloaded;
        world.no_database = !is_overloaded;
        let request = client.sealed(&mut world, Method::REFRESH, |_| ());
        let reply = client.exchange(&mut world, &request);
        assert_eq!(reply.code(), is_overloaded.then_some(500));
    }
}

/// Over UDP an overload is silent: the client repeats its request.
#[test]
fn an_overload_makes_a_client_over_udp_repeat_its_request() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.log_in(&mut world);
    world.database_is_overloaded = true;
    let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
        builder.requested_transport(17);
    });
    assert!(!matches!(world.from_client(&client.path, &request), Fate::Reply(_)));
    world.database_is_overloaded = false;
    client.exchange(&mut world, &request).success();
}

/// A right password is not charged as a guess, even for an expired credential.
#[test]
fn expired_credentials_do_not_lock_their_neighbours_out() {
    const SECRET: &[u8] = b"0123456789abcdef";
    const EXPIRED: &str = "1000000000:bob";
    let mut policy = policy();
    policy.unauthenticated = UnauthenticatedBudget { per_second: 2000 };
    for name in ["other", "web", "third"] {
        let bytes = if name == "web" { SECRET } else { name.as_bytes() };
        policy
            .auth
            .secrets
            .push(SharedSecret { name: name.into(), secret: Secret::new(bytes.into()) });
    }
    let mut world = World::with(policy);
    let mut expired = Client::at("198.51.100.7:1");
    expired.user = EXPIRED;
    expired.password = time_limited_password(SECRET, EXPIRED).leak();
    expired.log_in(&mut world);
    for _ in 0..500 {
        let request = expired.sealed(&mut world, Method::ALLOCATE, |_| ());
        world.from_client(&expired.path, &request);
    }
    assert_eq!(world.refusals().last(), Some(&Refusal::CredentialExpired));
    Client::at("198.51.100.7:2").allocate(&mut world);
}

/// A look-up is charged instead of its response: the number of responses equals the budget.
#[test]
fn a_request_whose_user_is_looked_up_is_charged_once() {
    const BUDGET: u32 = 200;
    let mut world = granting(BUDGET);
    world.no_database = true;
    let mut client = Client::at("198.51.100.7:5000");
    client.log_in(&mut world);
    let requests = (0..10 * BUDGET).filter(|_| {
        let request = client.sealed(&mut world, Method::ALLOCATE, |_| ());
        matches!(world.from_client(&client.path, &request), Fate::Reply(_))
    });
    assert_eq!(requests.count(), BUDGET as usize);
    assert_eq!(world.looked_up, BUDGET);
}

/// The longest request that may wait is one packet of an Ethernet.
#[test]
fn long_requests_wait_for_no_user() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.log_in(&mut world);
    let mut of_length = |len: usize| {
        let bare = client.sealed(&mut world, Method::ALLOCATE, |_| ()).len();
        let padding = vec![0; len - bare - 4];
        let request = client.sealed(&mut world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).attribute(AttributeType(0xC0DE), &padding[8..]);
        });
        assert_eq!(request.len(), len);
        let before = world.looked_up;
        (client.exchange(&mut world, &request).code(), world.looked_up - before)
    };
    assert_eq!(of_length(limits::WAITING_REQUEST_MAX + 4), (Some(400), 0));
    assert_eq!(of_length(limits::WAITING_REQUEST_MAX), (None, 1));
}

fn limited(change: impl FnOnce(&mut Quotas)) -> World {
    let mut policy = policy();
    policy.quotas.permissions = 128;
    change(&mut policy.quotas);
    World::with(policy)
}

/// Returns the number of these peers that a client may start to send to, one after another.
fn new_peers(world: &mut World, client: &mut Client, numbers: core::ops::Range<u8>) -> usize {
    let mut permitted = |number| {
        let reply = client.permit(world, &[&format!("192.0.2.{number}:1")]);
        assert!(matches!(reply.code(), None | Some(508)), "{:?}", reply.code());
        reply.code().is_none()
    };
    numbers.filter(|number| permitted(*number)).count()
}

#[test]
fn new_peers_are_bounded_by_customer_whatever_the_allocation() {
    let mut world = limited(|quotas| quotas.new_peers_per_second = 2);
    // A request with the candidates of a group call fits.
    let mut first = Client::at("198.51.100.7:1");
    first.allocate(&mut world);
    let call: Vec<_> = (1..=50).map(|number| format!("192.0.2.{number}:1")).collect();
    let call: Vec<_> = call.iter().map(String::as_str).collect();
    first.permit(&mut world, &call).success();
    // A scan is refused when 128 addresses are spent, and new allocations and users do not help.
    assert_eq!(new_peers(&mut world, &mut first, 100..150), 50);
    let mut second = Client::at("198.51.100.7:2").as_bob();
    second.allocate(&mut world);
    assert_eq!(new_peers(&mut world, &mut second, 1..100), 28);
    assert_eq!(world.refusals().last(), Some(&Refusal::NewPeerLimit));
    second.bind(&mut world, 0x4000, "192.0.2.200:1").refused(508);
    // Peers that it has cost nothing.
    first.permit(&mut world, &call).success();
    first.bind(&mut world, 0x4000, "192.0.2.1:1").success();
    // Clients of another network notice nothing, and a second permits two more peers.
    let mut elsewhere = Client::at("198.51.100.8:1");
    elsewhere.allocate(&mut world);
    assert_eq!(new_peers(&mut world, &mut elsewhere, 1..51), 50);
    world.advance(secs(1));
    assert_eq!(new_peers(&mut world, &mut second, 100..150), 2);
}

#[test]
fn new_peers_of_an_account_are_bounded_from_all_its_addresses_together() {
    let mut world = limited(|quotas| quotas.new_peers_per_second = 2);
    let mut permitted = 0;
    for host in 1..=40 {
        let mut client = Client::at(&format!("198.51.100.{host}:1"));
        client.allocate(&mut world);
        permitted += new_peers(&mut world, &mut client, 0..100);
    }
    assert_eq!(permitted, 16 * 128, "as many as sixteen addresses");
}

#[test]
fn new_peers_of_an_account_count_one_by_one_in_a_request() {
    let mut world = limited(|quotas| quotas.new_peers_per_second = 2);
    let call: Vec<_> = (0..64).map(|number| format!("192.0.2.{number}:1")).collect();
    let call: Vec<_> = call.iter().map(String::as_str).collect();
    let permitted = (1..=50).filter(|host| {
        let mut client = Client::at(&format!("198.51.100.{host}:1"));
        client.allocate(&mut world);
        client.permit(&mut world, &call).code().is_none()
    });
    assert_eq!(permitted.count(), 32, "as many peers as sixteen addresses may have");
}

#[test]
fn the_allocations_of_an_address_are_bounded_whoever_they_are_of() {
    let mut world = limited(|quotas| quotas.allocations_per_customer = 2);
    Client::at("198.51.100.7:1").allocate(&mut world);
    let mut second = Client::at("198.51.100.7:2").as_bob();
    second.allocate(&mut world);
    Client::at("198.51.100.7:3").try_allocate(&mut world, |_| ()).refused(486);
    assert_eq!(world.refusals().last(), Some(&Refusal::AddressQuota));
    Client::at("198.51.100.8:1").allocate(&mut world);
    second.refresh(&mut world, Some(0)).success();
    Client::at("198.51.100.7:3").allocate(&mut world);
}

#[test]
fn a_spent_budget_is_told_once_a_minute_with_the_source() {
    let mut world = granting(20);
    for _ in 0..3 {
        flood(&mut world, 1..4, 100, Method::BINDING);
    }
    let spent = |world: &mut World| {
        let notices = std::mem::take(&mut world.notices);
        let source = |notice| {
            let Notice::BudgetSpent { budget, source } = notice else { return None };
            Some((budget, source))
        };
        notices.into_iter().filter_map(source).collect::<Vec<_>>()
    };
    let network: Prefix = "198.51.100.0/24".parse().unwrap();
    assert_eq!(spent(&mut world), [(Budget::Bindings, network)]);
    world.advance(secs(59));
    flood(&mut world, 1..4, 100, Method::BINDING);
    assert_eq!(spent(&mut world), []);
    world.advance(secs(1));
    flood(&mut world, 1..4, 100, Method::BINDING);
    assert_eq!(spent(&mut world), [(Budget::Bindings, network)]);
}
