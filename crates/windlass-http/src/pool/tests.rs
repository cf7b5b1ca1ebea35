use super::*;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Server that gives each connection in turn the responses listed for it, then closes it. The receiver gets the number of
/// the connection and the text of each request.
async fn server(
    connections: &'static [&'static [&'static str]],
) -> (SocketAddr, mpsc::UnboundedReceiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for (number, responses) in connections.iter().enumerate() {
            let (mut stream, _) = listener.accept().await.unwrap();
            for response in *responses {
                let Some(request) = read_request(&mut stream).await else { break };
                seen.send((number, request)).unwrap();
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
    });
    (address, receiver)
}

/// A request whose body ends with `!`.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    while text.last() != Some(&b'!') {
        if stream.read_buf(&mut text).await.unwrap() == 0 {
            return None;
        }
    }
    Some(String::from_utf8(text).unwrap())
}

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn pool(address: SocketAddr) -> Pool {
    let target = Target::parse(&format!("http://{address}/call")).unwrap();
    Pool::new(target, 2, Arc::new(Allowed::parse(["loopback"]).unwrap()))
}

async fn call(pool: &Pool) -> Result<(u16, Option<Bytes>), CallError> {
    let _slot = pool.slot().await;
    let call = pool.send(pool.request(Bytes::from_static(b"job!"), "text/plain")).await?;
    Ok((call.status(), call.bytes(10).await))
}

#[tokio::test]
async fn a_connection_is_kept_until_a_response_is_larger_than_asked_for() {
    const LARGE: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 11\r\n\r\nhello world";
    let (address, mut seen) = server(&[&[HI, LARGE], &[HI]]).await;
    let pool = pool(address);
    assert_eq!(call(&pool).await.unwrap(), (200, Some(Bytes::from_static(b"hi"))));
    assert_eq!(call(&pool).await.unwrap(), (500, None));
    assert_eq!(call(&pool).await.unwrap().0, 200);
    for expected in [0, 0, 1] {
        assert_eq!(seen.recv().await.unwrap().0, expected);
    }
}

#[tokio::test]
async fn a_request_that_meets_a_closed_connection_is_sent_on_a_new_one() {
    let (address, mut seen) = server(&[&[HI], &[HI]]).await;
    let pool = pool(address);
    call(&pool).await.unwrap();
    assert_eq!(call(&pool).await.unwrap().0, 200);
    assert_eq!([seen.recv().await.unwrap().0, seen.recv().await.unwrap().0], [0, 1]);
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let (address, _seen) =
        server(&[&["HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"]])
            .await;
    assert_eq!(call(&pool(address)).await.unwrap().0, 302);
}

#[tokio::test]
async fn a_request_is_signed_for_its_tenant() {
    let (address, mut seen) = server(&[&[HI]]).await;
    let signer = Signer::new(&"k".repeat(32)).unwrap();
    call(&pool(address).signed(Some(&signer), "shop")).await.unwrap();
    let (_, request) = seen.recv().await.unwrap();
    assert!(request.starts_with("POST /call HTTP/1.1\r\n"), "{request}");
    let value = |name: &str| request.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let signature = value("windlass-signature:").unwrap();
    let at_s = signature[2..].split(',').next().unwrap().parse().unwrap();
    assert_eq!(signature, signer.sign("shop", at_s, b"job!"));
    assert_eq!(value("host:"), Some(address.to_string().as_str()));
}

#[tokio::test]
async fn a_connection_that_fails_has_the_code_of_the_system() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = call(&pool(address)).await.unwrap_err();
    assert_eq!(refused.code(), Some("ECONNREFUSED"), "{refused}");
    let (address, _seen) = server(&[&["HTTP/1.1 200 OK\r\nContent-"]]).await;
    let cut = call(&pool(address)).await.unwrap_err();
    assert_eq!(cut.code(), Some("ECONNRESET"), "{cut}");
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_connected_to() {
    let (address, mut seen) = server(&[&[HI]]).await;
    let allowed = Arc::new(Allowed::default_for(true));
    let pool = Pool::new(pool(address).target.clone(), 1, Arc::clone(&allowed));
    allowed.while_open(|| false);
    let refused = call(&pool).await.unwrap_err();
    assert!(matches!(refused, CallError::NotAllowed { .. }) && refused.code().is_none(), "{refused}");
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn slots_are_the_bound_on_connections() {
    let pool = pool("127.0.0.1:9".parse().unwrap());
    let slots = [pool.try_slot().unwrap(), pool.try_slot().unwrap()];
    assert!(pool.try_slot().is_none());
    drop(slots);
    assert!(pool.try_slot().is_some());
}
