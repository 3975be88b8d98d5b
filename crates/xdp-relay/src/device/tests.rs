use super::testing::{attach, command, load, may_load, namespace, pass_program, succeeds};
use super::*;

#[test]
fn devices_are_listed_with_their_features() {
    let Some(host) = namespace() else { return };
    host.ip("link add v0 address 02:00:00:00:00:07 mtu 1400 type veth peer name v1
        link set v0 up
        link add b0 type bridge
        link add link v0 name m0 type macvlan
        tuntap add name t0 mode tun
        tuntap add name t1 mode tap");
    let kind = |name: &str| host.device(name).kind;
    assert_eq!(kind("lo"), Kind::Loopback);
    assert_eq!(kind("t0"), Kind::NotEthernet);
    for name in ["v0", "v1", "b0", "m0", "t1"] {
        assert_eq!(kind(name), Kind::Virtual, "{name}");
    }
    // Some kernels cannot create these devices.
    for added in ["link v0 name x0 type vlan id 5", "x0 type dummy", "x0 type bond"] {
        if host.run(|| succeeds("ip", &format!("link add {added}"))) {
            assert_eq!(kind("x0"), Kind::Virtual, "{added}");
            host.ip("link del x0");
        }
    }
    if host.run(|| succeeds("ip", "link add x0 type wireguard")) {
        assert_eq!(kind("x0"), Kind::NotEthernet);
    }
    let veths = ["v0", "v1", "b0", "m0", "t1", "lo"].map(|name| host.device(name).veth);
    assert_eq!(veths, [true, true, false, false, false, false]);
    let v0 = host.device("v0");
    assert_eq!((v0.mac, v0.mtu, v0.up), ([2, 0, 0, 0, 0, 7], 1400, true));
    assert!(!host.device("v1").up);
    assert_eq!(host.device("lo").index, 1);
    let index = host.run(|| linux_net::interface_index("v0").unwrap());
    assert_eq!(v0.index, index);
}

#[test]
fn more_devices_than_fit_into_one_answer() {
    let Some(host) = namespace() else { return };
    host.run(|| {
        let all: String = (0..200).map(|n| format!("link add d{n} type bridge\n")).collect();
        let mut ip = std::process::Command::new("ip")
            .args(["-batch", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Write::write_all(&mut ip.stdin.take().unwrap(), all.as_bytes()).unwrap();
        assert!(ip.wait().unwrap().success());
        let devices = devices().unwrap();
        assert_eq!(devices.iter().filter(|device| device.name.starts_with('d')).count(), 200);
        assert!(devices.is_sorted_by_key(|device| device.index));
    });
}

#[test]
fn a_device_of_no_kind_is_a_card() {
    // Link of a network card, without IFLA_LINKINFO, which marks devices made by software.
    let mut answer = vec![0; LINK_HEADER];
    answer[2..4].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
    answer[4..8].copy_from_slice(&9_u32.to_ne_bytes());
    answer[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    let mut attribute = |kind: u16, value: &[u8]| {
        answer.extend((value.len() as u16 + 4).to_ne_bytes());
        answer.extend(kind.to_ne_bytes());
        answer.extend(value);
        answer.resize(answer.len().next_multiple_of(4), 0);
    };
    attribute(libc::IFLA_IFNAME, b"enp3s0\0");
    attribute(libc::IFLA_MTU, &9000_u32.to_ne_bytes());
    attribute(libc::IFLA_ADDRESS, &[2, 3, 4, 5, 6, 7]);
    let card = read_link(&answer).unwrap();
    let expected = Device {
        name: "enp3s0".into(),
        index: 9,
        mac: [2, 3, 4, 5, 6, 7],
        mtu: 9000,
        up: true,
        kind: Kind::Physical,
        port: false,
        veth: false,
        xdp: None,
    };
    assert_eq!(card, expected);
    // A truncated answer provides less or nothing, and never causes a panic.
    for len in 0..answer.len() {
        let less = read_link(&answer[..len]);
        assert!(less.is_none_or(|less| less.name == card.name), "{len}");
    }
}

#[test]
fn truncated_features_are_ignored() {
    let mut answer = vec![NETDEV_CMD_DEV_GET, 1, 0, 0];
    answer.extend([8, 0, NETDEV_A_DEV_IFINDEX as u8, 0]);
    answer.extend(7_u32.to_ne_bytes());
    answer.extend([12, 0, NETDEV_A_DEV_XDP_FEATURES as u8, 0]);
    answer.extend(0x25_u64.to_ne_bytes());
    let features = XdpFeatures { basic: true, redirect: false, ndo_xmit: true, bits: 0x25 };
    assert_eq!(read_features(&answer), Some((7, features)));
    for len in 0..answer.len() {
        assert_eq!(read_features(&answer[..len]), None);
    }
}

#[test]
fn a_veth_sends_redirected_frames_while_its_peer_accepts_them() {
    let Some(host) = namespace() else { return };
    if kernel_is_older_than((6, 3)) {
        return test_support::skip("what drivers do of XDP is told by Linux 6.3 and newer");
    }
    host.ip("link add v0 type veth peer name v1
        link set v0 up
        link set v1 up");
    let sends = |name: &str| host.device(name).xdp.unwrap().ndo_xmit;
    let features = host.device("v0").xdp.unwrap();
    assert!(features.basic && features.redirect, "{features:?}");
    assert!(!sends("v0") && !sends("v1"));

    host.run(|| command("ethtool", "-K v1 gro on"));
    assert!(sends("v0") && !sends("v1"));
    host.run(|| command("ethtool", "-K v1 gro off"));
    assert!(!sends("v0"));

    if !may_load() {
        return;
    }
    let index = host.device("v1").index;
    let program = load(&pass_program());
    let link = host.run(|| attach(&program, index).unwrap());
    assert!(sends("v0") && !sends("v1"));
    drop(link);
    assert!(!sends("v0"));
}

#[test]
fn a_driver_takes_no_program_above_the_mtu_that_is_said_here() {
    let Some(host) = namespace() else { return };
    if !may_load() {
        return;
    }
    host.ip(&format!("link add v0 mtu {NATIVE_MTU_MAX} type veth peer name v1"));
    let index = host.device("v0").index;
    let program = load(&pass_program());
    drop(host.run(|| attach(&program, index).unwrap()));
    host.ip("link set v0 mtu 9000\nlink set v1 mtu 9000");
    let error = host.run(|| attach(&program, index).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::ERANGE), "{error}");
}
