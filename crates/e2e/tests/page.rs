//! The page for operators, in a real browser, of a server with calls going on.

use std::process::Command;

use e2e::certificates::{Certificates, ECDSA};
use e2e::{Browser, Config, Host, Lab, Running, Server, chromium, coturn, echo_peer, require};
use serde_json::json;

/// A name that would be a script if it were taken for markup.
const EVIL: &str = "<img-src=x-onerror=alert(1)>";

const PORT: u16 = 9642;

struct Scene {
    server: Server,
    browser: Browser,
    url: String,
    _calls: Vec<Running>,
    lab: Lab,
}

/// A server with two calls of two users, and a browser at `host`: on loopback, or over TLS.
fn scene(host: Host) -> Option<Scene> {
    require(coturn())?;
    let program = require(chromium())?;
    let lab = require(Lab::new())?;
    let mut config = Config::for_lab(&lab);
    config.accounts.push(e2e::Account { name: EVIL, password: "correct-horse-battery" });
    let over_tls = host == Host::Client;
    let address = if over_tls { lab.v4.listen.to_string() } else { "127.0.0.1".to_owned() };
    config.tables =
        format!("[api]\nlisten = [\"{address}:{PORT}\"]\n[[realms]]\nname = \"b.example\"\n");
    let certificates = Certificates::new(&lab);
    if over_tls {
        certificates.make("page", "turn.test", ECDSA, "30");
        let path = |end: &str| certificates.path(&format!("page.{end}")).display().to_string();
        let (chain, key) = (path("pem"), path("key"));
        config.tables +=
            &format!("[tls]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n");
        config.tables += "[offload]\nmode = \"off\"\n";
    }
    let server = Server::start(&lab, &config);
    let peer = lab.v4.peer.to_string();
    let mut calls = vec![echo_peer(&lab, lab.v4.peer)];
    for user in ["alice", EVIL] {
        calls.push(Running::start(
            lab.command(Host::Client, "turnutils_uclient")
                .args(["-u", user, "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"])
                .args(["-c", "-m", "1", "-n", "100000", "-z", "5", &lab.v4.listen.to_string()]),
        ));
    }
    let browser = Browser::start(&lab, host, program);
    let scheme = if over_tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}:{PORT}/");
    Some(Scene { server, browser, url, _calls: calls, lab })
}

impl Scene {
    fn token(&self, role: &str) -> String {
        let added = self.server.json(&["token", "add", role, "--role", role]);
        added["token"].as_str().expect("a token").to_owned()
    }

    /// Signs in by the keyboard alone.
    fn sign_in(&mut self, token: &str) {
        let url = self.url.clone();
        let Self { browser, .. } = self;
        browser.open(&url);
        browser.wait("document.activeElement.id === 'token'");
        browser.type_text(token);
        browser.press("Enter");
    }

    /// Saves a picture of the page where `PAGE_PICTURES` names a directory, for people.
    fn picture(&mut self, name: &str) {
        let picture = self.browser.picture();
        assert!(picture.len() > 4000, "{name}: an empty picture");
        let Ok(directory) = std::env::var("PAGE_PICTURES") else { return };
        let path = format!("{directory}/{name}.png.base64");
        std::fs::write(&path, picture).expect("written");
        drop(
            Command::new("sh")
                .arg("-c")
                .arg(format!("base64 -d {path} > {directory}/{name}.png; rm {path}"))
                .status(),
        );
    }

    /// Presses or releases the mouse at the middle of an element: `mousePressed`, `mouseReleased`.
    fn mouse(&mut self, event: &str, element: &str) {
        let [x, y] = ["left + at.width", "top + at.height"].map(|middle| {
            let at = format!("document.querySelector({element:?}).getClientRects()[0]");
            self.browser.eval(&format!("(() => {{ const at = {at}; return at.{middle} / 2; }})()"))
        });
        let buttons = u8::from(event == "mousePressed");
        let event = json!({
            "type": event, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1,
        });
        self.browser.call("Input.dispatchMouseEvent", &event);
    }

    /// Waits for two refreshes of the page or more.
    fn while_it_refreshes(&mut self) {
        self.browser.eval("window.since = performance.now()");
        self.browser.wait("performance.now() - since > 5000");
    }

    /// Has a client without an account and one with a wrong password ask for an allocation.
    fn refusals(&self) {
        for user in ["mallory", "alice"] {
            let refused = self
                .lab
                .command(Host::Client, "timeout")
                .args(["10", "turnutils_uclient", "-u", user, "-w", "guessed", "-e"])
                .args([&self.lab.v4.peer.to_string(), "-n", "1", "-m", "1", "-c"])
                .arg(self.lab.v4.listen.to_string())
                .output();
            assert!(!refused.expect("uclient runs").status.success(), "{user} is refused");
        }
    }

    fn ids(&self) -> Vec<String> {
        let sessions = self.server.json(&["sessions"]);
        let sessions = sessions["sessions"].as_array().cloned().unwrap_or_default();
        sessions.iter().filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect()
    }
}

#[test]
fn the_page_shows_the_server_and_ends_a_session_by_keyboard() {
    let Some(mut scene) = scene(Host::Server) else { return };
    let token = scene.token("operate");
    scene.sign_in("turnpike_wrong");
    scene.browser.wait("document.body.innerText.includes('the token is wrong')");
    scene.picture("sign-in");
    scene.sign_in(&token);

    // Live numbers.
    scene.browser.wait("document.querySelector('#from_clients')?.textContent.includes('bit/s')");
    scene.browser.wait("Number(document.querySelector('#allocations').textContent) >= 2");
    scene.browser.eval("window.seen = new Set()");
    scene.browser.wait(
        "seen.add(document.querySelector('#from_clients').parentElement.textContent).size >= 3",
    );
    // Views, in both schemes and at the width of a phone.
    for (view, text) in [
        ("overview", "From clients"),
        ("sessions", "alice"),
        ("users", "alice"),
        ("refusals", "Refusals"),
        ("configuration", "api.listen"),
        ("log", "relay.external"),
    ] {
        scene.browser.eval(&format!("location.hash = '#/{view}'"));
        scene.browser.wait(&format!("document.querySelector('main').innerText.includes('{text}')"));
        for (width, scheme) in [(1200, "light"), (390, "dark")] {
            scene.browser.look(width, 800, scheme);
            scene.picture(&format!("{view}-{width}-{scheme}"));
            let wide = scene.browser.eval("document.documentElement.scrollWidth > innerWidth");
            assert_eq!(wide, json!(false), "{view} is wider than {width}");
        }
    }
    scene.browser.look(1200, 800, "light");

    // Lines of the last seconds, and the share of the kernel where it relays.
    scene.browser.eval("location.hash = '#/overview'");
    scene
        .browser
        .wait("document.querySelector('.spark')?.getAttribute('points').split(' ').length > 3");
    let by_kernel = &scene.server.json(&["status"])["offload"]["by_kernel"]["to_peers"]["packets"];
    if by_kernel.as_u64() > Some(0) {
        scene.browser.wait("parseInt(document.querySelector('#kernel').textContent, 10) > 0");
    }
    scene.picture("overview-later-1200-light");

    // The user's name is text.
    scene.browser.eval("location.hash = '#/sessions'");
    scene.browser.wait(&format!("document.querySelector('table')?.innerText.includes('{EVIL}')"));
    assert_eq!(scene.browser.eval("document.querySelectorAll('main img').length"), json!(0));

    // By the keyboard alone: the filter, the session, its end.
    let before = scene.ids();
    scene.browser.tab_to("document.activeElement.id === 'filter'");
    scene.browser.type_text("alice");
    scene.browser.wait(
        "document.querySelectorAll('tbody tr').length > 0 && !document.querySelector('table').innerText.includes('onerror')",
    );
    scene.browser.tab_to("document.activeElement.getAttribute('href')?.startsWith('#/session/')");
    scene.browser.press("Enter");
    scene.browser.wait("location.hash.startsWith('#/session/')");
    let id = scene.browser.eval("location.hash.split('/')[2]");
    let id = id.as_str().expect("an id").to_owned();
    scene.browser.wait("document.querySelector('main').innerText.includes('Timeline')");
    scene.picture("session-1200-light");
    scene.browser.look(390, 800, "dark");
    scene.picture("session-390-dark");
    assert!(before.contains(&id), "{before:?} {id}");
    scene.browser.tab_to("document.activeElement.id === 'end'");
    scene.browser.press("Enter");
    scene.browser.tab_to("document.activeElement.id === 'really'");
    scene.picture("dialog-390-dark");
    scene.browser.press("Enter");
    scene.browser.wait("document.body.innerText.includes('was ended')");
    let left = scene.ids();
    assert!(!left.contains(&id) && before.iter().any(|one| left.contains(one)), "{id}: {left:?}");

    // Another site's page gets nothing done with the cookie, and a removed token signs out.
    // The browser's own lines about status 401 of the sign-in.
    scene.browser.errors.retain(|error| !error.contains("status of 401"));
    assert_eq!(scene.browser.errors, Vec::<String>::new());
    let removed = scene.server.ask(&["token", "remove", "operate"]);
    assert!(removed.ok, "{}", removed.output);
    scene.browser.wait("document.activeElement.id === 'token'");
}

/// Age of the first session of the table.
const AGE: &str = "document.querySelector('tbody tr').cells[3].textContent";

#[test]
fn rows_stay_while_the_page_refreshes_and_wait_while_the_user_presses_or_selects() {
    let Some(mut scene) = scene(Host::Server) else { return };
    let token = scene.token("read");
    scene.sign_in(&token);
    scene.browser.wait("!document.getElementById('header').hidden");
    scene.browser.eval("location.hash = '#/sessions'");
    scene.browser.wait("document.querySelectorAll('tbody tr').length >= 2");

    // Sorted in both directions, with a mark of it.
    let mark =
        "getComputedStyle(document.querySelector('th[aria-sort] button'), '::after').content";
    let user = "document.querySelector('th button')";
    for (direction, arrow) in [("ascending", '▲'), ("descending", '▼')] {
        scene.browser.eval(&format!("{user}.click()"));
        scene
            .browser
            .wait(&format!("{user}.closest('th').getAttribute('aria-sort') === '{direction}'"));
        let content = scene.browser.eval(mark);
        assert!(content.as_str().is_some_and(|text| text.contains(arrow)), "{content}");
    }

    // New texts in the same rows, cells and nodes; another order of the same rows.
    scene.browser.eval(&format!(
        "window.rows = [...document.querySelectorAll('tbody tr')]; \
         window.parts = rows.flatMap((row) => [row, ...row.cells, row.cells[3].firstChild]); \
         window.age = {AGE}"
    ));
    scene.browser.wait(&format!("{AGE} !== age"));
    assert_eq!(scene.browser.eval("parts.every((part) => part.isConnected)"), json!(true));
    scene.browser.eval(&format!("{user}.click()"));
    scene.browser.wait("document.querySelector('tbody').firstChild !== rows[0]");
    assert_eq!(scene.browser.eval("parts.every((part) => part.isConnected)"), json!(true));

    // A selected text.
    scene.browser.eval(&format!(
        "getSelection().selectAllChildren(document.querySelector('tbody td')); \
         window.selected = getSelection().toString(); window.age = {AGE}"
    ));
    scene.while_it_refreshes();
    assert_eq!(
        scene.browser.eval(&format!("[{AGE} === age, getSelection().toString() === selected]")),
        json!([true, true])
    );
    assert_eq!(scene.browser.eval("document.getElementById('paused').hidden"), json!(false));
    scene.picture("selected");
    scene.browser.eval("getSelection().removeAllRanges()");
    scene.browser.wait(&format!("{AGE} !== age"));
    assert_eq!(scene.browser.eval("document.getElementById('paused').hidden"), json!(true));

    // A slow click.
    scene.mouse("mousePressed", "tbody a");
    scene.browser.eval(&format!("window.age = {AGE}"));
    scene.while_it_refreshes();
    assert_eq!(scene.browser.eval(&format!("{AGE} === age")), json!(true));
    scene.mouse("mouseReleased", "tbody a");
    scene.browser.wait("location.hash.startsWith('#/session/')");
    scene.browser.errors.retain(|error| !error.contains("status of 401"));
    assert_eq!(scene.browser.errors, Vec::<String>::new());
}

/// Names in `code`, or parts of them between breaks, that are on two lines.
const BROKEN: &str = "(() => { const range = document.createRange(); \
    return [...document.querySelectorAll('td code')].flatMap((code) => [...code.childNodes]) \
    .filter((part) => part.nodeType === 3 && !/[^a-z_.]/.test(part.data)) \
    .filter((part) => { range.selectNodeContents(part); return range.getClientRects().length > 1; }) \
    .map((part) => part.data).join(' '); })()";

/// Number of tables that need horizontal scrolling.
const WIDER: &str = "[...document.querySelectorAll('.scroll')] \
    .filter((one) => one.scrollWidth > one.clientWidth).length";

#[test]
fn the_overview_tells_the_host_the_last_hour_and_advice_that_a_phone_shows() {
    let Some(mut scene) = scene(Host::Client) else { return };
    scene.refusals();
    let token = scene.token("read");
    scene.sign_in(&token);
    scene.browser.wait("!document.getElementById('header').hidden");

    // The last hour, before this page was there.
    scene.browser.eval("location.hash = '#/log'");
    scene.browser.wait(
        "fetch('/v1/history').then(async (answer) => { window.points = (await answer.json()).points; }) \
         && window.points?.length >= 3",
    );
    scene.browser.eval("window.opened = performance.now(); location.hash = '#/overview'");
    let length = "(() => { const xs = document.querySelector('.spark').getAttribute('points') \
                  .split(' ').map((point) => parseFloat(point)); return xs.at(-1) - xs[0]; })()";
    scene.browser.wait(&format!("{length} >= 30"));
    let waited = scene.browser.eval("performance.now() - opened");
    assert!(waited.as_f64() < Some(28_000.0), "the page has not watched for so long: {waited}");
    assert_eq!(
        scene
            .browser
            .eval("document.querySelectorAll('[aria-label$=\"of the last hour\"]').length"),
        json!(5)
    );

    // Name, addresses and resources of the server.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let host = host.trim();
    scene.browser.wait(&format!("document.title === '{host} · Turnpike'"));
    let facts = scene.browser.eval("document.querySelector('dl').innerText");
    let facts = facts.as_str().expect("a text");
    let listener = format!("{}:3478", scene.lab.v4.listen);
    for fact in [host, &listener, " of 16,384", "MiB", "Open files"] {
        assert!(facts.contains(fact), "{fact}: {facts}");
    }
    let kernel = scene.browser.eval("document.getElementById('kernel').parentElement.innerText");
    let kernel = kernel.as_str().expect("a text");
    assert!(kernel.contains("off") && kernel.contains("offload.mode"), "{kernel}");

    // Reasons with meaning and advice: whole words, commands as such, and as wide as the screen.
    for view in ["overview", "refusals"] {
        scene.browser.eval(&format!("location.hash = '#/{view}'"));
        scene.browser.wait("document.querySelector('td code')");
        for (width, scheme) in [(1280, "dark"), (360, "light")] {
            scene.browser.look(width, 800, scheme);
            scene.picture(&format!("{view}-advice-{width}-{scheme}"));
            assert_eq!(scene.browser.eval(BROKEN), json!(""), "{view} at {width}");
            assert_eq!(scene.browser.eval(WIDER), json!(0), "{view} at {width}");
        }
        let commands = scene.browser.eval(
            "[...document.querySelectorAll('td code')].map((code) => code.textContent).join('\\n')",
        );
        assert!(commands.as_str().is_some_and(|all| all.contains("turnpike user list")), "{view}");
        let text = scene.browser.eval("document.querySelector('main').innerText");
        assert!(text.as_str().is_some_and(|text| !text.contains('`')), "{text}");
    }
}

#[test]
fn over_tls_from_another_host_and_not_from_another_site() {
    let Some(mut scene) = scene(Host::Client) else { return };
    let token = scene.token("read");
    scene.sign_in(&token);
    scene.browser.wait("document.querySelector('#from_clients')?.textContent.includes('bit/s')");
    // A reader may not end a session.
    let id = scene.ids().pop().expect("a session");
    scene.browser.eval(&format!("location.hash = '#/session/{id}'"));
    scene.browser.wait("document.querySelector('#end')?.disabled");
    assert_eq!(
        scene.browser.eval(&format!(
            "fetch('/v1/sessions/{id}', {{ method: 'DELETE' }}).then((a) => a.status)"
        )),
        json!(403)
    );
    assert_eq!(scene.browser.eval("document.cookie"), json!(""), "out of reach of script");
    assert_eq!(
        scene.browser.eval("Object.keys(localStorage).length + Object.keys(sessionStorage).length"),
        json!(0)
    );
    // A page of another origin, in the same browser.
    scene.browser.open("data:text/html,<title>elsewhere</title>");
    let url = scene.url.clone();
    let reached = format!(
        "fetch('{url}v1/status', {{ credentials: 'include' }}).then((answer) => answer.status, () => 'refused')"
    );
    assert_eq!(scene.browser.eval(&reached), json!("refused"));
    let blind = format!(
        "fetch('{url}v1/sessions/{id}', {{ method: 'POST', mode: 'no-cors', credentials: 'include' }}).then(() => 'sent', () => 'refused')"
    );
    scene.browser.eval(&blind);
    assert!(scene.ids().contains(&id));
    let log = scene.server.process.output();
    assert!(!log.contains(&token), "a token is in the log");
}

#[test]
fn an_administrator_adds_a_user_who_relays_and_deletes_it() {
    let Some(mut scene) = scene(Host::Server) else { return };
    let token = scene.token("admin");
    scene.sign_in(&token);
    scene.browser.wait("location.hash !== undefined && document.querySelector('nav a')");
    scene.browser.eval("location.hash = '#/accounts'");
    scene.browser.wait("document.querySelectorAll('#list tbody tr').length >= 2");
    scene.browser.eval("document.getElementById('name').focus()");
    scene.browser.type_text("carol");
    scene.browser.press("Enter");
    scene.browser.wait("document.querySelector('#made code')");
    scene.picture("accounts");
    let password = scene.browser.eval("document.querySelector('#made code').textContent");
    let password = password.as_str().expect("a password").to_owned();
    let peer = scene.lab.v4.peer.to_string();
    let relays = |scene: &Scene| {
        let status = scene
            .lab
            .command(Host::Client, "turnutils_uclient")
            .args(["-u", "carol", "-w", &password, "-e", &peer, "-r", "3480"])
            .args(["-c", "-m", "1", "-n", "5", &scene.lab.v4.listen.to_string()])
            .output();
        status.expect("uclient runs").status.success()
    };
    assert!(relays(&scene), "the new user relays");
    scene.browser.eval("document.querySelector('#list [aria-label=\"Delete carol\"]').click()");
    scene.browser.wait("document.querySelector('dialog').open");
    scene.browser.eval("document.getElementById('really').click()");
    scene
        .browser
        .wait("document.getElementById('notice').textContent.includes('carol was deleted')");
    let unknown = |scene: &Scene| {
        scene.server.json(&["status"])["refusals"]["unknown_user"].as_u64().unwrap_or_default()
    };
    test_support::eventually("the deleted user is refused", || {
        let before = unknown(&scene);
        !relays(&scene) && unknown(&scene) > before
    });

    // A tenant sees its realm, and has the views of one alone.
    let added =
        scene.server.json(&["token", "add", "tenant", "--role", "admin", "--realm", "b.example"]);
    let token = added["token"].as_str().expect("a token").to_owned();
    scene.browser.eval("document.getElementById('sign-out').click()");
    scene.browser.wait("document.activeElement.id === 'token'");
    scene.browser.type_text(&token);
    scene.browser.press("Enter");
    scene.browser.wait("document.querySelector('h1')?.textContent === 'Accounts'");
    scene.browser.wait(
        "document.getElementById('list').textContent.includes('Realm b.example has no users')",
    );
    scene.picture("accounts-of-a-realm");
    let shown = scene.browser.eval(
        "[...document.querySelectorAll('nav li')].filter((one) => !one.hidden).map((one) => one.textContent).join(' ')",
    );
    assert_eq!(shown, "Sessions Users Accounts");
}
