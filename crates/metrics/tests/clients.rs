//! Clients of the server, polite and hostile: each is answered, or left after a few seconds, and no other waits longer for it.

use fragmend_metrics::{Server, Text};
use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What is served here.
const SERVED: &str = "a 1\n# EOF\n";
/// How long a test waits for an answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The least number of clients that are served side by side.
const SIDE_BY_SIDE: usize = 8;
/// Connections that ask for nothing whole.
const HALF_OPEN: usize = 200;
const SCRAPES: usize = 10;
/// Less than the five seconds after which a silent client is left.
const SOON: Duration = Duration::from_secs(4);

fn server() -> Server {
    let text = Text { open: SERVED.into(), plain: String::new() };
    Server::start((Ipv4Addr::LOCALHOST, 0).into(), text).unwrap()
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the server sends until it closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) => {}
        // It has not read all that was sent.
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("it is left open: {e}"),
    }
    answer
}

fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = connect(at);
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    rest(stream)
}

#[test]
fn only_the_metrics_are_served_and_only_read() {
    let server = server();
    let at = server.address();
    let answer = ask(at, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let media = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(media), "{answer}");
    assert!(answer.ends_with(&format!("\r\n\r\n{SERVED}")), "{answer}");
    assert!(ask(at, "HEAD /metrics").ends_with("\r\n\r\n"));
    for (request, status) in [
        ("GET /", "404"),
        ("GET /metrics/../../etc/passwd", "404"),
        ("GET http://other/metrics2", "404"),
        ("POST /metrics", "405"),
        ("DELETE /metrics", "405"),
    ] {
        let answer = ask(at, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(!answer.contains(SERVED), "{request}: {answer}");
    }
    server.set(Text { open: "b 2\n# EOF\n".into(), plain: String::new() });
    assert!(ask(at, "GET /metrics").ends_with("\r\n\r\nb 2\n# EOF\n"));
}

#[test]
fn noise_and_endless_headers_are_refused() {
    let server = server();
    let at = server.address();
    let endless = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"X: y\r\n".repeat(1 << 18)].concat();
    let many =
        [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"X: y\r\n".repeat(100), b"\r\n"].concat();
    let long = [b"GET /".as_slice(), &b"a".repeat(1 << 20), b" HTTP/1.1\r\n\r\n"].concat();
    for noise in [endless, many, long, vec![0; 4096], b"\x16\x03\x01 TLS\r\n\r\n".to_vec()] {
        let mut stream = connect(at);
        // The server may have closed the connection before all is sent.
        let _ = stream.write_all(&noise);
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).is_ok() {
            assert!(answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
        }
    }
    assert!(ask(at, "GET /metrics").ends_with(SERVED));
}

#[test]
fn silent_and_slow_clients_are_left_and_others_are_served() {
    let server = server();
    let at = server.address();
    // As many as are served at a time but one, and nobody waits.
    let mut idle: Vec<TcpStream> = (1..SIDE_BY_SIDE).map(|_| connect(at)).collect();
    let began = Instant::now();
    assert!(ask(at, "GET /metrics").ends_with(SERVED));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // More than are served at a time: the rest is served once the first are left.
    idle.extend((0..SIDE_BY_SIDE).map(|_| connect(at)));
    let mut slow = connect(at);
    slow.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
    assert!(ask(at, "GET /metrics").ends_with(SERVED));
    for client in idle {
        assert_eq!(rest(client), "", "a client that asks nothing is sent nothing");
    }
    rest(slow);
}

#[test]
fn a_scrape_is_served_at_once_while_two_hundred_connections_are_half_open() {
    let server = server();
    let at = server.address();
    let half_open = |n: usize| {
        let mut stream = connect(at);
        // Some say nothing, and some begin a request.
        if n % 2 == 1 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        }
        stream
    };
    let opened = Instant::now();
    let mut open: VecDeque<TcpStream> = (0..HALF_OPEN).map(half_open).collect();
    // Those that are too many are closed, and not only when their time is over.
    assert_eq!(open.pop_front().map(rest).as_deref(), Some(""));
    assert!(opened.elapsed() < SOON, "{:?}", opened.elapsed());
    open.push_back(half_open(HALF_OPEN));
    for n in 0..SCRAPES {
        let began = Instant::now();
        assert!(ask(at, "GET /metrics").ends_with(SERVED));
        assert!(began.elapsed() < SOON, "scrape {n}: {:?}", began.elapsed());
        // One that is closed is replaced.
        open.rotate_left(1);
        open[HALF_OPEN - 1] = half_open(n);
    }
}

/// The names of this process's threads, and their effective capabilities.
fn threads() -> Vec<(String, String)> {
    let status = |path: std::path::PathBuf| {
        // A thread may have ended meanwhile.
        let text = fs::read_to_string(path.join("status")).ok()?;
        let field =
            |name: &str| Some(text.lines().find_map(|l| l.strip_prefix(name))?.trim().to_owned());
        Some((field("Name:")?, field("CapEff:")?))
    };
    let entries = fs::read_dir("/proc/self/task").unwrap();
    entries.filter_map(|entry| status(entry.unwrap().path())).collect()
}

#[test]
fn its_thread_has_no_capability_and_ends_with_it() {
    let server = server();
    let at = server.address();
    let of_servers = || threads().into_iter().filter(|(name, _)| name == "metrics");
    assert!(of_servers().count() > 0);
    for (_, capabilities) in of_servers() {
        assert_eq!(capabilities, "0".repeat(16));
    }
    drop(server);
    let began = Instant::now();
    while TcpStream::connect(at).is_ok() {
        assert!(began.elapsed() < PATIENCE, "something still listens at {at}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_address_that_is_in_use_is_named() {
    let server = server();
    let at = server.address();
    let error = Server::start(at, Text::default()).unwrap_err();
    assert!(error.to_string().contains(&at.to_string()), "{error}");
    // To a check that is no error: it may be the daemon that is to be given another policy.
    Server::check(at).unwrap();
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 9796));
    let errors = [Server::check(elsewhere), Server::start(elsewhere, Text::default()).map(drop)]
        .map(|refused| refused.unwrap_err().to_string());
    assert!(errors.iter().all(|e| e.contains("192.0.2.1:9796")), "{errors:?}");
}
