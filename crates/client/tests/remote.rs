//! The connection against a small server in a thread. The server decodes with `nigh-resp` and
//! answers by a closure. It writes all replies before it reads again, as the least patient server
//! would.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nigh_client::{Address, ClientError, Connection, ConnectionOptions, Frame, Protocol};
use nigh_resp::decode::{Batch, Requests};
use nigh_resp::encode;
use nigh_resp::limits::Limits;

type Request = Vec<String>;

/// Serves one connection until its end. Returns its requests.
fn serve(
    mut stream: impl Read + Write,
    mut answer: impl FnMut(&Request, &mut Vec<u8>),
) -> io::Result<Vec<Request>> {
    let (mut decoder, mut batch) = (Requests::new(Limits::requests()), Batch::new());
    let (mut buf, mut chunk, mut requests) = (Vec::new(), [0; 4096], Vec::new());
    loop {
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            return Ok(requests);
        }
        buf.extend_from_slice(&chunk[..len]);
        batch.clear();
        decoder.decode(&buf, &mut batch, usize::MAX).map_err(io::Error::other)?;
        let mut out = Vec::new();
        for index in 0..batch.len() {
            let text = |arg: &[u8]| String::from_utf8_lossy(arg).into_owned();
            let request: Request = batch.args(index).iter(&buf).map(text).collect();
            answer(&request, &mut out);
            requests.push(request);
        }
        stream.write_all(&out)?;
        buf.drain(..decoder.consume());
    }
}

/// A server on a free port of the loopback, for one connection.
struct Server {
    address: Address,
    thread: JoinHandle<io::Result<Vec<Request>>>,
}

impl Server {
    fn start(answer: impl FnMut(&Request, &mut Vec<u8>) + Send + 'static) -> Self {
        Self::with(move |stream| serve(stream, answer))
    }

    fn with(serve: impl FnOnce(TcpStream) -> io::Result<Vec<Request>> + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = Address::tcp("127.0.0.1", listener.local_addr().expect("bound").port());
        let thread = std::thread::spawn(move || serve(listener.accept()?.0));
        Self { address, thread }
    }

    fn connect(&self, options: &ConnectionOptions) -> Result<Connection, ClientError> {
        Connection::connect(&self.address, options)
    }

    /// The client's requests. Waits until the client has disconnected.
    fn requests(self) -> Vec<Request> {
        self.thread.join().expect("no panic").expect("no error")
    }
}

fn ok(_: &Request, out: &mut Vec<u8>) {
    encode::ok(out);
}

fn simple(text: &str) -> Frame {
    Frame::Simple(text.into())
}

/// Without options a connection sends nothing of its own, and a call gives the reply.
#[test]
fn a_call_gives_the_reply_and_nothing_is_sent_besides() {
    let server = Server::start(|_, out| encode::error(out, "ERR no"));
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    let reply = connection.call(["GET", "key"]).expect("a reply");
    assert_eq!(reply, Frame::Error(b"ERR no".into()));
    drop(connection);
    assert_eq!(server.requests(), [["GET", "key"]]);
}

/// A Unix socket serves as well as TCP.
#[test]
fn unix_sockets_work() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let thread = std::thread::spawn(move || serve(listener.accept()?.0, ok));
    let address: Address = format!("unix:{}", path.display()).parse().expect("an address");
    let mut connection =
        Connection::connect(&address, &ConnectionOptions::default()).expect("connected");
    assert_eq!(connection.call(["PING"]).expect("a reply"), simple("OK"));
    drop(connection);
    assert_eq!(thread.join().expect("no panic").expect("no error"), [["PING"]]);
}

/// RESP3 greets by one HELLO with credentials and name, RESP2 by one command for each.
#[test]
fn the_greeting_carries_credentials_and_name() {
    let named = ConnectionOptions {
        password: Some("secret".into()),
        client_name: Some("shell".into()),
        ..ConnectionOptions::default()
    };
    let server = Server::start(ok);
    let options = ConnectionOptions { protocol: Protocol::Resp3, ..named.clone() };
    drop(server.connect(&options).expect("connected"));
    assert_eq!(
        server.requests(),
        [["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "shell"]]
    );

    let server = Server::start(ok);
    drop(server.connect(&named).expect("connected"));
    let expected = [vec!["AUTH", "secret"], vec!["CLIENT", "SETNAME", "shell"]];
    assert_eq!(server.requests(), expected);

    let mut server = Server::start(ok);
    server.address.user = Some("ann".into());
    server.address.password = Some("word".into());
    drop(server.connect(&ConnectionOptions::default()).expect("connected"));
    assert_eq!(server.requests(), [["AUTH", "ann", "word"]]);
}

/// A user without a password was left out, and the client was another one than it was told. It is
/// sent with an empty password, as other clients of Redis do it; the error says what is missing.
#[test]
fn a_user_without_a_password_is_no_other_user() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let options = ConnectionOptions {
            user: Some("ann".into()),
            protocol,
            ..ConnectionOptions::default()
        };
        let server = Server::start(ok);
        drop(server.connect(&options).expect("connected"));
        let [request] = &server.requests()[..] else { panic!("one greeting") };
        assert!(request.ends_with(&["AUTH", "ann", ""].map(String::from)), "{request:?}");

        let server = Server::start(|_, out| encode::error(out, "WRONGPASS no such user"));
        let error = server.connect(&options).expect_err("refused").to_string();
        assert!(error.contains("asks for a password: give one, and a user"), "{error}");
    }
}

/// The error for a missing or wrong password says what to do, and doesn't show the password. The
/// error for any other refusal has the server's own words.
#[test]
fn a_refused_greeting_says_why() {
    let options = ConnectionOptions {
        password: Some("hidden".into()),
        protocol: Protocol::Resp3,
        ..ConnectionOptions::default()
    };
    let refusal = |reply: &'static str| {
        let server = Server::start(move |_, out| encode::error(out, reply));
        let error = server.connect(&options).expect_err("refused").to_string();
        (error, server.address.to_string())
    };
    let (error, address) = refusal("NOAUTH HELLO must be called with the client authenticated");
    let advice = "asks for a password: give one, and a user if it isn't the default one";
    assert_eq!(error, format!("{address} {advice}"));
    let (error, address) = refusal("WRONGPASS invalid password");
    assert!(error.starts_with(&format!("{address} refused the password: ")), "{error}");
    assert!(!error.contains("hidden") && !format!("{options:?}").contains("hidden"));
    let (error, _) = refusal("NOPROTO unsupported protocol version");
    assert!(error.ends_with("refused HELLO: NOPROTO unsupported protocol version"), "{error}");
}

/// If nothing listens, the message says what to do.
#[test]
fn a_missing_server_is_explained() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    for (address, serve) in [
        (Address::tcp("127.0.0.1", port), "nigh serve"),
        (Address::unix("/nonexistent/socket"), "nigh serve --unixsocket PATH"),
    ] {
        let error = Connection::connect(&address, &ConnectionOptions::default())
            .expect_err("nothing there");
        assert_eq!(
            error.to_string(),
            format!(
                "nothing listens at {address}: start a server with `{serve}`, or name another \
                 address"
            )
        );
    }
}

/// A connection to a server that stays silent ends with an error.
#[test]
fn a_silent_server_is_given_up() {
    let (done, wait) = mpsc::channel::<()>();
    let server = Server::with(move |stream| {
        let _ = wait.recv();
        drop(stream);
        Ok(Vec::new())
    });
    let options = ConnectionOptions {
        timeout: Some(Duration::from_millis(50)),
        ..ConnectionOptions::default()
    };
    let mut connection = server.connect(&options).expect("connected");
    assert!(matches!(connection.call(["PING"]), Err(ClientError::TimedOut { .. })));
    drop(done);
    assert_eq!(server.requests(), Vec::<Request>::new());
}

/// If the server closes the connection in the middle of a reply, that is an error.
#[test]
fn a_reply_cut_off_is_an_error() {
    let server = Server::with(|mut stream| {
        let _ = stream.read(&mut [0; 100])?;
        stream.write_all(b"$5\r\nab")?;
        Ok(Vec::new())
    });
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    assert!(matches!(connection.call(["GET", "a"]), Err(ClientError::Closed { .. })));
}

/// The error says so if the other side doesn't speak RESP.
#[test]
fn another_protocol_is_recognized() {
    let server = Server::start(|_, out| out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n"));
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    let error = connection.call(["PING"]).expect_err("no RESP").to_string();
    assert!(error.contains("is this a RESP server?"), "{error}");
}

/// Pushes between replies go to the handler, if there is one. They never count as replies.
#[test]
fn pushes_are_no_replies() {
    let server = Server::start(|_, out| {
        encode::push(out, Protocol::Resp3, 1);
        encode::bulk(out, b"news");
        encode::ok(out);
    });
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    assert_eq!(connection.call(["PING"]).expect("a reply"), simple("OK"));
    let (sender, pushes) = mpsc::channel();
    connection.on_push(move |push| sender.send(push).expect("a receiver"));
    assert_eq!(connection.call(["PING"]).expect("a reply"), simple("OK"));
    assert_eq!(pushes.try_recv(), Ok(Frame::Push(vec![Frame::Bulk(b"news".into())])));
    assert!(pushes.try_recv().is_err());
}

/// A server that sends pushes and no reply, or bytes of one reply without an end, leaves nothing to
/// wait for: the timeout never began, and nobody was asked whether the call goes on. It was held
/// for as long as the server liked. (This one likes to for some seconds.)
#[test]
fn a_call_ends_though_something_always_comes() {
    fn flood(head: &'static [u8], piece: &'static [u8]) -> Server {
        Server::with(move |mut stream| {
            let (begin, pieces) = (Instant::now(), piece.repeat(1000));
            let _ = stream.read(&mut [0; 100])?;
            stream.write_all(head)?;
            while begin.elapsed() < Duration::from_secs(3) {
                if stream.write_all(&pieces).is_err() {
                    return Ok(Vec::new());
                }
            }
            stream.write_all(b"+OK\r\n")?;
            Ok(Vec::new())
        })
    }
    let push = b">1\r\n:1\r\n";
    let soon = ConnectionOptions {
        timeout: Some(Duration::from_millis(200)),
        ..ConnectionOptions::default()
    };
    let reply = flood(b"", push).connect(&soon).expect("connected").call(["PING"]);
    assert!(matches!(reply, Err(ClientError::TimedOut { .. })), "{reply:?}");
    for (head, piece) in [(&b""[..], &push[..]), (b"*2000000000\r\n", b":1\r\n")] {
        let options =
            ConnectionOptions { while_waiting: Some(|| false), ..ConnectionOptions::default() };
        let mut connection = flood(head, piece).connect(&options).expect("connected");
        let reply = connection.call(["PING"]);
        assert!(matches!(reply, Err(ClientError::BrokenOff { .. })), "{reply:?}");
    }
    // A caller that takes the pushes may wait for them as long as it likes.
    let mut connection = flood(b"", push).connect(&soon).expect("connected");
    let pushes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&pushes);
    connection.on_push(move |_| {
        counted.fetch_add(1, Relaxed);
    });
    assert_eq!(connection.call(["PING"]).expect("it comes at last"), simple("OK"));
    assert!(pushes.load(Relaxed) > 1000);
}

/// Small requests with large replies, large requests, and requests longer than the window. A client
/// that wrote all first would wait for ever, since the server doesn't read while it writes.
#[test]
fn a_pipeline_larger_than_all_buffers_does_not_deadlock() {
    for (request_bytes, reply_bytes, commands) in [(10, 100_000, 300), (64_000, 64_000, 300)] {
        let server = Server::start(move |_, out| encode::bulk(out, &vec![b'x'; reply_bytes]));
        let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
        let value = "v".repeat(request_bytes);
        let mut replies = 0;
        connection
            .pipeline_each((0..commands).map(|_| ["SET", "key", &value]), |frame| {
                replies += usize::from(frame.bytes().map(<[u8]>::len) == Some(reply_bytes));
            })
            .expect("replies");
        assert_eq!(replies, commands);
        drop(connection);
        assert_eq!(server.requests().len(), commands);
    }
}

/// The replies of a pipeline have the order of its requests. Earlier `send`s go out before it.
#[test]
fn a_pipeline_keeps_its_order() {
    let server = Server::start(|request, out| encode::bulk(out, request[1].as_bytes()));
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    let numbers: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let frames =
        connection.pipeline(numbers.iter().map(|number| ["ECHO", number])).expect("replies");
    assert!(frames.iter().map(Frame::bytes).eq(numbers.iter().map(|n| Some(n.as_bytes()))));
    connection.send(["ECHO", "a"]).expect("gathered");
    connection.send(["ECHO", "b"]).expect("gathered");
    assert_eq!(connection.receive().expect("a reply"), Frame::Bulk(b"a".into()));
    assert_eq!(connection.receive().expect("a reply"), Frame::Bulk(b"b".into()));
}

/// A server doesn't answer a request without words: it would be waited for till the timeout. It
/// isn't sent, and has an error in its place among the replies.
#[test]
fn a_request_without_words_has_an_error_in_its_place() {
    let server = Server::start(|request, out| encode::bulk(out, request[1].as_bytes()));
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    let refused = || Frame::Error(b"ERR a request without words".into());
    let (one, none) = (["ECHO", "a"], [""; 0]);
    let requests = [&none[..], &one, &none, &none, &one, &none];
    let reply = || Frame::Bulk(b"a".into());
    let expected = [refused(), reply(), refused(), refused(), reply(), refused()];
    assert_eq!(connection.pipeline(requests).expect("replies"), expected);
    assert_eq!(connection.call(none).expect("no wait"), refused());
    assert_eq!(connection.call(one).expect("a reply"), reply());
}

/// A caller's code panics within a pipeline, or a server answers too late. What was sent is
/// answered all the same: the next call would have taken that reply for its own.
#[test]
fn replies_that_were_left_behind_are_nobodys() {
    let server = Server::start(|request, out| encode::bulk(out, request[1].as_bytes()));
    let mut connection = server.connect(&ConnectionOptions::default()).expect("connected");
    let numbers = ["0", "1", "2", "3"];
    let ends = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let each = |reply: Frame| assert_ne!(reply, Frame::Bulk(b"1".into()));
        connection.pipeline_each(numbers.map(|number| ["ECHO", number]), each)
    }));
    assert!(ends.is_err());
    let error = connection.call(["ECHO", "mine"]).expect_err("it isn't the pipeline's");
    assert!(matches!(error, ClientError::LeftBehind { .. }), "{error}");
    assert!(error.to_string().contains("connect anew"), "{error}");
    assert!(connection.pipeline([["ECHO", "mine"]]).is_err());
    assert!(connection.receive().is_err());
    drop(connection);
    server.requests();

    let server = Server::start(|request, out| {
        std::thread::sleep(Duration::from_millis(if request[1] == "slow" { 100 } else { 0 }));
        encode::bulk(out, request[1].as_bytes());
    });
    let timeout = Some(Duration::from_millis(20));
    let mut connection = server
        .connect(&ConnectionOptions { timeout, ..ConnectionOptions::default() })
        .expect("connected");
    let late = connection.call(["ECHO", "slow"]);
    assert!(matches!(late, Err(ClientError::TimedOut { .. })), "{late:?}");
    std::thread::sleep(Duration::from_millis(150));
    let error = connection.call(["ECHO", "mine"]).expect_err("it isn't the late one's");
    assert!(matches!(error, ClientError::LeftBehind { .. }), "{error}");
    let mut connection = server
        .connect(&ConnectionOptions { timeout, ..ConnectionOptions::default() })
        .expect("connected");
    connection.send(["ECHO", "slow"]).expect("gathered");
    assert!(matches!(connection.receive(), Err(ClientError::TimedOut { .. })));
    std::thread::sleep(Duration::from_millis(150));
    let error = connection.call(["ECHO", "mine"]).expect_err("it isn't the late one's");
    assert!(matches!(error, ClientError::LeftBehind { .. }), "{error}");
}
