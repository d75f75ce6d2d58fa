//! The text over HTTP/1.1: `GET /metrics`, and nothing else.
//!
//! One thread without privileges, a request for each connection, a limited number of connections at a time, and limits on all that a
//! client could make long: what a client does neither stops the daemon nor costs it memory. Nothing that a client sends is
//! kept, shown or executed.
//!
//! A whole request is answered at once, so a connection that lasts is one whose client is silent or slow. The oldest one is closed
//! for a new one, so that no number of such clients keeps another one waiting.

use crate::text::{MEDIA_TYPE, Text};
use fragmend_sys::capabilities::{self, Capabilities};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use std::{io, thread};
use tokio::net::{TcpSocket, TcpStream};
use tokio::select;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 64;
/// The longest that a connection lasts, from its first byte to the last of the answer.
const LONGEST_CONNECTION: Duration = Duration::from_secs(5);
/// How long no connection is accepted after one could not be, for want of descriptors, for example.
const PAUSE: Duration = Duration::from_millis(100);
/// Memory for what a client sends, in bytes.
const BUFFER: usize = 16 << 10;
/// Headers of a request.
const MOST_HEADERS: usize = 32;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("metrics cannot be served at {at}; name another address, or \"off\"")]
    Address {
        /// The address.
        at: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// There is no thread for it, or it keeps privileges.
    #[error("metrics cannot be served")]
    Thread(#[source] io::Error),
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    at: SocketAddr,
    text: Arc<Mutex<Text>>,
    /// Its end ends the thread.
    _alive: oneshot::Sender<Infallible>,
}

impl Server {
    /// Listens at `at`, and serves `text` until something else is set. The thread that does has no capability.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(at: SocketAddr, text: Text) -> Result<Self, ServeError> {
        let refused = |source| ServeError::Address { at, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServeError::Thread)?;
        let listener = TcpListener::bind(at).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let at = listener.local_addr().map_err(refused)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(refused)?
        };
        let text = Arc::new(Mutex::new(text));
        let served = Arc::clone(&text);
        let (alive, ended) = oneshot::channel();
        let (begun, has_begun) = mpsc::channel();
        let serve = move || {
            let dropped = capabilities::keep_only(Capabilities::empty());
            let is_without = dropped.is_ok();
            if begun.send(dropped).is_ok() && is_without {
                runtime.block_on(async {
                    select! {
                        () = serve(listener, served) => {}
                        _ = ended => {}
                    }
                });
            }
        };
        thread::Builder::new().name("metrics".into()).spawn(serve).map_err(ServeError::Thread)?;
        let begun = has_begun.recv().unwrap_or_else(|ended| Err(io::Error::other(ended)));
        begun.map_err(ServeError::Thread)?;
        Ok(Self { at, text, _alive: alive })
    }

    /// Checks that it could listen at `at`, where perhaps one does already; nobody is kept from listening there meanwhile.
    ///
    /// # Errors
    /// [`ServeError::Address`].
    pub fn check(at: SocketAddr) -> Result<(), ServeError> {
        let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bind = |socket: TcpSocket| {
            socket.set_reuseaddr(true)?;
            socket.bind(at)
        };
        match socket.and_then(bind) {
            Err(source) if source.kind() != io::ErrorKind::AddrInUse => {
                Err(ServeError::Address { at, source })
            }
            _ => Ok(()),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// What is served from now on.
    pub fn set(&self, text: Text) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

async fn serve(listener: tokio::net::TcpListener, text: Arc<Mutex<Text>>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == MOST_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(answer_one(stream, Arc::clone(&text))).abort_handle());
        // What has come in on the others is read before there is one more.
        yield_now().await;
    }
}

async fn answer_one(stream: TcpStream, text: Arc<Mutex<Text>>) {
    let answer = service_fn(move |request| {
        let answer = answer(&request, &text);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    // A client that breaks the protocol, leaves, or is too slow is no failure of the daemon.
    let _ = timeout(LONGEST_CONNECTION, connection).await;
}

fn answer(request: &Request<Incoming>, text: &Mutex<Text>) -> Response<Full<Bytes>> {
    let is_known = request.uri().path() == "/metrics";
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, body, kind) = match (is_known, is_read) {
        (true, true) => {
            let text = text.lock().unwrap_or_else(PoisonError::into_inner).open.clone();
            (StatusCode::OK, text, MEDIA_TYPE)
        }
        (true, false) => (StatusCode::METHOD_NOT_ALLOWED, "GET it\n".into(), "text/plain"),
        (false, _) => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".into(), "text/plain"),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
